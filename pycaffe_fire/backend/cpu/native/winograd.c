/* Winograd's convolution: windows of 3x3 or 5x5, stride 1.
 *
 *     Y = A^T [(G w G^T) * (B^T x B)] A
 *
 * Y is a tile of 4x4 results (2x2 for 5x5 windows), x the patch of 6x6 pixels that it depends on, w
 * the window, and * multiplies element by element. Summed over the input channels, these products
 * are 36 products of matrices, with a quarter of the multiplications of the direct method (a third
 * for 5x5):
 *
 *     V = B^T x B,    U = G w G^T,    M = V U,    Y = A^T M A
 *
 * V is (36, tiles, inputs), U (36, inputs, outputs), M (36, tiles, outputs). The caller computes
 * M = V U; the kernels here do the rest. Gradients go the other way, with transposed matrices:
 *
 *     dM = A dY A^T,    dV = dM U^T,    dU = V^T dM,    dx = B dV B^T,    dw = G^T dU G
 */
#include "fire.h"

enum { PATCH = 6, PRODUCTS = PATCH * PATCH };

/* Transforms of one line -------------------------------------------------------------------------
 *
 * Polynomials are multiplied through their values at six points (Toom and Cook): 0, +-P, +-Q and
 * infinity. Of the simple fractions these lose the fewest digits, half as many as 1 and 2 would,
 * and the entries of A and B are exact. Values at +x and -x share the even and the odd part of the
 * polynomial. */
#define P 0.625
#define Q 1.5
#define P2 (P * P)
#define Q2 (Q * Q)

struct scales {
    double zero, p, q; /* of the values at 0, +-P, +-Q */
};
static const struct scales UNSCALED = {1, 1, 1};
/* 1 / the product of the point's differences from the other finite points */
static const struct scales BY_DIFFERENCES = {
    1 / (P2 * Q2), 1 / (2 * P2 * (P2 - Q2)), 1 / (2 * Q2 * (Q2 - P2))};

/* values = scale (polynomial at +point, polynomial at -point) */
INLINE void evaluate_pair(int n, double scale, double point, const vec *polynomial, vec *values) {
    const double square = scale * point * point;
    vec even = (float)scale * polynomial[0], odd = (float)(scale * point) * polynomial[1];
    if (n > 2) even += (float)square * polynomial[2];
    if (n > 3) odd += (float)(square * point) * polynomial[3];
    if (n > 4) even += (float)(square * point * point) * polynomial[4];
    values[0] = even + odd;
    values[1] = even - odd;
}

/* The values at the six points of a polynomial with n coefficients; its last one at infinity. */
INLINE void evaluate(int n, struct scales scale, const vec *polynomial, vec *values) {
    values[0] = (float)scale.zero * polynomial[0];
    evaluate_pair(n, scale.p, P, polynomial, values + 1);
    evaluate_pair(n, scale.q, Q, polynomial, values + 3);
    values[5] = polynomial[n - 1];
}

/* `evaluate` transposed: coefficient k is the sum of scale point^k value over the points. */
INLINE void combine(int n, struct scales scale, const vec *values, vec *coefficients) {
    const double p2 = scale.p * P2, q2 = scale.q * Q2;
    vec even_p = values[1] + values[2], odd_p = values[1] - values[2];
    vec even_q = values[3] + values[4], odd_q = values[3] - values[4];
    coefficients[0] = (float)scale.zero * values[0] + (float)scale.p * even_p +
                      (float)scale.q * even_q;
    coefficients[1] = (float)(scale.p * P) * odd_p + (float)(scale.q * Q) * odd_q;
    if (n > 2) coefficients[2] = (float)p2 * even_p + (float)q2 * even_q;
    if (n > 3) coefficients[3] = (float)(p2 * P) * odd_p + (float)(q2 * Q) * odd_q;
    if (n > 4) coefficients[4] = (float)(p2 * P2) * even_p + (float)(q2 * Q2) * even_q;
    coefficients[n - 1] += values[5];
}

/* v = B^T x. Row i of B^T has the coefficients of the polynomial that is 0 at all finite points but
 * the i-th, row 5 those of the one that is 0 at all of them. */
INLINE void patch_to_v(const vec *x, vec *v) {
    const float p = P, q = Q, p2 = P2, q2 = Q2, product = P2 * Q2, sum = P2 + Q2;
    vec even_p = x[4] - q2 * x[2], odd_p = x[3] - q2 * x[1];
    vec even_q = x[4] - p2 * x[2], odd_q = x[3] - p2 * x[1];
    v[0] = product * x[0] - sum * x[2] + x[4];
    v[1] = even_p + p * odd_p;
    v[2] = even_p - p * odd_p;
    v[3] = even_q + q * odd_q;
    v[4] = even_q - q * odd_q;
    v[5] = product * x[1] - sum * x[3] + x[5];
}

/* x = B v */
INLINE void v_to_patch(const vec *v, vec *x) {
    const float p = P, q = Q, p2 = P2, q2 = Q2, product = P2 * Q2, sum = P2 + Q2;
    vec even_p = v[1] + v[2], odd_p = p * (v[1] - v[2]);
    vec even_q = v[3] + v[4], odd_q = q * (v[3] - v[4]);
    x[0] = product * v[0];
    x[1] = product * v[5] - q2 * odd_p - p2 * odd_q;
    x[2] = -sum * v[0] - q2 * even_p - p2 * even_q;
    x[3] = odd_p + odd_q - sum * v[5];
    x[4] = v[0] + even_p + even_q;
    x[5] = v[5];
}

enum transform { PATCH_TO_V, V_TO_PATCH, M_TO_TILE, TILE_TO_M, WINDOW_TO_U, U_TO_WINDOW };

INLINE int size_before(enum transform which, int window) {
    return which == TILE_TO_M ? PATCH + 1 - window : which == WINDOW_TO_U ? window : PATCH;
}

INLINE int size_after(enum transform which, int window) {
    return which == M_TO_TILE ? PATCH + 1 - window : which == U_TO_WINDOW ? window : PATCH;
}

INLINE void transform_line(enum transform which, int window, const vec *in, vec *out) {
    const int tile = PATCH + 1 - window;
    switch (which) {
    case PATCH_TO_V: patch_to_v(in, out); break;
    case V_TO_PATCH: v_to_patch(in, out); break;
    case M_TO_TILE: combine(tile, UNSCALED, in, out); break;
    case TILE_TO_M: evaluate(tile, UNSCALED, in, out); break;
    case WINDOW_TO_U: evaluate(window, BY_DIFFERENCES, in, out); break;
    case U_TO_WINDOW: combine(window, BY_DIFFERENCES, in, out); break;
    }
}

/* Transforms of squares of vectors ---------------------------------------------------------------
 *
 * A vector holds VECTOR channels. The number of channels is a multiple of 8, so with AVX-512 the
 * last vector may be half a one: `lanes` says how many of its channels are in memory. */

/* A square in memory: the vector at `at + r * row + c * column` is its element (r, c). */
struct square {
    float *at;
    int64_t row, column;
};

/* What some transforms do besides, by channel. */
struct also {
    const float *bias; /* M_TO_TILE: is added to all results */
    float *sums;       /* TILE_TO_M: all elements of the source are added to them */
    bool past;         /* WINDOW_TO_U: results are written past the caches */
};

/* Column c of `half` = T (column c of the source); `sum` += that column, for TILE_TO_M. */
INLINE void transform_column(enum transform which, int window, struct square source, int c,
                             vec half[PATCH][PATCH], vec *sum, int lanes) {
    vec in[PATCH], out[PATCH];
    for (int r = 0; r < size_before(which, window); r++) {
        in[r] = load_some(source.at + r * source.row + c * source.column, lanes);
        if (which == TILE_TO_M) *sum += in[r];
    }
    transform_line(which, window, in, out);
    for (int r = 0; r < size_after(which, window); r++) half[r][c] = out[r];
}

/* target = T source T^T for one vector of channels: first down the columns, then along the rows.
 * The loops are hardly unrolled, because gcc then spills most vectors. Those over columns of U are:
 * its 36 loads are better different instructions, whose patterns of addresses processors find. */
INLINE void transform_lanes(enum transform which, int window, struct square source,
                            struct square target, struct also also, int lanes) {
    const int before = size_before(which, window), after = size_after(which, window);
    _Alignas(LINE) vec half[PATCH][PATCH];
    vec out[PATCH], bias = {0}, sum = {0};
    if (which == U_TO_WINDOW) {
        for (int c = 0; c < before; c++)
            transform_column(which, window, source, c, half, &sum, lanes);
    } else {
#pragma GCC unroll 2
        for (int c = 0; c < before; c++)
            transform_column(which, window, source, c, half, &sum, lanes);
    }
    if (which == TILE_TO_M) store_some(also.sums, load_some(also.sums, lanes) + sum, lanes);
    if (which == M_TO_TILE) bias = load_some(also.bias, lanes);
#pragma GCC unroll 1
    for (int r = 0; r < after; r++) {
        transform_line(which, window, half[r], out);
        for (int c = 0; c < after; c++) {
            float *p = target.at + r * target.row + c * target.column;
            if (which == M_TO_TILE) out[c] += bias;
            if (which == V_TO_PATCH || which == U_TO_WINDOW) out[c] += load_some(p, lanes);
            if (which == WINDOW_TO_U && also.past)
                stream(p, out[c]);
            else
                store_some(p, out[c], lanes);
        }
    }
}

/* target = T source T^T for so many channels; V_TO_PATCH and U_TO_WINDOW: target += that. */
INLINE void transform(enum transform which, int64_t window, struct square source,
                      struct square target, int64_t channels, struct also also) {
    while (channels >= VECTOR) {
        if (window == 3)
            transform_lanes(which, 3, source, target, also, VECTOR);
        else
            transform_lanes(which, 5, source, target, also, VECTOR);
        channels -= VECTOR;
        source.at += VECTOR;
        target.at += VECTOR;
        if (which == M_TO_TILE) also.bias += VECTOR;
        if (which == TILE_TO_M) also.sums += VECTOR;
    }
    if (VECTOR == NARROW_VECTOR || channels == 0) return;
    if (window == 3)
        transform_lanes(which, 3, source, target, also, NARROW_VECTOR);
    else
        transform_lanes(which, 5, source, target, also, NARROW_VECTOR);
}

/* Kernels on images ------------------------------------------------------------------------------
 *
 * A call takes some rows of tiles, and the blocks of channels that V or M has. Pixels go through a
 * narrow band with a border of zeros, so that no tile is an exception. */
struct tiles {
    int64_t threads;
    int64_t window;                                       /* 3 or 5 */
    int64_t images, channel_blocks, height, width, block; /* the shape of x, y, dx or dy */
    int64_t pad_y, pad_x;                                 /* of x, above and to the left */
    int64_t rows, columns;                                /* of tiles in an image */
    int64_t first_row, row_count;     /* of tiles in this call, counted through all images */
    int64_t first_block, block_count; /* of channels that V or M has */
    int64_t product_step, tile_step;  /* V and M: strides of their first two axes; the last is 1 */
};

/* A row of tiles in one block of channels. */
struct tile_row {
    int64_t tile;     /* side of a tile */
    int64_t top;      /* first row of pixels of the tiles */
    int64_t plane;    /* offset of the block in the array of images */
    int64_t matrices; /* offset of the first tile in V or M */
};

INLINE struct tile_row row_of(const struct tiles *t, int64_t call_row, int64_t block) {
    const int64_t tile = PATCH + 1 - t->window, row = t->first_row + call_row;
    const int64_t image_block = row / t->rows * t->channel_blocks + t->first_block + block;
    return (struct tile_row){
        .tile = tile,
        .top = tile * (row % t->rows),
        .plane = image_block * t->height * t->width * t->block,
        .matrices = call_row * t->columns * t->tile_step + block * t->block,
    };
}

/* The 36 elements of V or M that belong to a tile. */
INLINE struct square products(const struct tiles *t, const float *first) {
    return (struct square){(float *)first, PATCH * t->product_step, t->product_step};
}

INLINE void copy(float *target, const float *source, int64_t count) {
    memcpy(target, source, (size_t)count * sizeof *target);
}

INLINE void clear(float *target, int64_t count) {
    memset(target, 0, (size_t)count * sizeof *target);
}

/* band (rows, length) = rows of a plane from `top` on, shifted right by `left`; 0 outside of it */
INLINE void read_band(const struct tiles *t, const float *plane, int64_t top, int64_t left,
                      float *band, int64_t rows, int64_t length) {
    const int64_t width = t->width * t->block;
    for (int64_t y = top; y < top + rows; y++, band += length) {
        if (y < 0 || y >= t->height) {
            clear(band, length);
            continue;
        }
        clear(band, left);
        copy(band + left, plane + y * width, width);
        clear(band + left + width, length - left - width);
    }
}

/* V = B^T x B */
struct patches_to_v {
    struct tiles tiles;
    const float *x;
    float *v;
};

static void patch_row_to_v(int64_t task, const void *args) {
    const struct patches_to_v *a = args;
    const struct tiles *t = &a->tiles;
    const struct tile_row row = row_of(t, task / t->block_count, task % t->block_count);
    const int64_t b = t->block, length = (row.tile * (t->columns - 1) + PATCH) * b;
    float *band = allocate(PATCH * length * (int64_t)sizeof *band);
    read_band(t, a->x + row.plane, row.top - t->pad_y, t->pad_x * b, band, PATCH, length);
    for (int64_t j = 0; j < t->columns; j++) {
        struct square patch = {band + row.tile * j * b, length, b};
        struct square v = products(t, a->v + row.matrices + j * t->tile_step);
        transform(PATCH_TO_V, 3, patch, v, b, (struct also){0});
    }
    release(band);
}

KERNEL(patches_to_v) {
    const struct tiles *t = &a->tiles;
    run_tasks(t->row_count * t->block_count, patch_row_to_v, a, t->threads);
}

/* dx = B dV B^T, summed over the patches that a pixel is in, or dx += that; if there is an x, times
 * 0 where x is not above 0, which is the gradient of a ReLU before the convolution.
 *
 * The rows of tiles are whole images, or equal parts of one image in turn: `carried` (block_count,
 * 6 - tile, length of a band) keeps what the last row of tiles adds to the pixels of the next. */
struct v_to_patches {
    struct tiles tiles;
    const float *v;
    float *dx;
    float *carried;
    const float *x;
    int64_t add;
};

INLINE void put_gradients(float *dx, const float *line, const float *x, int64_t count, bool add) {
    for (int64_t i = 0; i < count; i += NARROW_VECTOR) {
        narrow value = *(const narrow *)(line + i);
        if (add) value = *(const narrow *)(dx + i) + value;
        /* infinity times 0 is NaN, as in Caffe */
        if (x != NULL) value = where(*(const narrow *)(x + i) > 0, value, value * 0);
        *(narrow *)(dx + i) = value;
    }
}

static void v_to_patch_rows(int64_t task, const void *args) {
    const struct v_to_patches *a = args;
    const struct tiles *t = &a->tiles;
    const int64_t rows = least(t->rows, t->row_count), block = task % t->block_count;
    const int64_t first = task / t->block_count * rows;
    const int64_t tile = PATCH + 1 - t->window, b = t->block, width = t->width * b;
    const int64_t length = (tile * (t->columns - 1) + PATCH) * b, overlap = (PATCH - tile) * length;
    float *band = allocate(PATCH * length * (int64_t)sizeof *band);
    float *carried = a->carried + block * overlap;
    if (row_of(t, first, block).top > 0)
        copy(band, carried, overlap);
    else
        clear(band, overlap);
    for (int64_t i = first; i < first + rows; i++) {
        const struct tile_row row = row_of(t, i, block);
        clear(band + overlap, tile * length);
        for (int64_t j = 0; j < t->columns; j++) {
            struct square v = products(t, a->v + row.matrices + j * t->tile_step);
            struct square patch = {band + tile * j * b, length, b};
            transform(V_TO_PATCH, 3, v, patch, b, (struct also){0});
        }
        const bool is_last = row.top == tile * (t->rows - 1);
        const int64_t top = row.top - t->pad_y, bottom = top + (is_last ? PATCH : tile);
        for (int64_t y = most(top, 0); y < least(bottom, t->height); y++) {
            const int64_t here = row.plane + y * width;
            const float *line = band + (y - top) * length + t->pad_x * b;
            put_gradients(a->dx + here, line, a->x ? a->x + here : NULL, width, a->add);
        }
        memmove(band, band + tile * length, (size_t)overlap * sizeof *band);
    }
    if (t->row_count < t->rows) copy(carried, band, overlap);
    release(band);
}

KERNEL(v_to_patches) {
    const struct tiles *t = &a->tiles;
    const int64_t images = most(1, t->row_count / t->rows);
    run_tasks(images * t->block_count, v_to_patch_rows, a, t->threads);
}

/* y = A^T M A + bias, then a ReLU with this slope below 0 (1: none) */
struct m_to_tiles {
    struct tiles tiles;
    const float *m;
    float *y;
    const float *bias; /* of the channels of M */
    float slope;
};

/* Without a slope even minus infinity becomes 0; NaN stays. */
INLINE void put_rectified(float *y, const float *line, int64_t count, float slope, bool past) {
    for (int64_t i = 0; i < count; i += NARROW_VECTOR) {
        narrow value = *(const narrow *)(line + i), below = {0};
        if (slope != 0) below = slope * value;
        put(y + i, where(value <= 0, below, value), past);
    }
}

static void m_to_tile_row(int64_t task, const void *args) {
    const struct m_to_tiles *a = args;
    const struct tiles *t = &a->tiles;
    const int64_t block = task % t->block_count, b = t->block, width = t->width * b;
    const struct tile_row row = row_of(t, task / t->block_count, block);
    const int64_t length = row.tile * t->columns * b;
    float *band = allocate(row.tile * length * (int64_t)sizeof *band);
    for (int64_t j = 0; j < t->columns; j++) {
        struct square m = products(t, a->m + row.matrices + j * t->tile_step);
        struct square tile = {band + row.tile * j * b, length, b};
        transform(M_TO_TILE, t->window, m, tile, b, (struct also){.bias = a->bias + block * b});
    }
    const bool past = goes_past(a->y, t->images * t->channel_blocks * t->height * width);
    for (int64_t k = 0; k < least(row.tile, t->height - row.top); k++) {
        float *y = a->y + row.plane + (row.top + k) * width;
        put_rectified(y, band + k * length, width, a->slope, past);
    }
    release(band);
    finish_streams();
}

KERNEL(m_to_tiles) {
    const struct tiles *t = &a->tiles;
    run_tasks(t->row_count * t->block_count, m_to_tile_row, a, t->threads);
}

/* dM = A dy A^T;  sums[row of tiles in the call][channel of M] += the sum of dy in that row */
struct tiles_to_m {
    struct tiles tiles;
    const float *dy;
    float *m;
    float *sums;
};

static void tile_row_to_m(int64_t task, const void *args) {
    const struct tiles_to_m *a = args;
    const struct tiles *t = &a->tiles;
    const struct tile_row row = row_of(t, task / t->block_count, task % t->block_count);
    const int64_t b = t->block, length = row.tile * t->columns * b;
    float *band = allocate(row.tile * length * (int64_t)sizeof *band);
    read_band(t, a->dy + row.plane, row.top, 0, band, row.tile, length);
    for (int64_t j = 0; j < t->columns; j++) {
        struct square tile = {band + row.tile * j * b, length, b};
        struct square m = products(t, a->m + row.matrices + j * t->tile_step);
        transform(TILE_TO_M, t->window, tile, m, b, (struct also){.sums = a->sums + task * b});
    }
    release(band);
}

KERNEL(tiles_to_m) {
    const struct tiles *t = &a->tiles;
    run_tasks(t->row_count * t->block_count, tile_row_to_m, a, t->threads);
}

/* Kernels on weights -----------------------------------------------------------------------------
 *
 * Weights are (O/b, I/b, k, k, b, b), outputs last, or plain (O, I, k, k): b = 1. */
struct windows {
    int64_t threads;
    int64_t outputs, inputs, window, block;
    int64_t product_step; /* U: the stride of its first axis */
};

enum { MOST_CELLS = 25, MOST_LANES = 16 }; /* windows that are transformed at a time */

/* The element (output, input, 0, 0) of the weights. */
INLINE int64_t window_at(const struct windows *s, int64_t o, int64_t i) {
    const int64_t b = s->block, block = o / b * (s->inputs / b) + i / b;
    return block * s->window * s->window * b * b + i % b * b + o % b;
}

/* The 36 elements of U of a row and a column of its matrices. */
INLINE struct square u_of(const struct windows *s, const float *u, int64_t row, int64_t column,
                          int64_t columns) {
    float *first = (float *)u + row * columns + column;
    return (struct square){first, PATCH * s->product_step, s->product_step};
}

/* U = G w G^T;  turned: the matrices of U are (outputs, inputs) */
struct windows_to_u {
    struct windows windows;
    const float *w;
    float *u;
    int64_t turned;
};

/* A block of rows of U. Windows that are neighbours in U but not in memory are gathered first. */
static void windows_to_rows(int64_t task, const void *args) {
    const struct windows_to_u *a = args;
    const struct windows *s = &a->windows;
    const int64_t b = s->block, cells = s->window * s->window, next = b * b;
    const int64_t columns = a->turned ? s->inputs : s->outputs;
    const int64_t far = a->turned ? b : b == 1 ? s->inputs * cells : 1;
    /* Whole cache lines go past the caches. */
    const bool past = sizeof(vec) == LINE && (b == 1 ? columns : b) % VECTOR == 0 &&
                      s->product_step % VECTOR == 0 && goes_past(a->u, PRODUCTS * s->product_step);
    float block[MOST_CELLS * MOST_LANES];
    for (int64_t c = 0, n; c < columns; c += n) {
        n = least(MOST_LANES, b == 1 ? columns - c : b - c % b);
        for (int64_t row = task * b; row < (task + 1) * b; row++) {
            const int64_t start = a->turned ? window_at(s, row, c) : window_at(s, c, row);
            struct square w = {(float *)a->w + start, s->window * next, next};
            if (far > 1) {
                for (int64_t cell = 0; cell < cells; cell++)
                    for (int64_t k = 0; k < n; k++)
                        block[cell * n + k] = a->w[start + k * far + cell * next];
                w = (struct square){block, s->window * n, n};
            }
            struct square u = u_of(s, a->u, row, c, columns);
            if (past)
                transform(WINDOW_TO_U, s->window, w, u, n, (struct also){.past = true});
            else
                transform(WINDOW_TO_U, s->window, w, u, n, (struct also){.past = false});
        }
    }
    finish_streams();
}

KERNEL(windows_to_u) {
    const struct windows *s = &a->windows;
    run_tasks((a->turned ? s->outputs : s->inputs) / s->block, windows_to_rows, a, s->threads);
}

/* dw += G^T dU G */
struct u_to_windows {
    struct windows windows;
    const float *u;
    float *dw;
};

/* A task takes one input, so that it reads U from left to right. */
static void u_to_blocked_windows(int64_t i, const void *args) {
    const struct u_to_windows *a = args;
    const struct windows *s = &a->windows;
    const int64_t b = s->block, area = b * b;
    for (int64_t o = 0; o < s->outputs; o += b) {
        struct square u = u_of(s, a->u, i, o, s->outputs);
        struct square dw = {a->dw + window_at(s, o, i), s->window * area, area};
        transform(U_TO_WINDOW, s->window, u, dw, b, (struct also){0});
    }
}

static void u_to_plain_windows(int64_t i, const void *args) {
    const struct u_to_windows *a = args;
    const struct windows *s = &a->windows;
    const int64_t cells = s->window * s->window, far = s->inputs * cells;
    float block[MOST_CELLS * MOST_LANES];
    for (int64_t o = 0; o < s->outputs; o += MOST_LANES) {
        const int64_t n = least(MOST_LANES, s->outputs - o);
        struct square u = u_of(s, a->u, i, o, s->outputs), dw = {block, s->window * n, n};
        clear(block, cells * n);
        transform(U_TO_WINDOW, s->window, u, dw, n, (struct also){0});
        float *window = a->dw + window_at(s, o, i);
        for (int64_t k = 0; k < n; k++, window += far)
            for (int64_t cell = 0; cell < cells; cell++) window[cell] += block[cell * n + k];
    }
}

KERNEL(u_to_windows) {
    const struct windows *s = &a->windows;
    task_fn *task = s->block == 1 ? u_to_plain_windows : u_to_blocked_windows;
    run_tasks(s->inputs, task, a, s->threads);
}
