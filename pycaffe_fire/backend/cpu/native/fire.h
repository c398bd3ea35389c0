/* What every kernel includes: vectors, streaming stores, scratch memory and the task launcher.
 *
 * The build compiles each source once per instruction set and defines VECTOR, the number of floats
 * in a vector: 4 (x86-64 baseline, NEON), 8 (AVX2) or 16 (AVX-512).
 */
#pragma once
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__) || defined(_M_X64)
#include <immintrin.h>
#endif

#define INLINE static inline __attribute__((always_inline))

#ifdef _WIN32
#define EXPORT __declspec(dllexport)
#else
#define EXPORT __attribute__((visibility("default")))
#endif

/* Define a kernel that Python calls as `fire_<name>`: its body sees `const struct <name> *a`. The
 * exported size lets Python check that its fields are those of the struct. */
#define KERNEL(name)                                                   \
    EXPORT extern const int64_t fire_##name##_size;                    \
    const int64_t fire_##name##_size = (int64_t)sizeof(struct name);   \
    EXPORT void fire_##name(const struct name *a);                     \
    void fire_##name(const struct name *a)

/* Vectors ----------------------------------------------------------------------------------------
 *
 * +, -, *, /, comparisons and integer operators work on whole vectors, also with one scalar operand.
 * A comparison gives a vector of integers: -1 where it holds, else 0. Memory is read and written
 * through a pointer cast or `load` and `store`; no alignment is needed.
 *
 * `vec` has the machine's width, VECTOR floats. `narrow` has the largest width that divides a block
 * of 8 channels, NARROW_VECTOR floats: kernels for such blocks use it, because on an AVX-512 machine
 * `vec` is too wide for them. There are no vectors that are wider than the machine's, because gcc
 * takes them apart element by element.
 */
#define ATTRIBUTES(bytes) __attribute__((vector_size(bytes), aligned(4), may_alias))
typedef float vec4 ATTRIBUTES(16);
typedef int32_t ivec4 ATTRIBUTES(16);
#if VECTOR >= 8
typedef float vec8 ATTRIBUTES(32);
typedef int32_t ivec8 ATTRIBUTES(32);
#endif
#if VECTOR >= 16
typedef float vec16 ATTRIBUTES(64);
typedef int32_t ivec16 ATTRIBUTES(64);
#endif

#define NARROW_VECTOR (VECTOR < 8 ? VECTOR : 8)
typedef float vec ATTRIBUTES(4 * VECTOR);
typedef int32_t ivec ATTRIBUTES(4 * VECTOR);
typedef uint32_t uvec ATTRIBUTES(4 * VECTOR);
typedef float narrow ATTRIBUTES(4 * NARROW_VECTOR);
typedef int32_t inarrow ATTRIBUTES(4 * NARROW_VECTOR);

INLINE vec load(const float *p) { return *(const vec *)p; }
INLINE void store(float *p, vec v) { *(vec *)p = v; }

/* The same where an array may end within the vector, after `count` floats: those beyond its end are
 * 0 and are not stored. `count` may be larger than VECTOR. */
INLINE vec load_some(const float *p, int64_t count) {
    if (count >= VECTOR) return load(p);
#if VECTOR == 16
    return (vec)_mm512_maskz_loadu_ps((__mmask16)((1u << count) - 1), p);
#elif VECTOR == 8
    return (vec)_mm256_maskload_ps(p, (__m256i)((ivec){0, 1, 2, 3, 4, 5, 6, 7} < (int32_t)count));
#else
    return (vec){count > 0 ? p[0] : 0, count > 1 ? p[1] : 0, count > 2 ? p[2] : 0, 0};
#endif
}
/* Not by a masked store: loads of what follows in memory would wait for it. */
INLINE void store_some(float *p, vec v, int64_t count) {
    const float *lanes = (const float *)&v;
    if (count >= VECTOR) {
        store(p, v);
        return;
    }
#if VECTOR == 16
    if (count & 8) {
        memcpy(p, lanes, 8 * sizeof *p);
        p += 8;
        lanes += 8;
    }
#endif
    if (count & 4) {
        memcpy(p, lanes, 4 * sizeof *p);
        p += 4;
        lanes += 4;
    }
    if (count & 2) {
        memcpy(p, lanes, 2 * sizeof *p);
        p += 2;
        lanes += 2;
    }
    if (count & 1) *p = *lanes;
}

INLINE vec broadcast(float x) { return x - (vec){0}; }

/* a where the comparison `mask` holds, else b; for vectors of any width. */
#define where(mask, a, b) \
    ((__typeof__(a))(((mask) & (__typeof__(mask))(a)) | (~(mask) & (__typeof__(mask))(b))))

/* The function for the width and the type of a vector. */
#if VECTOR == 4
#define FOR_TYPE(f, v) _Generic((v), vec4: f##4, ivec4: i##f##4)
#elif VECTOR == 8
#define FOR_TYPE(f, v) _Generic((v), vec4: f##4, ivec4: i##f##4, vec8: f##8, ivec8: i##f##8)
#else
#define FOR_TYPE(f, v)                                                           \
    _Generic((v), vec4: f##4, ivec4: i##f##4, vec8: f##8, ivec8: i##f##8, vec16: f##16, \
             ivec16: i##f##16)
#endif

/* larger(a, b) = b > a ? b : a and smaller(a, b) = b < a ? b : a, so NaN in either gives a. For
 * vectors of floats or integers of any width. */
#define larger(a, b) FOR_TYPE(larger, a)(a, b)
#define smaller(a, b) FOR_TYPE(smaller, a)(a, b)

/* Compilers do not find the instruction for it in `where`. */
#define EXTREMES(width, vector, more, less)                                   \
    INLINE vector larger##width(vector a, vector b) { return (vector)more; }  \
    INLINE vector smaller##width(vector a, vector b) { return (vector)less; }
#define INTEGER_EXTREMES(width, vector, more, less)                            \
    INLINE vector ilarger##width(vector a, vector b) { return (vector)more; }  \
    INLINE vector ismaller##width(vector a, vector b) { return (vector)less; }
#if defined(__SSE__)
EXTREMES(4, vec4, _mm_max_ps((__m128)b, (__m128)a), _mm_min_ps((__m128)b, (__m128)a))
#else
EXTREMES(4, vec4, where(b > a, b, a), where(b < a, b, a))
#endif
INTEGER_EXTREMES(4, ivec4, where(b > a, b, a), where(b < a, b, a))
#if VECTOR >= 8
EXTREMES(8, vec8, _mm256_max_ps((__m256)b, (__m256)a), _mm256_min_ps((__m256)b, (__m256)a))
INTEGER_EXTREMES(8, ivec8, _mm256_max_epi32((__m256i)b, (__m256i)a),
                 _mm256_min_epi32((__m256i)b, (__m256i)a))
#endif
#if VECTOR >= 16
EXTREMES(16, vec16, _mm512_max_ps((__m512)b, (__m512)a), _mm512_min_ps((__m512)b, (__m512)a))
INTEGER_EXTREMES(16, ivec16, _mm512_max_epi32((__m512i)b, (__m512i)a),
                 _mm512_min_epi32((__m512i)b, (__m512i)a))
#endif

/* The sum of all lanes of a vector of floats: halves are added to halves. */
#if VECTOR == 4
#define sum_lanes(v) sum4(v)
#elif VECTOR == 8
#define sum_lanes(v) _Generic((v), vec4: sum4, vec8: sum8)(v)
#else
#define sum_lanes(v) _Generic((v), vec4: sum4, vec8: sum8, vec16: sum16)(v)
#endif
INLINE float sum4(vec4 v) { return (v[0] + v[2]) + (v[1] + v[3]); }
#if VECTOR >= 8
INLINE float sum8(vec8 v) {
    vec4 halves[2];
    memcpy(halves, &v, sizeof v);
    return sum4(halves[0] + halves[1]);
}
#endif
#if VECTOR >= 16
INLINE float sum16(vec16 v) {
    vec8 halves[2];
    memcpy(halves, &v, sizeof v);
    return sum8(halves[0] + halves[1]);
}
#endif

INLINE int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
INLINE int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

/* Streaming stores -------------------------------------------------------------------------------
 *
 * A large array that nobody reads soon is written past the caches: memory need not be read first to
 * complete a cache line, and what is in the caches stays there. A task that streams ends with
 * `finish_streams`, so that other threads see what it wrote.
 */
enum { LINE = 64, LARGE = 1 << 20 }; /* bytes of a cache line; elements that no core's caches hold */

/* True if an array of so many floats should be written past the caches. */
INLINE bool goes_past(const float *start, int64_t elements) {
    return elements >= LARGE && (uintptr_t)start % LINE == 0;
}

INLINE void stream_floats(float *target, const float *values, int64_t count) {
#if defined(__AVX512F__)
    for (; count >= 16; count -= 16, target += 16, values += 16)
        _mm512_stream_ps(target, _mm512_loadu_ps(values));
#endif
#if defined(__AVX__)
#pragma GCC unroll 4
    for (; count >= 8; count -= 8, target += 8, values += 8)
        _mm256_stream_ps(target, _mm256_loadu_ps(values));
#endif
#if defined(__SSE__)
    for (; count >= 4; count -= 4, target += 4, values += 4)
        _mm_stream_ps(target, _mm_loadu_ps(values));
#elif defined(__clang__)
    typedef float aligned __attribute__((vector_size(16), may_alias));
    for (; count >= 4; count -= 4, target += 4, values += 4)
        __builtin_nontemporal_store((aligned) * (const vec4 *)values, (aligned *)target);
#else
    memcpy(target, values, (size_t)count * sizeof *target);
#endif
}

/* Write a vector past the caches; the address is a multiple of the vector's size. */
#define stream(target, vector)                                               \
    do {                                                                     \
        __typeof__(vector) streamed = (vector);                              \
        stream_floats(target, (const float *)&streamed, sizeof streamed / 4); \
    } while (0)

/* Write a vector, past the caches if `past`. */
#define put(target, vector, past)                          \
    do {                                                   \
        if (past)                                          \
            stream(target, vector);                        \
        else                                               \
            *(__typeof__(vector) *)(target) = (vector);    \
    } while (0)

INLINE void finish_streams(void) {
#if defined(__SSE__)
    _mm_sfence();
#else
    __atomic_thread_fence(__ATOMIC_RELEASE);
#endif
}

/* Copy floats between arrays that do not overlap; whole cache lines go past the caches. */
void stream_copy(float *target, const float *source, int64_t count);

/* Memory of a task, aligned to cache lines, with undefined contents, until it is released. */
void *allocate(int64_t bytes);
void release(void *memory);

/* Tasks ------------------------------------------------------------------------------------------
 *
 * Call task(i, args) once for every i below `count`, on at most `threads` threads, and return when
 * all have ended. What a task computes must not depend on the thread that runs it.
 */
typedef void task_fn(int64_t task, const void *args);

/* Each thread runs neighbouring tasks, the same ones every time. */
void run_tasks(int64_t count, task_fn *task, const void *args, int64_t threads);
/* The same, but each thread goes from its last task to its first: what was written last by the
 * kernel before is still in the caches. */
void run_tasks_backward(int64_t count, task_fn *task, const void *args, int64_t threads);
/* Threads take the next task in turns, so that a core that does other work, too, does fewer. */
void run_tasks_in_turns(int64_t count, task_fn *task, const void *args, int64_t threads);
