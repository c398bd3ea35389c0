/* Images to the floats of a batch: crop, mean, scale and mirror, and resizing of 8-bit images.
 *
 * Images are given by their addresses: bytes go from a database's memory map, or from where they
 * were decoded, straight to the batch. Results are the same bits on every machine.
 */
#include "fire.h"

/* Of the elements of an image. PACKED: red, green, blue and a fourth byte in a word for each pixel,
 * for channels in the order blue, green, red. */
enum kind { BYTES, FLOATS, PACKED };

/* One image and the place of its crop; strides count elements, which may have any alignment. */
struct image {
    int64_t address, channel_stride, row_stride, column_stride;
    int64_t kind, top, left, mirror;
};

/* out[i, c, h, w] = (image_i[c, h + top, w + left] - mean[c, h + top, w + left]) scale, mirrored
 * left to right where the image says so. A mean of one line has the line for all crops. */
struct transform {
    int64_t threads;
    const int64_t *images; /* a struct image for each */
    const float *mean;     /* (channels, mean_height, mean_width) */
    float *out;            /* (count, channels, height, width) */
    int64_t count, channels, height, width, mean_height, mean_width;
    int64_t batch; /* elements of the array that `out` is in: large ones are written past the caches */
    float scale;
};

typedef float loose_float __attribute__((aligned(1), may_alias));
typedef uint32_t loose_word __attribute__((aligned(1), may_alias));

struct line {
    const char *pixels;
    const float *means;
    int64_t step; /* elements between neighbours */
    int64_t channel;
};

INLINE float value_of(const struct line *l, int64_t x, enum kind kind) {
    if (kind == FLOATS) return ((const loose_float *)l->pixels)[x];
    if (kind == BYTES) return ((const uint8_t *)l->pixels)[x];
    return (float)(int32_t)(((const loose_word *)l->pixels)[x] >> (16 - 8 * l->channel) & 255);
}

INLINE void write_line(
    float *restrict out, const struct line *l, int64_t width, float scale, enum kind kind,
    int64_t step, bool mirror) {
    const struct line line = *l;
    for (int64_t w = 0; w < width; w++) {
        int64_t x = mirror ? width - 1 - w : w;
        out[w] = (value_of(&line, x * step, kind) - line.means[x]) * scale;
    }
}

/* Neighbouring pixels apart from distant ones: their loops compile to vector instructions. */
INLINE void write_any_line(
    float *out, const struct line *l, int64_t width, float scale, enum kind kind, bool mirror) {
    if (l->step == 1 && mirror)
        write_line(out, l, width, scale, kind, 1, true);
    else if (l->step == 1)
        write_line(out, l, width, scale, kind, 1, false);
    else
        write_line(out, l, width, scale, kind, l->step, mirror);
}

static void transform_image(int64_t task, const void *args) {
    const struct transform *a = args;
    const struct image *image = (const struct image *)a->images + task;
    const bool past = a->batch >= LARGE, one_line = a->mean_height == 1 && a->mean_width == a->width;
    const int64_t size = image->kind == BYTES ? 1 : 4;
    float *out = a->out + task * a->channels * a->height * a->width;
    float *room = past ? allocate(a->width * (int64_t)sizeof *room) : NULL;
    /* Where the channels of a pixel are neighbours, all lines of a row before the next row. */
    const bool planes = image->kind != PACKED && image->column_stride == 1;
    for (int64_t i = 0; i < a->channels * a->height; i++) {
        int64_t c = planes ? i / a->height : i % a->channels;
        int64_t h = planes ? i % a->height : i / a->channels, y = h + image->top;
        int64_t first = c * image->channel_stride + y * image->row_stride +
                        image->left * image->column_stride;
        int64_t means = one_line ? c * a->mean_width
                                 : (c * a->mean_height + y) * a->mean_width + image->left;
        struct line l = {
            (const char *)(uintptr_t)(image->address + first * size), a->mean + means,
            image->column_stride, c};
        float *target = out + (c * a->height + h) * a->width, *line = past ? room : target;
        if (image->kind == BYTES)
            write_any_line(line, &l, a->width, a->scale, BYTES, image->mirror);
        else if (image->kind == FLOATS)
            write_any_line(line, &l, a->width, a->scale, FLOATS, image->mirror);
        else
            write_any_line(line, &l, a->width, a->scale, PACKED, image->mirror);
        if (past) stream_copy(target, line, a->width);
    }
    if (past) release(room);
    finish_streams();
}

KERNEL(transform) { run_tasks(a->count, transform_image, a, a->threads); }

/* Resizing ---------------------------------------------------------------------------------------
 *
 * Each new row is a weighted sum of `taps` rows, each new pixel of a row one of `taps` pixels, with
 * weights in units of 2^-11. Sums are rounded as OpenCV does:
 *
 *     line_r[x] = sum over k of image[r, columns[x, k]] across[x, k]
 *     out[y, x] = (2^21 + sum over k of line_rows[y, k][x] down[y, k]) >> 22, between 0 and 255
 *
 * and with 2 taps (((line >> 4) down >> 16) of both + 2) >> 2.
 */
struct resize {
    int64_t threads;
    int64_t image, channel_stride, row_stride, column_stride; /* address; strides in bytes */
    const int64_t *columns;  /* (width, taps) */
    const int32_t *across;
    const int64_t *rows;     /* (height, taps); those of a new row are neighbours */
    const int32_t *down;
    uint8_t *out;            /* (channels, height, width) */
    int64_t channels, height, width, old_height, old_width, taps;
};

enum { MOST_TAPS = 8 };

INLINE void resize_channel(const struct resize *a, int64_t c, const int taps) {
    int32_t *line = allocate((a->old_width + taps * a->width) * (int64_t)sizeof *line);
    int32_t *kept = line + a->old_width; /* (taps, width): row r is kept in slot r % taps */
    int64_t row_of_slot[MOST_TAPS];
    for (int k = 0; k < taps; k++) row_of_slot[k] = -1;
    for (int64_t y = 0; y < a->height; y++) {
        const int32_t *lines[MOST_TAPS], *down = a->down + y * taps;
        for (int k = 0; k < taps; k++) {
            int64_t row = a->rows[y * taps + k], slot = row % taps;
            int32_t *restrict wide = kept + slot * a->width;
            lines[k] = wide;
            if (row_of_slot[slot] == row) continue;
            row_of_slot[slot] = row;
            const uint8_t *pixels =
                (const uint8_t *)(uintptr_t)(a->image + c * a->channel_stride + row * a->row_stride);
            for (int64_t x = 0; x < a->old_width; x++) line[x] = pixels[x * a->column_stride];
            for (int64_t x = 0; x < a->width; x++) {
                int32_t sum = 0;
                for (int t = 0; t < taps; t++)
                    sum += line[a->columns[x * taps + t]] * a->across[x * taps + t];
                wide[x] = sum;
            }
        }
        uint8_t *restrict out = a->out + (c * a->height + y) * a->width;
        for (int64_t x = 0; x < a->width; x++) {
            if (taps == 2) {
                int32_t sum = (down[0] * (lines[0][x] >> 4) >> 16) + (down[1] * (lines[1][x] >> 4) >> 16);
                out[x] = (uint8_t)((sum + 2) >> 2);
                continue;
            }
            int32_t sum = 1 << 21;
            for (int k = 0; k < taps; k++) sum += down[k] * lines[k][x];
            out[x] = (uint8_t)(sum < 0 ? 0 : least(sum >> 22, 255));
        }
    }
    release(line);
}

static void resize_any(int64_t task, const void *args) {
    const struct resize *a = args;
    if (a->taps == 2)
        resize_channel(a, task, 2);
    else if (a->taps == 4)
        resize_channel(a, task, 4);
    else
        resize_channel(a, task, MOST_TAPS);
}

KERNEL(resize) { run_tasks(a->channels, resize_any, a, a->threads); }
