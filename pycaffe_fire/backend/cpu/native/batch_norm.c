/* Batch normalisation, alone or with a sum, and a ReLU after it. The formulas are in norm.h. */
#include "norm.h"

/* y = relu(normal x + addend), which may be NULL. y may be x; `kept` is then given a copy of x, else
 * it is NULL. */
struct norm_forward {
    struct norms norms;
    struct cut cut;
    const float *x, *addend;
    float *kept, *y;
};

static void forward_moments(const void *kernel, struct part p) {
    const struct norm_forward *a = kernel;
    WITH_LANES(a->norms.block, moments, &a->norms, a->x, p);
}

static void forward_values(const void *kernel, struct part p) {
    const struct norm_forward *a = kernel;
    int64_t block = a->norms.block;
    /* Vectors of a larger block are written far apart: they do not fill lines of the cache. */
    bool past = block == VECTOR && goes_past(a->y, a->cut.total * a->norms.blocks * block);
    if (a->kept) {
        size_t size = (size_t)(p.pixels * block) * sizeof *a->kept;
        memcpy(a->kept + p.start, a->x + p.start, size);
    }
    if (past) {
        normalise(&a->norms, 0, a->x, a->addend, a->y, p, true, VECTOR);
        finish_streams();
    } else {
        WITH_LANES(block, normalise, &a->norms, 0, a->x, a->addend, a->y, p, false);
    }
}

KERNEL(norm_forward) {
    const struct phase phases[] = {
        {a->norms.own[0] ? forward_moments : NULL, find_statistics, 0, a->cut},
        {forward_values, NULL, 0, a->cut},
    };
    run_phases(&a->norms, phases, 2);
}

/* dx from dy; dx may be dy, or NULL if it is not wanted. */
struct norm_backward {
    struct norms norms;
    struct cut cut;
    const float *x, *dy;
    float *dx;
};

static void backward_sums(const void *kernel, struct part p) {
    const struct norm_backward *a = kernel;
    WITH_LANES(a->norms.block, gradient_sums, &a->norms, 0, a->x, a->dy, p);
}

static void backward_values(const void *kernel, struct part p) {
    const struct norm_backward *a = kernel;
    WITH_LANES(a->norms.block, input_gradient, &a->norms, 0, a->x, a->dy, a->dx, p, true);
}

KERNEL(norm_backward) {
    const struct phase phases[] = {
        {backward_sums, find_gradient_terms, 0, a->cut},
        {backward_values, NULL, 0, a->cut},
    };
    run_phases(&a->norms, phases, a->dx ? 2 : 1);
}

/* g = relu'(y) (one + other), and dx from g. `other` and dx may be NULL, if there is nothing to add,
 * or dx is not wanted. g may be `one`, and dx may be `other`. */
struct norm_sum_backward {
    struct norms norms;
    struct cut cut;
    const float *x, *y, *one, *other;
    float *g, *dx;
};

INLINE void add_gradients(
    const struct norm_sum_backward *a, struct part p, bool has_other, int lanes
) {
    const struct norms *norms = &a->norms;
    const float *x = a->x, *y = a->y, *one = a->one, *other = a->other;
    float *to = a->g, slope = norms->slope[0];
    int64_t step = norms->block, stop = p.start + p.pixels * step;
    for (int64_t c = 0; c < step; c += lanes) {
        vec mean = load_some(norms->mean + p.channel + c, lanes), sum = {0}, product = {0};
        for (int64_t i = p.start + c; i < stop; i += step) {
            vec g = load_some(one + i, lanes);
            if (has_other) g += load_some(other + i, lanes);
            g *= rise(load_some(y + i, lanes), slope);
            sum += g;
            product += g * (load_some(x + i, lanes) - mean);
            store_some(to + i, g, lanes);
        }
        store_some(norms->partial_sum + p.partial + c, sum, lanes);
        store_some(norms->partial_product + p.partial + c, product, lanes);
    }
}

static void sum_gradients(const void *kernel, struct part p) {
    const struct norm_sum_backward *a = kernel;
    if (a->other)
        WITH_LANES(a->norms.block, add_gradients, a, p, true);
    else
        WITH_LANES(a->norms.block, add_gradients, a, p, false);
}

static void sum_values(const void *kernel, struct part p) {
    const struct norm_sum_backward *a = kernel;
    WITH_LANES(a->norms.block, input_gradient, &a->norms, 0, a->x, a->g, a->dx, p, false);
}

KERNEL(norm_sum_backward) {
    const struct phase phases[] = {
        {sum_gradients, find_gradient_terms, 0, a->cut},
        {sum_values, NULL, 0, a->cut},
    };
    run_phases(&a->norms, phases, a->dx ? 2 : 1);
}
