/* Update rules over flat buffers: scale, decay, advance the history and write the weights at once.
 *
 * A flat buffer holds all parameters of a net. It is cut into blocks that never cross two
 * parameters, so that each block has one rate and one decay. Every element is computed alone, so
 * bits do not depend on the number of threads. In the formulas below, g is the gradient after
 * scaling and weight decay:
 *
 *     g = scale gradient + l2 w + l1 sign(w)
 */
#include "fire.h"

/* The first fields of every rule. */
struct flat {
    int64_t threads;
    float *w;
    const float *gradient;
    const int64_t *starts, *stops;   /* of blocks, in elements */
    const float *rates, *l2, *l1;    /* of blocks */
    int64_t blocks;
};

struct block {
    float *w;
    const float *gradient;
    int64_t start, size;
    float rate, l2, l1;
};

INLINE struct block block_of(const struct flat *a, int64_t i) {
    int64_t start = a->starts[i];
    return (struct block){
        a->w + start, a->gradient + start, start, a->stops[i] - start,
        a->rates[i], a->l2[i], a->l1[i]};
}

INLINE float decayed(float g, float w, float l2, float l1) {
    g += l2 * w;
    if (l1 != 0) g += l1 * ((float)(w > 0) - (float)(w < 0)); /* compilers make two loops of it */
    return g;
}

/* h = momentum h + rate g;  w -= h */
struct sgd {
    struct flat flat;
    float *h;
    float scale, momentum;
};

static void sgd_block(int64_t task, const void *args) {
    const struct sgd a = *(const struct sgd *)args;
    const struct block b = block_of(&a.flat, task);
    float *restrict w = b.w;
    const float *restrict gradient = b.gradient;
    float *restrict h = a.h + b.start;
    for (int64_t i = 0; i < b.size; i++) {
        float g = decayed(a.scale * gradient[i], w[i], b.l2, b.l1);
        float v = a.momentum * h[i] + b.rate * g;
        h[i] = v;
        w[i] -= v;
    }
}

KERNEL(sgd) { run_tasks(a->flat.blocks, sgd_block, a, a->flat.threads); }

/* v = momentum h + rate g;  w -= (1 + momentum) v - momentum h;  h = v */
struct nesterov {
    struct flat flat;
    float *h;
    float scale, momentum;
};

static void nesterov_block(int64_t task, const void *args) {
    const struct nesterov a = *(const struct nesterov *)args;
    const struct block b = block_of(&a.flat, task);
    float *restrict w = b.w;
    const float *restrict gradient = b.gradient;
    float *restrict h = a.h + b.start;
    for (int64_t i = 0; i < b.size; i++) {
        float g = decayed(a.scale * gradient[i], w[i], b.l2, b.l1);
        float old = h[i], v = a.momentum * old + b.rate * g;
        h[i] = v;
        w[i] -= (1 + a.momentum) * v - a.momentum * old;
    }
}

KERNEL(nesterov) { run_tasks(a->flat.blocks, nesterov_block, a, a->flat.threads); }

/* h += g^2;  w -= rate g / (sqrt(h) + delta) */
struct adagrad {
    struct flat flat;
    float *h;
    float scale, delta;
};

static void adagrad_block(int64_t task, const void *args) {
    const struct adagrad a = *(const struct adagrad *)args;
    const struct block b = block_of(&a.flat, task);
    float *restrict w = b.w;
    const float *restrict gradient = b.gradient;
    float *restrict h = a.h + b.start;
    for (int64_t i = 0; i < b.size; i++) {
        float g = decayed(a.scale * gradient[i], w[i], b.l2, b.l1);
        h[i] += g * g;
        w[i] -= b.rate * g / (sqrtf(h[i]) + a.delta);
    }
}

KERNEL(adagrad) { run_tasks(a->flat.blocks, adagrad_block, a, a->flat.threads); }

/* h = decay h + (1 - decay) g^2;  w -= rate g / (sqrt(h) + delta) */
struct rmsprop {
    struct flat flat;
    float *h;
    float scale, delta, decay;
};

static void rmsprop_block(int64_t task, const void *args) {
    const struct rmsprop a = *(const struct rmsprop *)args;
    const struct block b = block_of(&a.flat, task);
    float *restrict w = b.w;
    const float *restrict gradient = b.gradient;
    float *restrict h = a.h + b.start;
    for (int64_t i = 0; i < b.size; i++) {
        float g = decayed(a.scale * gradient[i], w[i], b.l2, b.l1);
        h[i] = a.decay * h[i] + (1 - a.decay) * g * g;
        w[i] -= b.rate * g / (sqrtf(h[i]) + a.delta);
    }
}

KERNEL(rmsprop) { run_tasks(a->flat.blocks, rmsprop_block, a, a->flat.threads); }

/* h = momentum h + (1 - momentum) g^2;  v = g sqrt((u + delta) / (h + delta));
 * u = momentum u + (1 - momentum) v^2;  w -= rate v */
struct adadelta {
    struct flat flat;
    float *h, *u;
    float scale, delta, momentum;
};

static void adadelta_block(int64_t task, const void *args) {
    const struct adadelta a = *(const struct adadelta *)args;
    const struct block b = block_of(&a.flat, task);
    float *restrict w = b.w;
    const float *restrict gradient = b.gradient;
    float *restrict h = a.h + b.start, *restrict u = a.u + b.start;
    for (int64_t i = 0; i < b.size; i++) {
        float g = decayed(a.scale * gradient[i], w[i], b.l2, b.l1);
        h[i] = a.momentum * h[i] + (1 - a.momentum) * g * g;
        float v = g * sqrtf((u[i] + a.delta) / (h[i] + a.delta));
        u[i] = a.momentum * u[i] + (1 - a.momentum) * v * v;
        w[i] -= b.rate * v;
    }
}

KERNEL(adadelta) { run_tasks(a->flat.blocks, adadelta_block, a, a->flat.threads); }

/* m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2;
 * w -= rate correction m / (sqrt(v) + delta) */
struct adam {
    struct flat flat;
    float *m, *v;
    float scale, beta1, beta2, correction, delta;
};

static void adam_block(int64_t task, const void *args) {
    const struct adam a = *(const struct adam *)args;
    const struct block b = block_of(&a.flat, task);
    float *restrict w = b.w;
    const float *restrict gradient = b.gradient;
    const float rate = b.rate * a.correction;
    float *restrict m = a.m + b.start, *restrict v = a.v + b.start;
    for (int64_t i = 0; i < b.size; i++) {
        float g = decayed(a.scale * gradient[i], w[i], b.l2, b.l1);
        m[i] = a.beta1 * m[i] + (1 - a.beta1) * g;
        v[i] = a.beta2 * v[i] + (1 - a.beta2) * g * g;
        w[i] -= rate * m[i] / (sqrtf(v[i]) + a.delta);
    }
}

KERNEL(adam) { run_tasks(a->flat.blocks, adam_block, a, a->flat.threads); }

/* Adam with m and v of the gradient before decay;
 * w -= rate (correction m / (sqrt(v) + delta) + l2 w + l1 sign(w)) */
struct adamw {
    struct flat flat;
    float *m, *v;
    float scale, beta1, beta2, correction, delta;
};

static void adamw_block(int64_t task, const void *args) {
    const struct adamw a = *(const struct adamw *)args;
    const struct block b = block_of(&a.flat, task);
    float *restrict w = b.w;
    const float *restrict gradient = b.gradient;
    float *restrict m = a.m + b.start, *restrict v = a.v + b.start;
    for (int64_t i = 0; i < b.size; i++) {
        float g = a.scale * gradient[i];
        m[i] = a.beta1 * m[i] + (1 - a.beta1) * g;
        v[i] = a.beta2 * v[i] + (1 - a.beta2) * g * g;
        float step = a.correction * m[i] / (sqrtf(v[i]) + a.delta);
        w[i] -= b.rate * decayed(step, w[i], b.l2, b.l1);
    }
}

KERNEL(adamw) { run_tasks(a->flat.blocks, adamw_block, a, a->flat.threads); }

/* Sums and checks of flat buffers ------------------------------------------------------------- */

/* sums[k] = sum of x[i] y[i] over block k, in double precision. Products of floats are exact, and
 * each of the LANES partial sums has its own place, so bits are the same on every machine. */
enum { LANES = 32, GROUP = VECTOR / 2, GROUPS = LANES / GROUP };
typedef float few __attribute__((vector_size(4 * GROUP), aligned(4), may_alias));
typedef double doubles __attribute__((vector_size(8 * GROUP), aligned(8), may_alias));

INLINE doubles widened(const float *p) {
#if VECTOR == 16
    return (doubles)_mm512_cvtps_pd(_mm256_loadu_ps(p)); /* gcc takes the conversion below apart */
#elif VECTOR == 8
    return (doubles)_mm256_cvtps_pd(_mm_loadu_ps(p));
#else
    return __builtin_convertvector(*(const few *)p, doubles);
#endif
}

struct block_dots {
    int64_t threads;
    const float *x, *y;
    const int64_t *starts, *stops;
    double *sums;
    int64_t blocks;
};

static void dot_of_block(int64_t task, const void *args) {
    const struct block_dots *a = args;
    int64_t start = a->starts[task], size = a->stops[task] - start, i = 0;
    const float *x = a->x + start, *y = a->y + start;
    doubles partial[GROUPS] = {{0}};
    for (; i + LANES <= size; i += LANES)
        for (int k = 0; k < GROUPS; k++)
            partial[k] += widened(x + i + k * GROUP) * widened(y + i + k * GROUP);
    double lanes[LANES], sum = 0;
    memcpy(lanes, partial, sizeof lanes);
    for (int k = 0; i < size; i++, k++) lanes[k] += (double)x[i] * (double)y[i];
    for (int k = 0; k < LANES; k++) sum += lanes[k];
    a->sums[task] = sum;
}

KERNEL(block_dots) { run_tasks(a->blocks, dot_of_block, a, a->threads); }

/* total[i] += part[i] */
enum { PIECE = 16384 }; /* elements of a task */

struct add_into {
    int64_t threads;
    float *total;
    const float *part;
    int64_t count;
};

static void add_piece(int64_t task, const void *args) {
    const struct add_into *a = args;
    int64_t start = task * PIECE, size = least(PIECE, a->count - start);
    float *restrict total = a->total + start;
    const float *part = a->part + start;
    for (int64_t i = 0; i < size; i++) total[i] += part[i];
}

KERNEL(add_into) { run_tasks((a->count + PIECE - 1) / PIECE, add_piece, a, a->threads); }

/* largest[k] = the bits, without sign, of the element of part k that is furthest from 0. Those of
 * infinity and NaN are larger than all others. */
struct largest_bits {
    int64_t threads;
    const float *values;
    int32_t *largest;
    int64_t count, parts;
};

static void largest_of_part(int64_t task, const void *args) {
    const struct largest_bits *a = args;
    int64_t i = a->count * task / a->parts, stop = a->count * (task + 1) / a->parts;
    const int32_t without_sign = 0x7FFFFFFF;
    ivec found[4] = {{0}};
    for (; i + 4 * VECTOR <= stop; i += 4 * VECTOR)
        for (int k = 0; k < 4; k++) {
            ivec bits = *(const ivec *)(a->values + i + k * VECTOR);
            found[k] = larger(found[k], bits & without_sign);
        }
    found[0] = larger(larger(found[0], found[1]), larger(found[2], found[3]));
    int32_t largest = 0, bits;
    for (int k = 0; k < VECTOR; k++) largest = found[0][k] > largest ? found[0][k] : largest;
    for (; i < stop; i++) {
        memcpy(&bits, a->values + i, sizeof bits);
        bits &= without_sign;
        largest = bits > largest ? bits : largest;
    }
    a->largest[task] = largest;
}

KERNEL(largest_bits) { run_tasks(a->parts, largest_of_part, a, a->threads); }
