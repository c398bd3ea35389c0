/* Random numbers in arrays: row r is the sequence of sample `sample` + r.
 *
 * Words come from random.h. Numbers are the same bits on every machine: the build fuses no product
 * with a sum in this file.
 */
#include "random.h"

/* The first fields of every kernel. */
struct rows {
    int64_t threads;
    int64_t key, step, sample; /* the bits of unsigned numbers; `sample` is that of the first row */
    int64_t rows, count;       /* `count` numbers in a row */
};

enum { PIECE = 4 * PHILOX_TILE, RUN = 64 * PIECE }; /* words drawn at once, and in a task */

INLINE int64_t runs_of(const struct rows *a) { return (a->count + RUN - 1) / RUN; }

/* The numbers of a task: row, first column and number of columns. */
struct run {
    struct draw draw;
    int64_t start, first, size;
};

INLINE struct run run_of(const struct rows *a, int64_t task) {
    int64_t row = task / runs_of(a), first = task % runs_of(a) * RUN;
    struct draw draw = {(uint64_t)a->key, (uint64_t)a->step, (uint64_t)a->sample + (uint64_t)row};
    return (struct run){draw, row * a->count + first, first, least(RUN, a->count - first)};
}

/* out = words */
struct random_words {
    struct rows rows;
    uint32_t *out;
};

static void words_of_run(int64_t task, const void *args) {
    const struct random_words *a = args;
    const struct run r = run_of(&a->rows, task);
    uint32_t last[4], *out = a->out + r.start;
    int64_t blocks = r.size / 4;
    philox_words(r.draw, (uint64_t)r.first / 4, blocks, out);
    if (r.size % 4 == 0) return;
    philox_words(r.draw, (uint64_t)(r.first / 4 + blocks), 1, last);
    memcpy(out + 4 * blocks, last, (size_t)(r.size % 4) * sizeof *out);
}

KERNEL(random_words) {
    run_tasks(a->rows.rows * runs_of(&a->rows), words_of_run, a, a->rows.threads);
}

/* out = (word >> 8) / 2^24, in [0, 1) */
struct random_uniform {
    struct rows rows;
    float *out;
};

static void uniforms_of_run(int64_t task, const void *args) {
    const struct random_uniform *a = args;
    const struct run r = run_of(&a->rows, task);
    uint32_t words[PIECE];
    for (int64_t i = 0; i < r.size; i += PIECE) {
        int64_t size = least(PIECE, r.size - i);
        philox_words(r.draw, (uint64_t)(r.first + i) / 4, (size + 3) / 4, words);
        float *out = a->out + r.start + i;
        for (int64_t k = 0; k < size; k++) out[k] = (float)(int32_t)(words[k] >> 8) * 0x1p-24f;
    }
}

KERNEL(random_uniform) {
    run_tasks(a->rows.rows * runs_of(&a->rows), uniforms_of_run, a, a->rows.threads);
}

/* Box-Muller on pairs of words u, v, in double precision:
 *
 *     out[2 i] = r cos(t),  out[2 i + 1] = r sin(t)
 *     r = sqrt(-2 log((u + 1) / 2^32)),  t = 2 pi v / 2^32
 */
struct random_normal {
    struct rows rows;
    float *out;
};

/* log x for 0 < x <= 1, to the last bit or two: x = 2^k m with m between sqrt(1/2) and sqrt(2), and
 * log m = 2 artanh((m - 1) / (m + 1)). */
INLINE double natural_log(double x) {
    const uint64_t one = 0x3FF0000000000000, lowest = 0x3FE6A09E667F3BCD; /* 1 and sqrt(1/2) */
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits += one - lowest;
    double k = (double)((int32_t)(bits >> 52) - 1023), m;
    bits = (bits & 0x000FFFFFFFFFFFFF) + lowest;
    memcpy(&m, &bits, sizeof m);
    double s = (m - 1) / (m + 1), z = s * s, sum = z / 21 + 1.0 / 19;
    sum = ((sum * z + 1.0 / 17) * z + 1.0 / 15) * z + 1.0 / 13;
    sum = ((((sum * z + 1.0 / 11) * z + 1.0 / 9) * z + 1.0 / 7) * z + 1.0 / 5) * z + 1.0 / 3;
    return k * 0.6931471805599453 + (2 * s + 2 * s * z * sum);
}

/* cos t and sin t for 0 <= t < 2 pi, to the last bit or two: by their series around the nearest
 * multiple of pi / 2, which is subtracted in two parts. */
INLINE void cos_sin(double angle, double *cosine, double *sine) {
    int32_t quarter = (int32_t)(angle * 0.6366197723675814 + 0.5);
    double t = (angle - quarter * 1.5707963267341256) - quarter * 6.077100506506192e-11, z = t * t;
    double c = ((z / 20922789888000 - 1.0 / 87178291200) * z + 1.0 / 479001600) * z - 1.0 / 3628800;
    c = (((c * z + 1.0 / 40320) * z - 1.0 / 720) * z + 1.0 / 24) * z - 1.0 / 2;
    double s = ((z / 355687428096000 - 1.0 / 1307674368000) * z + 1.0 / 6227020800) * z;
    s = s - 1.0 / 39916800;
    s = (((s * z + 1.0 / 362880) * z - 1.0 / 5040) * z + 1.0 / 120) * z - 1.0 / 6;
    c = c * z + 1;
    s = s * z * t + t;
    double x = quarter & 1 ? -s : c, y = quarter & 1 ? c : s;
    *cosine = quarter & 2 ? -x : x;
    *sine = quarter & 2 ? -y : y;
}

static void normals_of_run(int64_t task, const void *args) {
    const struct random_normal *a = args;
    const struct run r = run_of(&a->rows, task);
    uint32_t words[PIECE];
    float numbers[PIECE];
    for (int64_t i = 0; i < r.size; i += PIECE) {
        int64_t size = least(PIECE, r.size - i), blocks = (size + 3) / 4;
        philox_words(r.draw, (uint64_t)(r.first + i) / 4, blocks, words);
        for (int64_t k = 0; k < 2 * blocks; k++) {
            double cosine, sine;
            double radius = sqrt(-2 * natural_log(((double)words[2 * k] + 1) * 0x1p-32));
            cos_sin(words[2 * k + 1] * 1.4629180792671596e-09, &cosine, &sine);
            numbers[2 * k] = (float)(radius * cosine);
            numbers[2 * k + 1] = (float)(radius * sine);
        }
        memcpy(a->out + r.start + i, numbers, (size_t)size * sizeof *numbers);
    }
}

KERNEL(random_normal) {
    run_tasks(a->rows.rows * runs_of(&a->rows), normals_of_run, a, a->rows.threads);
}
