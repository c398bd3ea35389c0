/* y = x scale where an element's random word is at least `threshold`, else 0.
 *
 * The word of an element depends on its logical place in its sample alone, (channel, pixel), so
 * that every layout, number of threads and device drops the same elements. Masks are drawn again
 * rather than stored.
 */
#include "grid.h"
#include "random.h"

struct dropout {
    struct grid g;
    const float *x;
    float *y; /* may be x */
    int64_t key, step, first_sample, threshold;
    float scale;
};

/* Elements of a task where inner = 1; elsewhere it has so many channels, and works on some pixels
 * at a time. */
enum { RUN = 4096, CHANNELS = 16, PIXELS = 16 };

/* Draw the words of places first, first + 1, ... of a sample into memory for 6 words more. */
INLINE const uint32_t *draw_words(
    const struct dropout *a, int64_t sample, int64_t first, int64_t count, uint32_t *memory
) {
    struct draw draw = {
        (uint64_t)a->key, (uint64_t)a->step, (uint64_t)a->first_sample + (uint64_t)sample};
    philox_words(draw, (uint64_t)(first / 4), (first % 4 + count + 3) / 4, memory);
    return memory + first % 4;
}

/* Elements side by side, and their words in the same order; vectors read beyond the last word. */
INLINE void drop(
    const float *x, float *y, const uint32_t *words, int64_t count, uint32_t threshold, float scale
) {
    for (int64_t i = 0; i < count; i += VECTOR) {
        vec zero = {0};
        ivec stays = (ivec)(*(const uvec *)(words + i) >= threshold);
        store_some(y + i, where(stays, load_some(x + i, count - i) * scale, zero), count - i);
    }
}

/* A run of elements whose memory has the order of their places. */
static void drop_run(int64_t task, const void *args) {
    const struct dropout a = *(const struct dropout *)args;
    int64_t whole = a.g.outer * a.g.pixels, runs = (whole + RUN - 1) / RUN;
    int64_t sample = task / runs, first = task % runs * RUN, count = least(RUN, whole - first);
    int64_t start = sample * whole + first;
    uint32_t memory[RUN + 6 + VECTOR];
    const uint32_t *words = draw_words(&a, sample, first, count, memory);
    drop(a.x + start, a.y + start, words, count, (uint32_t)a.threshold, a.scale);
}

/* Some channels of a block: their words are drawn in order, then turned to that of the memory. */
static void drop_channels(int64_t task, const void *args) {
    const struct dropout a = *(const struct dropout *)args;
    int64_t groups = (a.g.inner + CHANNELS - 1) / CHANNELS, block = task / groups;
    int64_t channel = task % groups * CHANNELS, count = least(CHANNELS, a.g.inner - channel);
    int64_t start = block * a.g.pixels * a.g.inner + channel, sample = block / a.g.outer;
    int64_t place = (block % a.g.outer * a.g.inner + channel) * a.g.pixels;
    uint32_t *memory = allocate((count * a.g.pixels + 6) * (int64_t)sizeof(uint32_t));
    uint32_t turned[PIXELS * CHANNELS + VECTOR];
    const uint32_t *words = draw_words(&a, sample, place, count * a.g.pixels, memory);
    for (int64_t first = 0; first < a.g.pixels; first += PIXELS) {
        int64_t pixels = least(PIXELS, a.g.pixels - first), here = start + first * a.g.inner;
        for (int64_t c = 0; c < count; c++)
            for (int64_t p = 0; p < pixels; p++)
                turned[p * count + c] = words[c * a.g.pixels + first + p];
        int64_t run = count == a.g.inner ? pixels * count : count; /* elements side by side */
        for (int64_t done = 0; done < pixels * count; done += run, here += a.g.inner)
            drop(a.x + here, a.y + here, turned + done, run, (uint32_t)a.threshold, a.scale);
    }
    release(memory);
}

KERNEL(dropout) {
    int64_t whole = a->g.outer * a->g.pixels, blocks = a->g.samples * a->g.outer;
    int64_t groups = (a->g.inner + CHANNELS - 1) / CHANNELS;
    if (a->g.inner == 1)
        run_tasks(a->g.samples * ((whole + RUN - 1) / RUN), drop_run, a, a->g.threads);
    else
        run_tasks(blocks * groups, drop_channels, a, a->g.threads);
}
