/* Kernels that try what fire.h offers; tests/backend/test_native.py compiles them. */
#include <stdatomic.h>

#include "fire.h"

/* runs[i] = how often task i ran;  places[i] = how many tasks began before it */
struct visits {
    int64_t threads;
    int32_t *runs;
    int64_t *places, *begun;
    int64_t count, order;
};

static void visit(int64_t task, const void *args) {
    const struct visits *a = args;
    a->places[task] = atomic_fetch_add((_Atomic int64_t *)a->begun, 1);
    a->runs[task]++;
}

KERNEL(visits) {
    if (a->order == 0) run_tasks(a->count, visit, a, a->threads);
    if (a->order == 1) run_tasks_backward(a->count, visit, a, a->threads);
    if (a->order == 2) run_tasks_in_turns(a->count, visit, a, a->threads);
}

/* Tasks that launch tasks: runs[i] = how often each of count * count tasks ran */
struct nested {
    int64_t threads;
    int32_t *runs;
    int64_t count;
};

struct inner {
    const struct nested *outer;
    int64_t row;
};

static void inner_task(int64_t task, const void *args) {
    const struct inner *a = args;
    a->outer->runs[a->row * a->outer->count + task]++;
}

static void outer_task(int64_t task, const void *args) {
    const struct nested *a = args;
    const struct inner own = {a, task};
    run_tasks(a->count, inner_task, &own, a->threads);
}

KERNEL(nested) { run_tasks(a->count, outer_task, a, a->threads); }

/* target = source, past the caches */
struct copies {
    int64_t threads;
    const float *source;
    float *target;
    int64_t first, count;
};

KERNEL(copies) {
    stream_copy(a->target + a->first, a->source + a->first, a->count);
    finish_streams();
}

/* For vectors x and y of 4, NARROW_VECTOR and VECTOR floats in turn, at x + 16 k and y + 16 k:
 * kept = x where x > y, else y;  high = the larger;  low = the smaller;  half = x / 2, streamed;
 * ints = the larger of the numbers' bits;  sums[k] = the sum of the lanes of x */
struct lanes {
    int64_t threads;
    const float *x, *y;
    float *kept, *high, *low, *half, *ints, *sums;
};

#define TRY(type, integers, k)                                                       \
    do {                                                                             \
        type x = *(const type *)(a->x + 16 * k), y = *(const type *)(a->y + 16 * k); \
        *(type *)(a->kept + 16 * k) = where(x > y, x, y);                            \
        *(type *)(a->high + 16 * k) = larger(x, y);                                  \
        *(type *)(a->low + 16 * k) = smaller(x, y);                                  \
        *(integers *)(a->ints + 16 * k) = larger((integers)x, (integers)y);          \
        put(a->half + 16 * k, x / 2, k % 2);                                         \
        a->sums[k] = sum_lanes(x);                                                   \
    } while (0)

KERNEL(lanes) {
    TRY(vec4, ivec4, 0);
    TRY(narrow, inarrow, 1);
    TRY(vec, ivec, 2);
    finish_streams();
}

/* misaligned = how many of the allocations of 1 to 299 bytes begin elsewhere than a cache line */
struct allocations {
    int64_t threads;
    int64_t *misaligned;
};

KERNEL(allocations) {
    for (int64_t bytes = 1; bytes < 300; bytes++) {
        char *memory = allocate(bytes);
        memset(memory, 1, (size_t)bytes);
        a->misaligned[0] += (uintptr_t)memory % LINE != 0;
        release(memory);
    }
}

/* totals[k] = the sum of arrays[k][i] */
struct tables {
    int64_t threads;
    const float *const *arrays;
    float *totals;
    const float *bias;
    int64_t rows, count;
};

KERNEL(tables) {
    for (int64_t k = 0; k < a->rows; k++) {
        a->totals[k] = a->bias ? a->bias[0] : 0;
        for (int64_t i = 0; i < a->count; i++) a->totals[k] += a->arrays[k][i];
    }
}
