/* PReLU, and a factor and an offset per channel.
 *
 * Tables of channels have outer * inner elements. A task is a block of channels of one sample, that
 * is pixels * inner elements. Its channels' numbers are repeated to a pattern of some vectors, so
 * that one loop serves all layouts. Sums over the pixels of a task are kept, and the caller adds
 * them in order.
 */
#include "grid.h"

enum { PATTERN = 256, NARROW = 64 }; /* elements of a pattern, or so; wider blocks need none */

struct block {
    int64_t start, stop;     /* its elements */
    int64_t channel, inner;  /* its first channel, and how many it has */
    int64_t piece;           /* elements that are worked on with one pattern: whole pixels */
};

INLINE struct block block_of(struct grid g, int64_t task) {
    int64_t run = g.pixels * g.inner, pixels = VECTOR; /* that fill whole vectors */
    struct block b = {task * run, task * run + run, task % g.outer * g.inner, g.inner, g.inner};
    if (g.inner > NARROW) return b;
    for (int64_t inner = g.inner; pixels > 1 && inner % 2 == 0; inner /= 2) pixels /= 2;
    int64_t patterns = PATTERN / (pixels * g.inner) + 1;
    if (pixels <= g.pixels) b.piece = least(patterns, g.pixels / pixels) * pixels * g.inner;
    return b;
}

typedef float pattern_memory[PATTERN + VECTOR * NARROW];

/* A block's part of a table over and over, for a piece. */
INLINE const float *pattern_of(const float *table, struct block b, float *memory) {
    if (b.piece == b.inner) return table + b.channel;
    memcpy(memory, table + b.channel, (size_t)b.inner * sizeof(float));
    for (int64_t filled = b.inner; filled < b.piece; filled *= 2)
        memcpy(memory + filled, memory, (size_t)least(filled, b.piece - filled) * sizeof(float));
    return memory;
}

/* Zeros to which all pieces are added: the sums themselves if a piece is one pixel. */
INLINE float *begin_sums(float *sums, struct block b, float *memory) {
    return memset(b.piece == b.inner ? sums : memory, 0, (size_t)b.piece * sizeof(float));
}

static void add(float *restrict total, const float *restrict part, int64_t count) {
    for (int64_t i = 0; i < count; i++) total[i] += part[i];
}

/* sums[c] = what the pieces have for channel c: halves are added to halves, then pixel to pixel. */
INLINE void end_sums(float *pieces, struct block b, float *sums) {
    int64_t size = b.piece;
    for (; size % (2 * b.inner) == 0; size /= 2) add(pieces, pieces + size / 2, size / 2);
    for (int64_t i = b.inner; i < size; i += b.inner) add(pieces, pieces + i, b.inner);
    if (pieces != sums) memcpy(sums, pieces, (size_t)b.inner * sizeof(float));
}

INLINE void add_some(float *total, vec part, int64_t count) {
    store_some(total, load_some(total, count) + part, count);
}

/* For each vector of a block: its place i in memory and j in the pattern, and how many elements the
 * piece has left. */
#define FOR_EACH_VECTOR(b, i, j, left)                                                        \
    for (int64_t first = (b).start; first < (b).stop; first += (b).piece)                     \
        for (int64_t i = first, j = 0, left = least((b).piece, (b).stop - first); left > 0;   \
             i += VECTOR, j += VECTOR, left -= VECTOR)

/* y = x where x > 0, else slope x */
struct prelu {
    struct grid g;
    const float *x, *slopes;
    float *y;    /* may be x */
    float *kept; /* NULL, or a copy of x */
};

static void prelu_block(int64_t task, const void *args) {
    const struct prelu a = *(const struct prelu *)args;
    const struct block b = block_of(a.g, task);
    pattern_memory memory;
    const float *slopes = pattern_of(a.slopes, b, memory);
    FOR_EACH_VECTOR(b, i, j, left) {
        vec x = load_some(a.x + i, left), slope = load_some(slopes + j, left);
        if (a.kept) store_some(a.kept + i, x, left);
        store_some(a.y + i, where(x > 0, x, slope * x), left);
    }
}

KERNEL(prelu) { run_tasks(a->g.samples * a->g.outer, prelu_block, a, a->g.threads); }

/* dx = slope dy where x <= 0, else dy;  sums[task] = the sum of x dy where x <= 0 */
struct prelu_backward {
    struct grid g;
    const float *x, *slopes, *dy;
    float *dx;   /* NULL, or may be dy */
    float *sums; /* (samples, outer, inner) */
};

static void prelu_block_backward(int64_t task, const void *args) {
    const struct prelu_backward a = *(const struct prelu_backward *)args;
    const struct block b = block_of(a.g, task);
    pattern_memory memory, lanes;
    const float *slopes = pattern_of(a.slopes, b, memory);
    float *sums = a.sums + task * b.inner, *pieces = begin_sums(sums, b, lanes);
    FOR_EACH_VECTOR(b, i, j, left) {
        vec x = load_some(a.x + i, left), dy = load_some(a.dy + i, left), zero = {0};
        if (a.dx) store_some(a.dx + i, where(x <= 0, load_some(slopes + j, left) * dy, dy), left);
        add_some(pieces + j, where(x <= 0, x * dy, zero), left);
    }
    end_sums(pieces, b, sums);
}

KERNEL(prelu_backward) {
    run_tasks(a->g.samples * a->g.outer, prelu_block_backward, a, a->g.threads);
}

/* y = x factor + offset */
struct scale_shift {
    struct grid g;
    const float *x, *factors, *offsets;
    float *y;    /* may be x */
    float *kept; /* NULL, or a copy of x */
};

static void scale_shift_block(int64_t task, const void *args) {
    const struct scale_shift a = *(const struct scale_shift *)args;
    const struct block b = block_of(a.g, task);
    pattern_memory memory, more_memory;
    const float *factors = pattern_of(a.factors, b, memory);
    const float *offsets = pattern_of(a.offsets, b, more_memory);
    FOR_EACH_VECTOR(b, i, j, left) {
        vec x = load_some(a.x + i, left);
        if (a.kept) store_some(a.kept + i, x, left);
        store_some(a.y + i, x * load_some(factors + j, left) + load_some(offsets + j, left), left);
    }
}

KERNEL(scale_shift) { run_tasks(a->g.samples * a->g.outer, scale_shift_block, a, a->g.threads); }

/* dx = dy factor;  products[task] = the sum of x dy;  totals[task] = the sum of dy */
struct scale_shift_backward {
    struct grid g;
    const float *x; /* read for products alone */
    const float *factors, *dy;
    float *dx;                /* NULL, or may be dy */
    float *products, *totals; /* NULL, or (samples, outer, inner) */
};

static void scale_shift_block_backward(int64_t task, const void *args) {
    const struct scale_shift_backward a = *(const struct scale_shift_backward *)args;
    const struct block b = block_of(a.g, task);
    pattern_memory memory, lanes, more_lanes;
    const float *factors = pattern_of(a.factors, b, memory);
    float *products = NULL, *totals = NULL;
    if (a.products) products = begin_sums(a.products + task * b.inner, b, lanes);
    if (a.totals) totals = begin_sums(a.totals + task * b.inner, b, more_lanes);
    FOR_EACH_VECTOR(b, i, j, left) {
        vec dy = load_some(a.dy + i, left);
        if (products) add_some(products + j, load_some(a.x + i, left) * dy, left);
        if (totals) add_some(totals + j, dy, left);
        if (a.dx) store_some(a.dx + i, dy * load_some(factors + j, left), left);
    }
    if (products) end_sums(products, b, a.products + task * b.inner);
    if (totals) end_sums(totals, b, a.totals + task * b.inner);
}

KERNEL(scale_shift_backward) {
    run_tasks(a->g.samples * a->g.outer, scale_shift_block_backward, a, a->g.threads);
}
