/* y = e^x / the sum of e^x over channels, and its gradient dx = (dy - the sum of y dy) y.
 *
 * The first `channels` of outer * inner channels count; results are 0 for the others. Where
 * inner = 1, a vector has pixels of one channel; elsewhere it has channels of one pixel.
 */
#include "grid.h"

struct softmax {
    struct grid g;
    int64_t channels;
    const float *x;
    float *y; /* may be x */
};

struct softmax_backward {
    struct grid g;
    int64_t channels;
    const float *y, *dy;
    float *dx; /* may be dy */
};

enum { PIXELS = 64, TILE = 16384 }; /* pixels of a task, and elements if it has several pixels */

/* e^x for x <= 0 to about 1e-7, relative; below -87 it stays at e^-87. */
INLINE vec exp_of(vec x) {
    const float rounding = 12582912; /* added to a number, it leaves no bits below 1 */
    x = larger(x, broadcast(-87));
    vec k = (x * 1.44269504f + rounding) - rounding;
    vec r = x - k * 0.693359375f + k * 2.12194440e-4f; /* x = k log 2 + r */
    vec p = r * (1 / 5040.0f) + 1 / 720.0f;
    p = (p * r + 1 / 120.0f) * r + 1 / 24.0f;
    p = (p * r + 1 / 6.0f) * r + 0.5f;
    p = p * r * r + r + 1.0f;
    return p * (vec)(((uvec)__builtin_convertvector(k, ivec) + 127) << 23);
}

/* Channels of a pixel -------------------------------------------------------------------------- */

/* Lanes `count`, count + 1, ... become `rest`. */
INLINE vec fill_lanes(vec v, int64_t count, float rest) {
    ivec lanes = {0};
    for (int k = 0; k < VECTOR; k++) lanes[k] = k;
    return count >= VECTOR ? v : where(lanes < (int32_t)count, v, broadcast(rest));
}

/* For each vector of a pixel, none of which reaches beyond its block: its place i, where its block
 * ends, and how many of its channels count. */
#define FOR_EACH_VECTOR(a, i, stop, counted)                                                   \
    for (int64_t block = 0; block < (a).g.outer; block++)                                      \
        for (int64_t i = block * (a).g.pixels * (a).g.inner, stop = i + (a).g.inner,           \
                     counted = least((a).channels - block * (a).g.inner, (a).g.inner);         \
             i < stop; i += VECTOR, counted -= VECTOR)

/* Scratch memory has room for a pixel's vectors. */
INLINE void softmax_pixel(struct softmax a, const float *x, float *y, vec *scratch) {
    vec lanes = broadcast(x[0]), sums = {0}, *value = scratch; /* NaN in x[0] makes all NaN */
    FOR_EACH_VECTOR(a, i, stop, counted) {
        *value = fill_lanes(load_some(x + i, stop - i), counted, -INFINITY);
        lanes = larger(lanes, *value++);
    }
    float best = x[0];
    for (int k = 0; k < VECTOR; k++) best = lanes[k] > best ? lanes[k] : best;
    value = scratch;
    FOR_EACH_VECTOR(a, i, stop, counted) {
        *value = fill_lanes(exp_of(*value - best), counted, 0);
        sums += *value++;
    }
    const float factor = 1 / sum_lanes(sums);
    value = scratch;
    FOR_EACH_VECTOR(a, i, stop, counted) /* 0 NaN is NaN */
        store_some(y + i, fill_lanes(*value++ * factor, counted, 0), stop - i);
}

INLINE void softmax_pixel_backward(
    struct softmax_backward a, const float *y, const float *dy, float *dx
) {
    vec sums = {0}; /* y is 0 where channels do not count */
    FOR_EACH_VECTOR(a, i, stop, counted)
        sums += load_some(y + i, stop - i) * load_some(dy + i, stop - i);
    const float dot = sum_lanes(sums);
    FOR_EACH_VECTOR(a, i, stop, counted) {
        vec slope = (load_some(dy + i, stop - i) - dot) * load_some(y + i, stop - i);
        store_some(dx + i, fill_lanes(slope, counted, 0), stop - i);
    }
}

/* The pixels of a task. */
struct pixels {
    int64_t first, stop; /* the places of their first channels, `inner` elements apart */
};

INLINE int64_t pixels_per_task(struct grid g) {
    return most(1, least(PIXELS, TILE / most(1, g.outer * g.inner)));
}

INLINE struct pixels pixels_of(struct grid g, int64_t task) {
    int64_t size = pixels_per_task(g), tiles = (g.pixels + size - 1) / size;
    int64_t sample = task / tiles * g.outer * g.pixels, first = task % tiles * size;
    return (struct pixels){
        (sample + first) * g.inner, (sample + least(first + size, g.pixels)) * g.inner};
}

static void softmax_pixels(int64_t task, const void *args) {
    const struct softmax a = *(const struct softmax *)args;
    const struct pixels p = pixels_of(a.g, task);
    int64_t vectors = a.g.outer * ((a.g.inner + VECTOR - 1) / VECTOR);
    vec *scratch = allocate(vectors * (int64_t)sizeof(vec));
    for (int64_t i = p.first; i < p.stop; i += a.g.inner)
        softmax_pixel(a, a.x + i, a.y + i, scratch);
    release(scratch);
}

static void softmax_pixels_backward(int64_t task, const void *args) {
    const struct softmax_backward a = *(const struct softmax_backward *)args;
    const struct pixels p = pixels_of(a.g, task);
    for (int64_t i = p.first; i < p.stop; i += a.g.inner)
        softmax_pixel_backward(a, a.y + i, a.dy + i, a.dx + i);
}

/* Pixels of a channel, where inner = 1 --------------------------------------------------------- */

enum { WIDTH = PIXELS / VECTOR }; /* vectors of a tile */

/* A tile of `count` pixels, PIXELS of them if it is a constant. */
INLINE void softmax_tile(struct softmax a, int64_t start, int64_t count) {
    const float *x = a.x + start;
    float *y = a.y + start;
    int64_t width = (count + VECTOR - 1) / VECTOR, step = a.g.pixels;
    vec *values = allocate(a.channels * width * (int64_t)sizeof(vec));
    vec best[WIDTH], sums[WIDTH] = {{0}};
    for (int64_t i = 0; i < width; i++) best[i] = load_some(x + i * VECTOR, count - i * VECTOR);
    for (int64_t c = 0; c < a.channels; c++)
        for (int64_t i = 0; i < width; i++) {
            vec value = load_some(x + c * step + i * VECTOR, count - i * VECTOR);
            best[i] = larger(best[i], value);
            values[c * width + i] = value;
        }
    for (int64_t c = 0; c < a.channels; c++)
        for (int64_t i = 0; i < width; i++) {
            vec value = exp_of(values[c * width + i] - best[i]);
            sums[i] += value;
            values[c * width + i] = value;
        }
    for (int64_t i = 0; i < width; i++) sums[i] = 1 / sums[i];
    for (int64_t c = 0; c < a.channels; c++)
        for (int64_t i = 0; i < width; i++) {
            vec value = values[c * width + i] * sums[i];
            store_some(y + c * step + i * VECTOR, value, count - i * VECTOR);
        }
    release(values);
}

INLINE void softmax_tile_backward(struct softmax_backward a, int64_t start, int64_t count) {
    int64_t width = (count + VECTOR - 1) / VECTOR;
    vec dots[WIDTH] = {{0}};
    for (int64_t c = 0; c < a.channels; c++)
        for (int64_t i = 0; i < width; i++) {
            int64_t here = start + c * a.g.pixels + i * VECTOR, left = count - i * VECTOR;
            dots[i] += load_some(a.y + here, left) * load_some(a.dy + here, left);
        }
    for (int64_t c = 0; c < a.channels; c++)
        for (int64_t i = 0; i < width; i++) {
            int64_t here = start + c * a.g.pixels + i * VECTOR, left = count - i * VECTOR;
            vec slope = load_some(a.dy + here, left) - dots[i];
            store_some(a.dx + here, slope * load_some(a.y + here, left), left);
        }
}

static void softmax_columns(int64_t task, const void *args) {
    const struct softmax a = *(const struct softmax *)args;
    const struct pixels p = pixels_of(a.g, task);
    if (p.stop - p.first == PIXELS)
        softmax_tile(a, p.first, PIXELS);
    else
        softmax_tile(a, p.first, p.stop - p.first);
}

static void softmax_columns_backward(int64_t task, const void *args) {
    const struct softmax_backward a = *(const struct softmax_backward *)args;
    const struct pixels p = pixels_of(a.g, task);
    if (p.stop - p.first == PIXELS)
        softmax_tile_backward(a, p.first, PIXELS);
    else
        softmax_tile_backward(a, p.first, p.stop - p.first);
}

/* ---------------------------------------------------------------------------------------------- */

/* See the pixels of all samples as those of one sample, where they are rows in order. */
INLINE struct grid joined(struct grid g) {
    if (g.pixels == 1) {
        g.inner *= g.outer;
        g.outer = 1;
    }
    if (g.outer == 1) {
        g.pixels *= g.samples;
        g.samples = 1;
    }
    return g;
}

INLINE int64_t tasks_of(struct grid g) {
    int64_t size = pixels_per_task(g);
    return g.samples * ((g.pixels + size - 1) / size);
}

KERNEL(softmax) {
    struct softmax s = *a;
    s.g = joined(a->g);
    run_tasks(tasks_of(s.g), s.g.inner == 1 ? softmax_columns : softmax_pixels, &s, s.g.threads);
}

KERNEL(softmax_backward) {
    struct softmax_backward s = *a;
    s.g = joined(a->g);
    task_fn *task = s.g.inner == 1 ? softmax_columns_backward : softmax_pixels_backward;
    run_tasks(tasks_of(s.g), task, &s, s.g.threads);
}
