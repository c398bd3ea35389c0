/* What is done between products of matrices to images whose channels are last: rows are pixels of
 * all samples, columns are channels.
 */
#include "fire.h"

enum { RUN = 16, PIECE = 16384 }; /* rows of a task; elements where rows do not matter */

/* slope y where the sign is not above 0, else y; without a slope even infinity becomes 0. */
INLINE vec leak(vec sign, vec y, float slope) {
    vec below = {0};
    if (slope != 0) below = slope * y;
    return where(sign <= 0, below, y);
}

/* y = relu(y + bias), in place */
struct add_bias {
    int64_t threads;
    float *y; /* (rows, channels) */
    const float *bias;
    int64_t rows, channels;
    float slope; /* of the ReLU; 1 is none */
};

INLINE void add_bias_to_vector(float *y, const float *bias, int64_t left, float slope) {
    vec value = load_some(y, left) + load_some(bias, left);
    store_some(y, leak(value, value, slope), left);
}

static void add_bias_to_rows(int64_t task, const void *args) {
    const struct add_bias a = *(const struct add_bias *)args;
    for (int64_t row = task * RUN; row < least((task + 1) * RUN, a.rows); row++) {
        float *y = a.y + row * a.channels;
        int64_t c = 0;
#pragma GCC unroll 4
        for (; c + VECTOR <= a.channels; c += VECTOR)
            add_bias_to_vector(y + c, a.bias + c, VECTOR, a.slope);
        if (c < a.channels) add_bias_to_vector(y + c, a.bias + c, a.channels - c, a.slope);
    }
}

KERNEL(add_bias) { run_tasks((a->rows + RUN - 1) / RUN, add_bias_to_rows, a, a->threads); }

/* y = relu(the sum of coefficient x over inputs) */
struct weighted_sum {
    int64_t threads;
    const float *const *xs;
    const float *coefficients;
    float *y; /* may be one of xs */
    int64_t inputs, count;
    float slope; /* of the ReLU; 1 is none */
};

INLINE void sum_vector(const struct weighted_sum *a, int64_t i, int64_t left) {
    vec sum = a->coefficients[0] * load_some(a->xs[0] + i, left);
    for (int64_t k = 1; k < a->inputs; k++)
        sum += a->coefficients[k] * load_some(a->xs[k] + i, left);
    store_some(a->y + i, leak(sum, sum, a->slope), left);
}

static void sum_piece(int64_t task, const void *args) {
    const struct weighted_sum a = *(const struct weighted_sum *)args;
    int64_t i = task * PIECE, stop = least(i + PIECE, a.count);
    for (; i + VECTOR <= stop; i += VECTOR) sum_vector(&a, i, VECTOR);
    if (i < stop) sum_vector(&a, i, stop - i);
}

KERNEL(weighted_sum) { run_tasks((a->count + PIECE - 1) / PIECE, sum_piece, a, a->threads); }

/* dx = slope dy where y <= 0, else dy */
struct relu_backward {
    int64_t threads;
    const float *y, *dy;
    float *dx; /* may be dy */
    int64_t count;
    float slope;
};

INLINE void relu_vector_backward(const struct relu_backward *a, int64_t i, int64_t left) {
    vec y = load_some(a->y + i, left), dy = load_some(a->dy + i, left);
    store_some(a->dx + i, leak(y, dy, a->slope), left);
}

static void relu_piece_backward(int64_t task, const void *args) {
    const struct relu_backward a = *(const struct relu_backward *)args;
    int64_t i = task * PIECE, stop = least(i + PIECE, a.count);
    for (; i + VECTOR <= stop; i += VECTOR) relu_vector_backward(&a, i, VECTOR);
    if (i < stop) relu_vector_backward(&a, i, stop - i);
}

KERNEL(relu_backward) {
    run_tasks((a->count + PIECE - 1) / PIECE, relu_piece_backward, a, a->threads);
}

/* target[:, to : to + count] = source[:, start : start + count] */
struct copy_columns {
    int64_t threads;
    const float *source; /* (rows, source_columns) */
    float *target;       /* (rows, target_columns) */
    int64_t rows, source_columns, target_columns, start, to, count;
};

static void copy_columns_of_rows(int64_t task, const void *args) {
    const struct copy_columns a = *(const struct copy_columns *)args;
    for (int64_t row = task * RUN; row < least((task + 1) * RUN, a.rows); row++)
        memcpy(a.target + row * a.target_columns + a.to,
               a.source + row * a.source_columns + a.start, (size_t)a.count * sizeof(float));
}

KERNEL(copy_columns) { run_tasks((a->rows + RUN - 1) / RUN, copy_columns_of_rows, a, a->threads); }

/* Patches ----------------------------------------------------------------------------------------
 *
 * A patch has what a window sees of some channels: (kernel_height, kernel_width, count) elements,
 * and 0 where the window is beyond the image. Windows are (images, out_height, out_width).
 */
struct im2col_windows {
    int64_t threads, height, width, out_height, out_width;
    int64_t kernel_height, kernel_width, stride_height, stride_width;
    int64_t pad_height, pad_width, dilation_height, dilation_width;
    int64_t channels, start, count; /* of an image; those in patches: start .. start + count - 1 */
};

/* Patches of the windows of some rows of outputs, counted through all images. */
struct im2col {
    struct im2col_windows w;
    const float *x; /* (images, height, width, channels) */
    float *patches; /* (rows * out_width, patch) */
    int64_t first, rows;
};

static void im2col_row(int64_t task, const void *args) {
    const struct im2col a = *(const struct im2col *)args;
    const struct im2col_windows w = a.w;
    int64_t image = (a.first + task) / w.out_height, row = (a.first + task) % w.out_height;
    const float *x = a.x + image * w.height * w.width * w.channels + w.start;
    /* A row of a dense window over all channels is one piece of memory. */
    bool dense = w.dilation_width == 1 && w.count == w.channels;
    int64_t pieces = dense ? 1 : w.kernel_width, reach = dense ? w.kernel_width : 1;
    int64_t length = reach * w.count;
    float *patch = a.patches + task * w.out_width * w.kernel_height * pieces * length;
    for (int64_t column = 0; column < w.out_width; column++)
        for (int64_t k = 0; k < w.kernel_height; k++) {
            int64_t y = row * w.stride_height - w.pad_height + k * w.dilation_height;
            for (int64_t piece = 0; piece < pieces; piece++, patch += length) {
                int64_t left = column * w.stride_width - w.pad_width + piece * w.dilation_width;
                int64_t start = most(0, -left), stop = least(reach, w.width - left);
                if (y < 0 || y >= w.height || start >= stop) start = stop = reach;
                start *= w.count, stop *= w.count;
                for (int64_t i = 0; i < start; i++) patch[i] = 0;
                if (start < stop) {
                    const float *seen = x + (y * w.width + left) * w.channels + start;
                    memcpy(patch + start, seen, (size_t)(stop - start) * sizeof(float));
                }
                for (int64_t i = stop; i < length; i++) patch[i] = 0;
            }
        }
}

KERNEL(im2col) { run_tasks(a->rows, im2col_row, a, a->w.threads); }

/* Each of the channels of each pixel of some images becomes the sum of the elements of
 * patches that saw it. */
struct col2im {
    struct im2col_windows w;
    const float *patches; /* (images * out_height * out_width, patch) */
    float *dx;            /* (first + images, height, width, channels) */
    int64_t first, images;
};

static void col2im_image(int64_t task, const void *args) {
    const struct col2im a = *(const struct col2im *)args;
    const struct im2col_windows w = a.w;
    int64_t cells = w.kernel_height * w.kernel_width, windows = w.out_height * w.out_width;
    float *dx = a.dx + (a.first + task) * w.height * w.width * w.channels + w.start;
    const float *part = a.patches + task * windows * cells * w.count;
    for (int64_t pixel = 0; pixel < w.height * w.width; pixel++)
        memset(dx + pixel * w.channels, 0, (size_t)w.count * sizeof(float));
    for (int64_t window = 0; window < windows; window++)
        for (int64_t cell = 0; cell < cells; cell++, part += w.count) {
            int64_t y = window / w.out_width * w.stride_height - w.pad_height +
                        cell / w.kernel_width * w.dilation_height;
            int64_t x = window % w.out_width * w.stride_width - w.pad_width +
                        cell % w.kernel_width * w.dilation_width;
            if (y < 0 || y >= w.height || x < 0 || x >= w.width) continue;
            float *restrict pixel = dx + (y * w.width + x) * w.channels;
            for (int64_t c = 0; c < w.count; c++) pixel[c] += part[c];
        }
}

KERNEL(col2im) { run_tasks(a->images, col2im_image, a, a->w.threads); }
