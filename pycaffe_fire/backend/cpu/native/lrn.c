/* Local response normalisation, across channels or around each pixel of a channel:
 *
 *     s = k + alpha (the sum of x^2 over a region),    y = x s^-beta
 *     dx = dy s^-beta - 2 alpha beta x (the sum of dy x s^(-beta-1) over the region)
 *
 * Arrays are (samples, outer, height, width, inner): blocks of `inner` channels side by side. A
 * region reaches `half` channels, or pixels, to each side and ends at the border. Backward computes
 * s again: reading x costs less than storing s.
 */
#include "fire.h"

struct lrn {
    int64_t threads, samples, outer, height, width, inner;
    int64_t half, across; /* across = 0: around each pixel */
    const float *x;
    const float *dy; /* NULL: forward */
    float *out;      /* y, which may be x, or dx, which may be dy */
    float alpha, beta, k;
};

/* Powers --------------------------------------------------------------------------------------- */

struct powers {
    vec power, inverse; /* s^-beta and 1 / s */
};

static __attribute__((noinline)) vec any_power(vec s, float exponent) {
    vec power = {0};
    for (int i = 0; i < VECTOR; i++) power[i] = powf(s[i], exponent);
    return power;
}

/* The usual exponents come from s^(-1/4) by Newton's method: multiplications alone, which is much
 * faster than roots and divisions. It has to start from a normal number. */
INLINE struct powers powers_of(const struct lrn *a, vec s) {
    bool is_usual = a->beta == 0.75f || a->beta == 0.5f;
    if (!is_usual || a->k < 1e-30f || a->alpha < 0)
        return (struct powers){any_power(s, -a->beta), 1 / s};
    vec r = (vec)(0x4F58CAC8 - ((ivec)s >> 2)), quarter = 0.25f * s;
    for (int i = 0; i < 3; i++) r *= 1.25f - quarter * (r * r) * (r * r);
    return (struct powers){a->beta == 0.75f ? r * r * r : r * r, (r * r) * (r * r)};
}

/* Across channels ------------------------------------------------------------------------------ */

enum { TILE = 16384, FEW = 64 }; /* elements of a task, or so; pixels, at least, where inner = 1 */

/* Some pixels of an image, and their place in scratch memory: (channels, pixels) where inner = 1,
 * else (pixels, channels). A channel's neighbours are `step` elements apart there, and `half`
 * channels of zeros surround the others. */
struct tile {
    int64_t runs, blocks, length;                /* a block has runs of neighbouring elements */
    int64_t memory, memory_run, memory_block;    /* the first element; steps to the next */
    int64_t scratch, scratch_run, scratch_block; /* run and block */
    int64_t step, elements;                      /* of scratch memory */
};

INLINE int64_t pixels_of_tile(const struct lrn *a) {
    int64_t pixels = TILE / most(1, a->outer * a->inner);
    return least(most(pixels, a->inner == 1 ? FEW : 1), most(1, a->height * a->width));
}

INLINE struct tile tile_of(const struct lrn *a, int64_t task) {
    int64_t pixels = a->height * a->width, size = pixels_of_tile(a);
    int64_t tiles = (pixels + size - 1) / size, first = task % tiles * size;
    int64_t count = least(size, pixels - first), channels = a->outer * a->inner;
    struct tile t = {.blocks = a->outer, .memory_block = pixels * a->inner};
    t.memory = (task / tiles * a->outer * pixels + first) * a->inner;
    if (a->inner == 1) {
        t.runs = 1;
        t.length = count;
        t.step = t.scratch_block = (count + VECTOR - 1) / VECTOR * VECTOR;
        t.elements = (2 * a->half + channels) * t.step;
    } else {
        t.runs = count;
        t.length = t.memory_run = t.scratch_block = a->inner;
        t.step = 1;
        t.scratch_run = channels + a->half;
        t.elements = a->half + count * t.scratch_run;
    }
    t.scratch = a->half * t.step;
    t.elements += VECTOR; /* the last vector may reach beyond */
    return t;
}

/* For each vector of a tile: m and s are its places in memory and in scratch memory, where vectors
 * are stored as a whole: what is beyond a run is 0, or written later. The run has `left` elements
 * left. */
#define FOR_EACH_VECTOR(t, m, s, left)                                                            \
    for (int64_t run = 0; run < (t).runs; run++)                                                  \
        for (int64_t block = 0; block < (t).blocks; block++)                                      \
            for (int64_t m = (t).memory + run * (t).memory_run + block * (t).memory_block,        \
                         s = (t).scratch + run * (t).scratch_run + block * (t).scratch_block,     \
                         left = (t).length;                                                       \
                 left > 0; m += VECTOR, s += VECTOR, left -= VECTOR)

INLINE vec sum_around(const float *middle, int64_t half, int64_t step) {
    vec sum = load(middle);
    if (half == 2) /* as most nets have it */
        return sum + (load(middle - 2 * step) + load(middle - step)) +
               (load(middle + step) + load(middle + 2 * step));
    for (int64_t by = step; by <= half * step; by += step)
        sum += load(middle - by) + load(middle + by);
    return sum;
}

static void across(int64_t task, const void *args) {
    const struct lrn a = *(const struct lrn *)args;
    const struct tile t = tile_of(&a, task);
    int64_t bytes = t.elements * (int64_t)sizeof(float);
    float *squares = allocate(a.dy ? 3 * bytes : bytes);
    memset(squares, 0, (size_t)bytes);
    FOR_EACH_VECTOR(t, m, s, left) {
        vec x = load_some(a.x + m, left);
        store(squares + s, x * x);
    }
    if (!a.dy) {
        FOR_EACH_VECTOR(t, m, s, left) {
            vec sum = a.k + a.alpha * sum_around(squares + s, a.half, t.step);
            store_some(a.out + m, load_some(a.x + m, left) * powers_of(&a, sum).power, left);
        }
    } else {
        float *slopes = squares + t.elements, *ratios = slopes + t.elements;
        memset(ratios, 0, (size_t)bytes);
        FOR_EACH_VECTOR(t, m, s, left) {
            vec sum = a.k + a.alpha * sum_around(squares + s, a.half, t.step);
            struct powers p = powers_of(&a, sum);
            vec slope = load_some(a.dy + m, left) * p.power;
            store(slopes + s, slope);
            store(ratios + s, slope * load_some(a.x + m, left) * p.inverse);
        }
        const float cross = -2 * a.alpha * a.beta;
        FOR_EACH_VECTOR(t, m, s, left) {
            vec around = cross * sum_around(ratios + s, a.half, t.step);
            vec slope = load(slopes + s) + load_some(a.x + m, left) * around;
            store_some(a.out + m, slope, left);
        }
    }
    release(squares);
}

/* Around pixels -------------------------------------------------------------------------------- */

static void add(float *restrict total, const float *restrict part, int64_t count) {
    for (int64_t i = 0; i < count; i++) total[i] += part[i];
}

/* out = values summed over squares of side 2 half + 1; (height, length), pixels `inner` apart. */
static void sum_squares(
    const float *values, float *rows, float *out, int64_t height, int64_t length, int64_t half,
    int64_t inner
) {
    memcpy(rows, values, (size_t)(height * length) * sizeof(float));
    for (int64_t y = 0; y < height; y++) {
        float *row = rows + y * length;
        const float *source = values + y * length;
        for (int64_t by = inner; by <= least(half * inner, length - inner); by += inner) {
            add(row + by, source, length - by);
            add(row, source + by, length - by);
        }
    }
    memcpy(out, rows, (size_t)(height * length) * sizeof(float));
    for (int64_t y = 0; y < height; y++)
        for (int64_t by = 1; by <= half; by++) {
            if (y >= by) add(out + y * length, rows + (y - by) * length, length);
            if (y + by < height) add(out + y * length, rows + (y + by) * length, length);
        }
}

static void within(int64_t plane, const void *args) {
    const struct lrn a = *(const struct lrn *)args;
    int64_t length = a.width * a.inner, count = a.height * length, start = plane * count;
    int64_t size = (count + VECTOR - 1) / VECTOR * VECTOR;
    float *values = allocate(4 * size * (int64_t)sizeof(float));
    float *rows = values + size, *sums = rows + size, *slopes = sums + size;
    for (int64_t i = 0; i < count; i += VECTOR) {
        vec x = load_some(a.x + start + i, count - i);
        store(values + i, x * x);
    }
    sum_squares(values, rows, sums, a.height, length, a.half, a.inner);
    for (int64_t i = 0; i < count; i += VECTOR) {
        struct powers p = powers_of(&a, a.k + a.alpha * load_some(sums + i, count - i));
        vec x = load_some(a.x + start + i, count - i);
        if (a.dy) {
            vec slope = load_some(a.dy + start + i, count - i) * p.power;
            store(slopes + i, slope);
            store(values + i, slope * x * p.inverse);
        } else {
            store_some(a.out + start + i, x * p.power, count - i);
        }
    }
    if (a.dy) {
        const float cross = -2 * a.alpha * a.beta;
        sum_squares(values, rows, sums, a.height, length, a.half, a.inner);
        for (int64_t i = 0; i < count; i += VECTOR) {
            vec around = cross * load_some(a.x + start + i, count - i) * load(sums + i);
            store_some(a.out + start + i, load(slopes + i) + around, count - i);
        }
    }
    release(values);
}

KERNEL(lrn) {
    int64_t pixels = a->height * a->width;
    if (a->across) {
        int64_t size = pixels_of_tile(a);
        run_tasks(a->samples * ((pixels + size - 1) / size), across, a, a->threads);
    } else {
        run_tasks(a->samples * a->outer, within, a, a->threads);
    }
}
