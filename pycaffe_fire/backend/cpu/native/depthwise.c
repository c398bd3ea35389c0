/* A depthwise convolution between two batch normalisations, each with a ReLU:
 *
 *     v = relu(normal x)      z = v * w (3x3, padding 1)      y = relu(normal z)
 *
 * x and y are read and written once where the caches hold the blocks of channels that threads take
 * at a time. v is never stored: it is computed again, a few rows at a time. The formulas of the norms
 * are in norm.h; norm 0 is that of x, norm 1 that of z.
 */
#include "norm.h"

enum { SIDE = 3, TAPS = SIDE * SIDE };

/* The first fields of both kernels. Pieces are samples. */
struct window {
    struct norms norms;
    const float *x, *w; /* w is (blocks, taps, block) */
    int64_t samples, height, width;
    int64_t stride; /* 1 or 2 */
};

INLINE int64_t rows_of(const struct window *a) { return (a->height - 1) / a->stride + 1; }
INLINE int64_t columns_of(const struct window *a) { return (a->width - 1) / a->stride + 1; }
INLINE struct cut x_cut(const struct window *a) {
    int64_t pixels = a->height * a->width;
    return (struct cut){pixels, a->samples * pixels};
}
INLINE struct cut z_cut(const struct window *a) {
    int64_t pixels = rows_of(a) * columns_of(a);
    return (struct cut){pixels, a->samples * pixels};
}

/* Rows of vectors that a window goes down along: the last three rows of an image, each between two
 * pixels of padding, and a row of zeros for those above and below the image. */
struct lines {
    float *memory;
    int64_t size; /* elements of a line */
};

INLINE struct lines new_lines(int64_t columns) {
    int64_t size = (columns + 2) * VECTOR;
    struct lines l = {allocate(4 * size * (int64_t)sizeof(float)), size};
    memset(l.memory, 0, (size_t)(4 * size) * sizeof(float));
    return l;
}

/* Where a row begins, with its padding. */
INLINE float *line_of(struct lines l, int64_t row, int64_t rows) {
    return l.memory + (row < 0 || row >= rows ? 3 : row % 3) * l.size;
}

INLINE void load_taps(vec *taps, const float *w, int64_t step, int lanes) {
    for (int k = 0; k < TAPS; k++) taps[k] = load_some(w + k * step, lanes);
}

/* Forward ---------------------------------------------------------------------------------------- */

struct window_forward {
    struct window window;
    float *z, *y;
};

static void x_moments(const void *kernel, struct part p) {
    const struct window *a = kernel;
    WITH_LANES(a->norms.block, moments, &a->norms, a->x, p);
}

/* A row of z. The sums of each row of the window are apart: a chain of nine would wait longer. */
INLINE void convolve_row(
    const float *const line[SIDE], const vec *taps, int64_t stride, float *z, int64_t columns,
    int64_t step, int lanes
) {
    for (int64_t k = 0; k < columns; k++) {
        vec sum[SIDE];
        for (int i = 0; i < SIDE; i++) {
            const vec *v = (const vec *)(line[i] + k * stride * VECTOR), *tap = taps + i * SIDE;
            sum[i] = v[0] * tap[0] + v[1] * tap[1] + v[2] * tap[2];
        }
        store_some(z + k * step, sum[0] + sum[1] + sum[2], lanes);
    }
}

/* z = v * w, and its moments. If blocks have at most AHEAD elements, the next block of x comes into
 * the caches meanwhile. */
enum { AHEAD = 1 << 20 };

INLINE void convolve(const struct window_forward *a, struct part p, int lanes) {
    const struct window *w = &a->window;
    const struct norms *norms = &w->norms;
    struct part from = part_of(norms, 0, x_cut(w), p.piece, p.block);
    int64_t step = norms->block, rows = rows_of(w), columns = columns_of(w);
    struct lines l = new_lines(w->width);
    int64_t ahead = w->samples * from.pixels * step <= AHEAD ? from.pixels * step : 0;
    for (int64_t c = 0; c < step; c += lanes) {
        struct channels s = channels_at(norms, 0, from.channel + c, lanes);
        vec taps[TAPS];
        load_taps(taps, w->w + from.channel * TAPS + c, step, lanes);
        for (int64_t r = 0, ready = 0; r < rows; r++) {
            int64_t centre = r * w->stride;
            for (; ready < least(centre + 2, w->height); ready++) {
                const float *x = w->x + from.start + ready * w->width * step + c;
                float *v = line_of(l, ready, w->height) + VECTOR;
                for (int64_t k = 0; k < w->width; k++) {
                    __builtin_prefetch(x + k * step + ahead);
                    vec value = rectified(normal(load_some(x + k * step, lanes), s), s.slope);
                    *(vec *)(v + k * VECTOR) = value;
                }
            }
            const float *const line[SIDE] = {
                line_of(l, centre - 1, w->height), line_of(l, centre, w->height),
                line_of(l, centre + 1, w->height)};
            float *z = a->z + p.start + r * columns * step + c;
            convolve_row(line, taps, w->stride, z, columns, step, lanes);
        }
    }
    release(l.memory);
    if (norms->own[1]) moments(norms, a->z, p, lanes);
}

static void z_values(const void *kernel, struct part p) {
    const struct window_forward *a = kernel;
    WITH_LANES(a->window.norms.block, convolve, a, p);
}

static void y_values(const void *kernel, struct part p) {
    const struct window_forward *a = kernel;
    const struct norms *norms = &a->window.norms;
    WITH_LANES(norms->block, normalise, norms, 1, a->z, NULL, a->y, p, false);
}

KERNEL(window_forward) {
    const struct window *w = &a->window;
    const struct phase phases[] = {
        {w->norms.own[0] ? x_moments : NULL, find_statistics, 0, x_cut(w)},
        {z_values, find_statistics, 1, z_cut(w)},
        {y_values, NULL, 1, z_cut(w)},
    };
    run_phases(&w->norms, phases, 3);
}

/* Backward --------------------------------------------------------------------------------------- */

/* dx and dw from dy. If `keep`, dz is written over dy. */
struct window_backward {
    struct window window;
    const float *z;
    float *dy, *dx, *dw;
    float *partial_dw; /* (samples, blocks, taps, block) */
    int64_t keep;
};

static void z_gradient_sums(const void *kernel, struct part p) {
    const struct window_backward *a = kernel;
    const struct norms *norms = &a->window.norms;
    WITH_LANES(norms->block, gradient_sums, norms, 1, a->z, a->dy, p);
}

/* The sums that a row of gradients is added to. */
struct sums {
    vec sum, product, dw[TAPS];
};

/* Keep a vector that is used twice in a register. Otherwise gcc reads memory twice. */
#if defined(__SSE__)
#define in_register(v) __asm__("" : "+v"(v))
#else
#define in_register(v) (void)(v)
#endif

/* Add to a sum that has so many terms. A sum that began with 0 would need a register for the 0. */
INLINE void add(vec *sum, vec term, int *terms) {
    if ((*terms)++)
        *sum += term;
    else
        *sum = term;
}

/* Gradients of a row of x, from three rows of dz. The row of x is `below` rows below that at the
 * centres of the windows of line 1. The gradient of a tap is summed where its pixel is, not where its
 * window is: both need the same lines. */
INLINE void row_gradients(
    const float *const line[SIDE], const vec *taps, int stride, int below, const float *x,
    float *dx, int64_t columns, int64_t step, struct channels s, struct sums *total, int lanes
) {
    struct sums t = *total;
    for (int64_t k = 0; k * stride < columns; k++)
        for (int right = 0; right < stride && k * stride + right < columns; right++) {
            int64_t place = (k * stride + right) * step;
            vec off = load_some(x + place, lanes) - s.mean, v = off * s.factor + s.shift;
            vec slope = rise(v, s.slope), g = {0};
            int sums = 0;
            v = v * slope + 0; /* never -0 */
            for (int i = 0; i < SIDE; i++) {
                int row = below + 1 + (1 - i) * stride; /* of the window of line i */
                if (row < 0 || row >= SIDE) continue;
                vec sum = {0};
                int terms = 0;
                for (int j = 0; j < SIDE; j++) {
                    int column = right + 1 + (1 - j) * stride, tap = row * SIDE + column;
                    if (column < 0 || column >= SIDE) continue;
                    vec dz = *(const vec *)(line[i] + (k + j) * VECTOR);
                    in_register(dz);
                    t.dw[tap] += v * dz;
                    add(&sum, dz * taps[tap], &terms);
                }
                add(&g, sum, &sums);
            }
            g *= slope;
            store_some(dx + place, g, lanes);
            t.sum += g;
            t.product += g * off;
        }
    *total = t;
}

/* The gradient of normal x, through its ReLU, into dx; its partial sums, and those of taps. */
INLINE void gradients(const struct window_backward *a, struct part p, int stride, int lanes) {
    const struct window *w = &a->window;
    const struct norms *norms = &w->norms;
    struct part inner = part_of(norms, 1, z_cut(w), p.piece, p.block);
    int64_t step = norms->block, rows = rows_of(w), columns = columns_of(w);
    struct lines l = new_lines(columns);
    for (int64_t c = 0; c < step; c += lanes) {
        struct channels s0 = channels_at(norms, 0, p.channel + c, lanes);
        struct channels s1 = channels_at(norms, 1, inner.channel + c, lanes);
        struct sums total = {{0}, {0}, {{0}}};
        vec taps[TAPS];
        load_taps(taps, w->w + p.channel * TAPS + c, step, lanes);
        for (int64_t r = 0, ready = 0; r < rows; r++) {
            for (; ready < least(r + 2, rows); ready++) {
                const float *z = a->z + inner.start + ready * columns * step + c;
                float *dy = a->dy + inner.start + ready * columns * step + c;
                float *dz = line_of(l, ready, rows) + VECTOR;
                for (int64_t k = 0; k < columns; k++) {
                    vec v = load_some(z + k * step, lanes), g = load_some(dy + k * step, lanes);
                    g = before_norm(v, g * rise(normal(v, s1), s1.slope), s1);
                    *(vec *)(dz + k * VECTOR) = g;
                    if (a->keep) store_some(dy + k * step, g, lanes);
                }
            }
            const float *const line[SIDE] = {
                line_of(l, r - 1, rows), line_of(l, r, rows), line_of(l, r + 1, rows)};
            /* One loop goes through all rows of x: two would hide from the processor that they read
             * one stream. */
            for (int below = 0; below < stride && r * stride + below < w->height; below++) {
                int64_t start = p.start + (r * stride + below) * w->width * step + c;
                row_gradients(
                    line, taps, stride, below, w->x + start, a->dx + start, w->width, step, s0,
                    &total, lanes);
            }
        }
        store_some(norms->partial_sum + p.partial + c, total.sum, lanes);
        store_some(norms->partial_product + p.partial + c, total.product, lanes);
        for (int k = 0; k < TAPS; k++)
            store_some(a->partial_dw + p.partial * TAPS + k * step + c, total.dw[k], lanes);
    }
    release(l.memory);
}

static void x_gradients(const void *kernel, struct part p) {
    const struct window_backward *a = kernel;
    if (a->window.stride == 1)
        WITH_LANES(a->window.norms.block, gradients, a, p, 1);
    else
        WITH_LANES(a->window.norms.block, gradients, a, p, 2);
}

static void x_values(const void *kernel, struct part p) {
    const struct window_backward *a = kernel;
    const struct norms *norms = &a->window.norms;
    WITH_LANES(norms->block, input_gradient, norms, 0, a->window.x, a->dx, a->dx, p, false);
}

/* What is known after the gradients of a block: dw is the sum over samples. */
static void x_gradient_terms(const struct norms *norms, int64_t norm, struct cut t, int64_t block) {
    const struct window_backward *a = (const void *)norms;
    int64_t size = norms->block * TAPS, apart = norms->blocks * size;
    find_gradient_terms(norms, norm, t, block);
    for (int64_t i = block * size; i < (block + 1) * size; i += 8) {
        double total[8] = {0};
        for (int64_t n = 0; n < a->window.samples; n++)
            for (int k = 0; k < 8; k++) total[k] += a->partial_dw[n * apart + i + k];
        for (int k = 0; k < 8; k++) a->dw[i + k] = (float)total[k];
    }
}

KERNEL(window_backward) {
    const struct window *w = &a->window;
    const struct phase phases[] = {
        {z_gradient_sums, find_gradient_terms, 1, z_cut(w)},
        {x_gradients, x_gradient_terms, 0, x_cut(w)},
        {x_values, NULL, 0, x_cut(w)},
    };
    run_phases(&w->norms, phases, 3);
}
