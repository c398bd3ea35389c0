/* What the kernels of batch normalisation share. For each channel:
 *
 *     y  = relu(factor (x - mean) + shift)      factor = scale / sqrt(variance + eps)
 *     dx = back g + along (x - mean) + level    g = relu'(y) dy
 *
 * relu(v) is v where v > 0, else slope v; slope 1 means no ReLU. `back` is `factor` with the scale of
 * the backward pass, which a caller may have changed since the forward pass; relu' is taken at the y
 * of the forward pass. The statistics of the batch depend on x, too, which adds to dx:
 *
 *     level = -back mean(g)      along = -back mean(g (x - mean)) / (variance + eps)
 *
 * Both are 0 where statistics are given.
 *
 * Tensors are stored as N [C/block] S [block], where `block` is a multiple of 8; channels last, it is
 * the number of channels. A piece is a sample, or channels last also a run of pixels; only the last
 * piece may be shorter. Each piece has partial sums, which are added in the order of pieces, so bits
 * do not depend on the number of threads.
 */
#pragma once
#include "fire.h"

/* The first fields of every kernel. */
struct norms {
    int64_t threads;
    /* (norms, channels); channels of the padding have scale 0 */
    float *mean, *variance;      /* computed if `own`, else given */
    const float *scale, *shift;
    float *factor;               /* written by the forward pass */
    float *back, *along, *level; /* written by the backward pass, as the next two: */
    float *sum, *product;        /* sums of g and of g (x - mean) */
    /* (norms) */
    const float *eps, *slope;
    const int64_t *own;
    /* (pieces, channels); forward: a number near the mean, sums of x - near and of (x - near)^2;
     * backward: sums of g and of g (x - mean) */
    float *near, *partial_sum, *partial_product;
    int64_t blocks, block;
    int64_t together; /* blocks that all threads take at a time; 0: each thread takes its own */
};

/* The pixels of a tensor: of a piece, and of all pieces. */
struct cut {
    int64_t pixels, total;
};

INLINE int64_t pieces_of(struct cut t) { return (t.total + t.pixels - 1) / t.pixels; }
INLINE int64_t pixels_of(struct cut t, int64_t piece) {
    return least(t.pixels, t.total - piece * t.pixels);
}

/* A block of channels of a piece: its pixels, and where it begins in tensors, in arrays (norms,
 * channels) and in partial sums. */
struct part {
    int64_t piece, block, pixels, start, channel, partial;
};

INLINE struct part part_of(
    const struct norms *a, int64_t norm, struct cut t, int64_t piece, int64_t block
) {
    int64_t partial = (piece * a->blocks + block) * a->block;
    return (struct part){
        .piece = piece, .block = block, .pixels = pixels_of(t, piece),
        .start = partial * t.pixels, .channel = (norm * a->blocks + block) * a->block,
        .partial = partial};
}

/* Vectors of channels ---------------------------------------------------------------------------- */

/* Call a function whose last argument is a constant: the channels of a vector. That is VECTOR, or 8
 * where vectors have 16 and blocks do not. */
#define WITH_LANES(block, function, ...)          \
    do {                                          \
        if (VECTOR == 16 && (block) % 16 != 0)    \
            function(__VA_ARGS__, 8);             \
        else                                      \
            function(__VA_ARGS__, VECTOR);        \
    } while (0)

/* The fields of a vector of channels. */
struct channels {
    vec mean, factor, shift, back, along, level;
    float slope;
};

INLINE struct channels channels_at(const struct norms *a, int64_t norm, int64_t c, int lanes) {
    return (struct channels){
        load_some(a->mean + c, lanes), load_some(a->factor + c, lanes),
        load_some(a->shift + c, lanes), load_some(a->back + c, lanes),
        load_some(a->along + c, lanes), load_some(a->level + c, lanes), a->slope[norm]};
}

INLINE vec normal(vec x, struct channels s) { return (x - s.mean) * s.factor + s.shift; }

/* relu'(v). Its product with a gradient is faster than a choice between two gradients, which gcc
 * makes a masked load, and that waits for v. */
INLINE vec rise(vec v, float slope) { return where(v > 0, broadcast(1), broadcast(slope)); }

INLINE vec rectified(vec v, float slope) { return v * rise(v, slope) + 0; } /* never -0 */

INLINE vec before_norm(vec x, vec g, struct channels s) {
    return g * s.back + ((x - s.mean) * s.along + s.level);
}

/* What is known of channels ---------------------------------------------------------------------- */

enum { SAMPLED = 16 }; /* pixels whose mean is near that of all */

INLINE void add_moments(
    const float *x, int64_t pixels, int64_t step, vec near, vec *sum, vec *square, int lanes
) {
    vec s[4] = {{0}}, q[4] = {{0}};
    int64_t i = 0;
    for (; i + 4 <= pixels; i += 4)
        for (int k = 0; k < 4; k++) {
            vec off = load_some(x + (i + k) * step, lanes) - near;
            s[k] += off;
            q[k] += off * off;
        }
    for (; i < pixels; i++) {
        vec off = load_some(x + i * step, lanes) - near;
        s[0] += off;
        q[0] += off * off;
    }
    *sum = s[0] + s[1] + s[2] + s[3];
    *square = q[0] + q[1] + q[2] + q[3];
}

/* Partial sums of x. */
INLINE void moments(const struct norms *a, const float *x, struct part p, int lanes) {
    int64_t step = a->block, some = least(p.pixels, SAMPLED), middle = (p.pixels - some) / 2 * step;
    for (int64_t c = 0; c < step; c += lanes) {
        const float *from = x + p.start + c;
        vec near = load_some(from + middle, lanes), sum, square;
        add_moments(from + middle, some, step, near, &sum, &square, lanes);
        near += sum / (float)some;
        add_moments(from, p.pixels, step, near, &sum, &square, lanes);
        store_some(a->near + p.partial + c, near, lanes);
        store_some(a->partial_sum + p.partial + c, sum, lanes);
        store_some(a->partial_product + p.partial + c, square, lanes);
    }
}

INLINE float factor_of(float scale, double spread) {
    return scale != 0 ? (float)(scale / sqrt(spread)) : 0;
}

enum { FEW = 8 }; /* channels that are added up at a time */

/* Mean and variance of a few channels, from partial sums that begin at `from`. */
INLINE void add_up_moments(const struct norms *a, struct cut t, int64_t from, int64_t channel) {
    int64_t pieces = pieces_of(t), apart = a->blocks * a->block;
    const float *near = a->near + from, *sum = a->partial_sum + from;
    const float *square = a->partial_product + from;
    double mean[FEW] = {0}, spread[FEW] = {0};
    for (int64_t n = 0; n < pieces; n++)
        for (int k = 0; k < FEW; k++)
            mean[k] += (double)near[n * apart + k] * (double)pixels_of(t, n) + sum[n * apart + k];
    for (int k = 0; k < FEW; k++) mean[k] /= (double)t.total;
    for (int64_t n = 0; n < pieces; n++) {
        double pixels = (double)pixels_of(t, n);
        for (int k = 0; k < FEW; k++) {
            double shift = sum[n * apart + k] / pixels, off = near[n * apart + k] + shift - mean[k];
            double inside = square[n * apart + k] - pixels * shift * shift;
            spread[k] += (inside < 0 ? 0 : inside) + pixels * off * off;
        }
    }
    for (int k = 0; k < FEW; k++) {
        a->mean[channel + k] = (float)mean[k];
        a->variance[channel + k] = (float)(spread[k] / (double)t.total);
    }
}

/* Mean, variance and factor of a block of channels. */
static void find_statistics(const struct norms *a, int64_t norm, struct cut t, int64_t block) {
    int64_t from = block * a->block, channel = (norm * a->blocks + block) * a->block;
    if (a->own[norm])
        for (int64_t c = 0; c < a->block; c += FEW) add_up_moments(a, t, from + c, channel + c);
    for (int64_t c = channel; c < channel + a->block; c++)
        a->factor[c] = factor_of(a->scale[c], (double)a->variance[c] + a->eps[norm]);
}

/* Sums of gradients of a block of channels, and the terms of their dx. */
static void find_gradient_terms(const struct norms *a, int64_t norm, struct cut t, int64_t block) {
    int64_t pieces = pieces_of(t), apart = a->blocks * a->block;
    double total = (double)t.total;
    for (int64_t from = block * a->block; from < (block + 1) * a->block; from += FEW) {
        double sum[FEW] = {0}, product[FEW] = {0};
        for (int64_t n = 0; n < pieces; n++)
            for (int k = 0; k < FEW; k++) {
                sum[k] += a->partial_sum[n * apart + from + k];
                product[k] += a->partial_product[n * apart + from + k];
            }
        for (int k = 0; k < FEW; k++) {
            int64_t c = norm * apart + from + k;
            double spread = (double)a->variance[c] + a->eps[norm];
            float back = factor_of(a->scale[c], spread);
            bool depends = a->own[norm] && back != 0;
            a->sum[c] = (float)sum[k];
            a->product[c] = (float)product[k];
            a->back[c] = back;
            a->level[c] = depends ? (float)(-back * sum[k] / total) : 0;
            a->along[c] = depends ? (float)(-back * product[k] / total / spread) : 0;
        }
    }
}

/* What is done with pixels ----------------------------------------------------------------------- */

/* y = relu(normal x + addend), which may be NULL; past the caches if `past`. */
INLINE void normalise_lanes(
    const float *x, const float *addend, float *y, int64_t pixels, int64_t step, struct channels s,
    bool past, int lanes
) {
    for (int64_t i = 0; i < pixels * step; i += step) {
        vec v = normal(load_some(x + i, lanes), s);
        if (addend) v += load_some(addend + i, lanes);
        v = rectified(v, s.slope);
        if (past)
            stream(y + i, v);
        else
            store_some(y + i, v, lanes);
    }
}

INLINE void normalise(
    const struct norms *a, int64_t norm, const float *x, const float *addend, float *y,
    struct part p, bool past, int lanes
) {
    int64_t step = a->block;
    for (int64_t c = 0; c < step; c += lanes) {
        struct channels s = channels_at(a, norm, p.channel + c, lanes);
        int64_t i = p.start + c;
        if (addend)
            normalise_lanes(x + i, addend + i, y + i, p.pixels, step, s, past, lanes);
        else
            normalise_lanes(x + i, NULL, y + i, p.pixels, step, s, past, lanes);
    }
}

/* Partial sums of g = relu'(normal x) dy and of g (x - mean). */
INLINE void gradient_sums(
    const struct norms *a, int64_t norm, const float *x, const float *dy, struct part p, int lanes
) {
    int64_t step = a->block, stop = p.pixels * step;
    for (int64_t c = 0; c < step; c += lanes) {
        struct channels s = channels_at(a, norm, p.channel + c, lanes);
        const float *from = x + p.start + c, *given = dy + p.start + c;
        vec sum[2] = {{0}}, product[2] = {{0}};
        for (int64_t i = 0; i < stop; i += 2 * step)
            for (int k = 0; k < 2 && i + k * step < stop; k++) {
                vec v = load_some(from + i + k * step, lanes);
                vec g = load_some(given + i + k * step, lanes) * rise(normal(v, s), s.slope);
                sum[k] += g;
                product[k] += g * (v - s.mean);
            }
        store_some(a->partial_sum + p.partial + c, sum[0] + sum[1], lanes);
        store_some(a->partial_product + p.partial + c, product[0] + product[1], lanes);
    }
}

/* dx from dy, or from g unless `relu`. dx may be dy or g. */
INLINE void input_gradient(
    const struct norms *a, int64_t norm, const float *x, const float *dy, float *dx, struct part p,
    bool relu, int lanes
) {
    int64_t step = a->block, stop = p.start + p.pixels * step;
    for (int64_t c = 0; c < step; c += lanes) {
        struct channels s = channels_at(a, norm, p.channel + c, lanes);
        for (int64_t i = p.start + c; i < stop; i += step) {
            vec v = load_some(x + i, lanes), g = load_some(dy + i, lanes);
            if (relu) g *= rise(normal(v, s), s.slope);
            store_some(dx + i, before_norm(v, g, s), lanes);
        }
    }
}

/* Phases ----------------------------------------------------------------------------------------- */

/* A step of a kernel: what is done with every piece of a block of channels, and then with the block.
 * Statistics of channels come before their values, so phases follow each other on a few blocks at a
 * time, which stay in the caches. Both functions may be NULL. */
struct phase {
    void (*piece)(const void *kernel, struct part p);
    void (*block)(const struct norms *a, int64_t norm, struct cut t, int64_t block);
    int64_t norm; /* the norm and the tensor that `part` is of */
    struct cut cut;
};

/* Some phases of `width` blocks from `first` on. */
struct phases {
    const struct norms *kernel; /* its first field */
    const struct phase *phases;
    int64_t count, first, width;
};

/* Task: all phases of a block. */
static void run_block(int64_t block, const void *args) {
    const struct phases *j = args;
    for (const struct phase *p = j->phases; p < j->phases + j->count; p++) {
        int64_t pieces = p->piece ? pieces_of(p->cut) : 0;
        for (int64_t piece = 0; piece < pieces; piece++)
            p->piece(j->kernel, part_of(j->kernel, p->norm, p->cut, piece, block));
        if (p->block) p->block(j->kernel, p->norm, p->cut, block);
    }
}

/* Task: one phase of a piece of a block. */
static void run_piece(int64_t task, const void *args) {
    const struct phases *j = args;
    const struct phase *p = j->phases;
    int64_t piece = task / j->width, block = j->first + task % j->width;
    p->piece(j->kernel, part_of(j->kernel, p->norm, p->cut, piece, block));
}

static void run_phases(const struct norms *a, const struct phase *phases, int64_t count) {
    if (a->together == 0) {
        struct phases j = {a, phases, count, 0, 1};
        run_tasks(a->blocks, run_block, &j, a->threads);
        return;
    }
    for (int64_t first = 0; first < a->blocks; first += a->together) {
        int64_t stop = least(first + a->together, a->blocks);
        for (const struct phase *p = phases; p < phases + count; p++) {
            struct phases j = {a, p, 1, first, stop - first};
            int64_t tasks = p->piece ? pieces_of(p->cut) * (stop - first) : 0;
            run_tasks(tasks, run_piece, &j, a->threads);
            for (int64_t block = first; p->block && block < stop; block++)
                p->block(a, p->norm, p->cut, block);
        }
    }
}
