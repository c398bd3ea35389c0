/* Images to the floats of a batch: crop, mean, scale and mirror, and resizing of 8-bit images.
 *
 * Images are given by their addresses: bytes go from a database's memory map, or from where they
 * were decoded, straight to the batch. Results are the same bits on every machine.
 */
#include "fire.h"

/* Of the elements of an image. PACKED: red, green, blue and a fourth byte in a word for each pixel,
 * for channels in the order blue, green, red. */
enum kind { BYTES, FLOATS, PACKED };

/* One image, the place of its crop, and of the result in the batch; strides count elements, which
 * may have any alignment. */
struct image {
    int64_t address, channel_stride, row_stride, column_stride;
    int64_t kind, top, left, mirror, sample;
};

/* out[sample, c, h, w] = (image[c, h + top, w + left] - mean[c, h + top, w + left]) scale, mirrored
 * left to right where the image says so. */
struct transform {
    int64_t threads;
    const int64_t *images; /* a struct image for each */
    const float *mean;     /* (channels, mean_height, mean_width), or one for each channel */
    float *out;            /* (samples, channels, height, width) */
    int64_t count;         /* of images */
    int64_t samples, channels, height, width;
    int64_t mean_height, mean_width; /* 1 and 1: one for each channel */
    float scale;
};

typedef float loose_float __attribute__((aligned(1), may_alias));
typedef uint32_t loose_word __attribute__((aligned(1), may_alias));

/* Neighbouring pixels of a line: `step` elements apart, -1 if the line is mirrored. */
struct part {
    const char *pixels;
    const float *means; /* of the pixels, or one for all */
    int64_t size, step;
    int shift; /* PACKED: of the channel's byte, in bits */
    bool one_mean;
};

INLINE void write_part(
    float *restrict out, struct part p, int64_t step, bool one_mean, float scale, enum kind kind) {
    for (int64_t i = 0; i < p.size; i++) {
        float x;
        if (kind == BYTES)
            x = ((const uint8_t *)p.pixels)[i * step];
        else if (kind == FLOATS)
            x = ((const loose_float *)p.pixels)[i * step];
        else
            x = (float)(int32_t)(((const loose_word *)p.pixels)[i * step] >> p.shift & 255);
        out[i] = (x - p.means[one_mean ? 0 : i]) * scale;
    }
}

/* Loops with a constant step compile to vector instructions. */
INLINE void write_any(float *out, struct part p, float scale, enum kind kind) {
    if (p.step == 1 && p.one_mean)
        write_part(out, p, 1, true, scale, kind);
    else if (p.step == 1)
        write_part(out, p, 1, false, scale, kind);
    else if (p.step == -1)
        write_part(out, p, -1, p.one_mean, scale, kind);
    else
        write_part(out, p, p.step, p.one_mean, scale, kind);
}

enum { CHUNK = 512 }; /* pixels of a part */

static void transform_image(int64_t task, const void *args) {
    const struct transform *a = args;
    const struct image *image = (const struct image *)a->images + task;
    const int64_t volume = a->channels * a->height * a->width;
    const bool past = goes_past(a->out, a->samples * volume), mirror = image->mirror;
    const bool one_mean = a->mean_height * a->mean_width == 1;
    const int64_t step = image->column_stride, bytes = image->kind == BYTES ? 1 : 4;
    float *out = a->out + image->sample * volume;
    float room[CHUNK], means[CHUNK];
    char turned[CHUNK];
    /* Where the channels of a pixel are neighbours, all lines of a row before the next row. */
    const bool planes = image->kind != PACKED && step == 1;
    for (int64_t i = 0; i < a->channels * a->height; i++) {
        int64_t c = planes ? i / a->height : i % a->channels;
        int64_t h = planes ? i % a->height : i / a->channels, y = h + image->top;
        for (int64_t w = 0, size; w < a->width; w += size) {
            size = least(CHUNK, a->width - w);
            int64_t x = image->left + (mirror ? a->width - 1 - w : w); /* of the first pixel */
            int64_t place = c * image->channel_stride + y * image->row_stride + x * step;
            struct part p = {
                (const char *)(uintptr_t)(image->address + place * bytes),
                a->mean + (one_mean ? c : (c * a->mean_height + y) * a->mean_width + x),
                size, mirror ? -step : step, 16 - 8 * (int)c, one_mean};
            if (mirror && !one_mean) {
                for (int64_t k = 0; k < size; k++) means[k] = p.means[-k];
                p.means = means;
            }
            if (p.step == -1 && image->kind == BYTES) { /* turned first, which is faster */
                for (int64_t k = 0; k < size; k++) turned[k] = p.pixels[-k];
                p.pixels = turned;
                p.step = 1;
            }
            float *target = out + (c * a->height + h) * a->width + w, *line = past ? room : target;
            if (image->kind == BYTES)
                write_any(line, p, a->scale, BYTES);
            else if (image->kind == FLOATS)
                write_any(line, p, a->scale, FLOATS);
            else
                write_any(line, p, a->scale, PACKED);
            if (past) stream_copy(target, room, size);
        }
    }
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

/* A row at its new width. */
INLINE void weigh_columns(
    const struct resize *a, const uint8_t *pixels, int32_t *restrict line, const int taps) {
    const int64_t *columns = a->columns, width = a->width, step = a->column_stride;
    const int32_t *across = a->across;
    for (int64_t x = 0; x < width; x++, columns += taps, across += taps) {
        int32_t sum = 0;
        for (int k = 0; k < taps; k++) sum += pixels[columns[k] * step] * across[k];
        line[x] = sum;
    }
}

/* A new row from the rows around it. */
INLINE void weigh_rows(
    int32_t *const *lines, const int32_t *down, int64_t width, uint8_t *restrict out,
    const int taps) {
    const int32_t *first = lines[0], *second = lines[1], b0 = down[0], b1 = down[1];
    for (int64_t x = 0; x < width; x++) {
        int32_t sum;
        if (taps == 2) {
            sum = ((b0 * (first[x] >> 4) >> 16) + (b1 * (second[x] >> 4) >> 16) + 2) >> 2;
        } else {
            sum = 1 << 21;
            for (int k = 0; k < taps; k++) sum += down[k] * lines[k][x];
            sum = sum < 0 ? 0 : sum >> 22;
        }
        out[x] = (uint8_t)(sum > 255 ? 255 : sum);
    }
}

INLINE void resize_channel(const struct resize *a, int64_t c, const int taps) {
    int32_t *kept = allocate(taps * a->width * (int64_t)sizeof *kept); /* row r in slot r % taps */
    int64_t row_of_slot[MOST_TAPS];
    for (int k = 0; k < taps; k++) row_of_slot[k] = -1;
    for (int64_t y = 0; y < a->height; y++) {
        int32_t *lines[MOST_TAPS];
        for (int k = 0; k < taps; k++) {
            int64_t row = a->rows[y * taps + k], slot = row % taps;
            int64_t address = a->image + c * a->channel_stride + row * a->row_stride;
            lines[k] = kept + slot * a->width;
            if (row_of_slot[slot] != row)
                weigh_columns(a, (const uint8_t *)(uintptr_t)address, lines[k], taps);
            row_of_slot[slot] = row;
        }
        uint8_t *out = a->out + (c * a->height + y) * a->width;
        weigh_rows(lines, a->down + y * taps, a->width, out, taps);
    }
    release(kept);
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
