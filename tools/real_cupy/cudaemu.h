// cudaemu.h -- run CUDA C++ kernel source on the CPU, single OS thread, deterministic.
// Semantics: blocks run one after another; threads of a block run either as a plain loop
// (kernel without barriers) or as cooperative fibers (__syncthreads, __syncwarp, __shfl*).
// Thread order is selectable (fwd/rev/shuffled) so that a test can prove results do not
// depend on it; shared memory is poisoned before each block.
#pragma once
#include <math.h>
#include <stdint.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <float.h>
#include <limits.h>
#include <assert.h>
#include <type_traits>
#include <utility>
#if defined(__x86_64__)
#include <xmmintrin.h>
#include <pmmintrin.h>
#else
#include <ucontext.h>
#endif

#define __CUDAEMU__ 1
#define __global__
#define __device__
#define __host__
#define __constant__
#define __managed__
#define __grid_constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
// `extern __shared__ T name[];` is rewritten by the host side before compilation.
#define __shared__ static __attribute__((section("cudaemu_shared")))

struct uint3 {
  unsigned x, y, z;
};
struct dim3 {
  unsigned x, y, z;
  dim3(unsigned a = 1, unsigned b = 1, unsigned c = 1) : x(a), y(b), z(c) {}
};
#define CUDAEMU_VEC(T, N)                                                         \
  struct N##2 { T x, y; };                                                        \
  struct N##3 { T x, y, z; };                                                     \
  struct alignas(4 * sizeof(T) > 16 ? 16 : 4 * sizeof(T)) N##4 { T x, y, z, w; }; \
  static inline N##2 make_##N##2(T a, T b) { return {a, b}; }                     \
  static inline N##3 make_##N##3(T a, T b, T c) { return {a, b, c}; }             \
  static inline N##4 make_##N##4(T a, T b, T c, T d) { return {a, b, c, d}; }
CUDAEMU_VEC(float, float)
CUDAEMU_VEC(double, double) CUDAEMU_VEC(int, int)

    namespace cudaemu {
  static uint3 tid, bid;
  static dim3 bdim, gdim;
  enum St : unsigned char { RUN, BLOCK, WARP, DONE };
  typedef void (*thunk_t)(void*);
  struct Fiber {
    void* sp;
    void* stack;
    St st;
    uint3 t;
  };
  static Fiber* fib;
  static int cur;
  static void* sched_sp;
  static thunk_t g_fn;
  static void* g_arg;
  static char dynshared[232448] __attribute__((aligned(128)));
  static char errbuf[512];
  static int failed;
  static bool in_fiber;
  static bool strict;
  static inline void fail(const char* m) {
    if (!failed) {
      failed = 1;
      snprintf(errbuf, sizeof errbuf, "%s (block %u,%u,%u thread %u,%u,%u)", m, bid.x, bid.y, bid.z,
               tid.x, tid.y, tid.z);
    }
  }
#if defined(__x86_64__)
  extern "C" void cudaemu_switch(void** from, void* to) __attribute__((visibility("hidden")));
  __asm__(
      ".text\n.hidden cudaemu_switch\n.globl cudaemu_switch\n.type "
      "cudaemu_switch,@function\ncudaemu_switch:\n"
      "pushq %rbp\npushq %rbx\npushq %r12\npushq %r13\npushq %r14\npushq %r15\n"
      "movq %rsp,(%rdi)\nmovq %rsi,%rsp\n"
      "popq %r15\npopq %r14\npopq %r13\npopq %r12\npopq %rbx\npopq %rbp\nret\n");
  static void entry() {
    g_fn(g_arg);
    fib[cur].st = DONE;
    cudaemu_switch(&fib[cur].sp, sched_sp);
    abort();
  }
  static void prep(Fiber & f, size_t sz) {
    void** p = (void**)((char*)f.stack + sz);
    p = (void**)((uintptr_t)p & ~(uintptr_t)15);
    *--p = 0;
    *--p = (void*)entry;
    for (int i = 0; i < 6; i++) *--p = 0;
    f.sp = p;
  }
  static __attribute__((noinline)) void yield_to_sched() { cudaemu_switch(&fib[cur].sp, sched_sp); }
  static void resume(int i) {
    cur = i;
    tid = fib[i].t;
    cudaemu_switch(&sched_sp, fib[i].sp);
  }
#else
  static ucontext_t sched_uc;
  static void entry() {
    g_fn(g_arg);
    fib[cur].st = DONE;
    swapcontext((ucontext_t*)fib[cur].sp, &sched_uc);
  }
  static void prep(Fiber & f, size_t sz) {
    static_assert(sizeof(ucontext_t) < 65536, "");
    ucontext_t* u = (ucontext_t*)malloc(sizeof(ucontext_t));
    getcontext(u);
    u->uc_stack.ss_sp = f.stack;
    u->uc_stack.ss_size = sz;
    u->uc_link = &sched_uc;
    makecontext(u, entry, 0);
    f.sp = u;
  }
  static __attribute__((noinline)) void yield_to_sched() {
    swapcontext((ucontext_t*)fib[cur].sp, &sched_uc);
  }
  static void resume(int i) {
    cur = i;
    tid = fib[i].t;
    swapcontext(&sched_uc, (ucontext_t*)fib[i].sp);
  }
#endif
  static inline void bar(St s) {
    if (!in_fiber) {
      if (bdim.x * bdim.y * bdim.z == 1) return;
      fail("barrier reached in a launch without fibers");
      return;
    }
    fib[cur].st = s;
    yield_to_sched();
    __asm__ __volatile__("" ::: "memory");
  }
  static uint64_t rng = 88172645463325252ull;
  static inline uint64_t rnd() {
    rng ^= rng << 13;
    rng ^= rng >> 7;
    rng ^= rng << 17;
    return rng;
  }
  extern "C" char __start_cudaemu_shared[] __attribute__((weak));
  extern "C" char __stop_cudaemu_shared[] __attribute__((weak));
  static union {
    char b[16];
  } warpbuf[1024];
  static int lane_ok[1024];
  static inline uint3 unflat(unsigned i) {
    uint3 r;
    r.x = i % bdim.x;
    r.y = (i / bdim.x) % bdim.y;
    r.z = i / (bdim.x * bdim.y);
    return r;
  }
  static inline unsigned flat() { return tid.x + bdim.x * (tid.y + bdim.y * tid.z); }
  // order: 0 forward, 1 reverse, >=2 shuffled with that seed
  static void run(thunk_t fn, void* arg, dim3 g, dim3 b, size_t dyn, int fibers, int order) {
    gdim = g;
    bdim = b;
    failed = 0;
    {
      const char* e = getenv("CUDAEMU_STRICT");
      strict = !e || *e != '0';
    }
    unsigned n = b.x * b.y * b.z;
    rng = 88172645463325252ull + order * 7919ull;
    static unsigned* perm;
    static unsigned permcap;
    if (permcap < n) {
      perm = (unsigned*)realloc(perm, n * sizeof(unsigned));
      permcap = n;
    }
    for (unsigned i = 0; i < n; i++) perm[i] = order == 1 ? n - 1 - i : i;
    if (order >= 2)
      for (unsigned i = n - 1; i > 0; i--) {
        unsigned j = rnd() % (i + 1);
        unsigned t = perm[i];
        perm[i] = perm[j];
        perm[j] = t;
      }
    const size_t SZ = 65536;
    static Fiber* pool;
    static unsigned poolcap;
    if (fibers && poolcap < n) {
      pool = (Fiber*)realloc(pool, n * sizeof(Fiber));
      for (unsigned i = poolcap; i < n; i++) pool[i].stack = malloc(SZ);
      poolcap = n;
    }
    fib = pool;
    g_fn = fn;
    g_arg = arg;
#if defined(__x86_64__)
    unsigned csr = _mm_getcsr();
    _mm_setcsr(csr | 0x8040);  // FTZ|DAZ: CuPy compiles with -ftz=true
#endif
    uint64_t nb = (uint64_t)g.x * g.y * g.z;
    for (uint64_t q = 0; q < nb && !failed; q++) {
      uint64_t k = order == 1 ? nb - 1 - q : q;
      bid.x = k % g.x;
      bid.y = (k / g.x) % g.y;
      bid.z = k / ((uint64_t)g.x * g.y);
      if (__start_cudaemu_shared)
        memset(__start_cudaemu_shared, 0xff, __stop_cudaemu_shared - __start_cudaemu_shared);
      if (dyn) memset(dynshared, 0xff, dyn);
      if (!fibers) {
        in_fiber = false;
        for (unsigned i = 0; i < n; i++) {
          tid = unflat(perm[i]);
          fn(arg);
        }
        continue;
      }
      in_fiber = true;
      for (unsigned i = 0; i < n; i++) {
        fib[i].st = RUN;
        fib[i].t = unflat(i);
        prep(fib[i], SZ);
      }
      for (;;) {
        unsigned ran = 0, done = 0, blk = 0;
        for (unsigned i = 0; i < n; i++) {
          unsigned j = perm[i];
          if (fib[j].st == RUN) {
            resume(j);
            ran++;
          }
        }
        for (unsigned i = 0; i < n; i++) {
          done += fib[i].st == DONE;
          blk += fib[i].st == BLOCK;
        }
        if (done == n) break;
        unsigned rel = 0;
        for (unsigned w = 0; w < n; w += 32) {
          unsigned e = w + 32 < n ? w + 32 : n, a = 0, d = 0;
          for (unsigned i = w; i < e; i++) {
            a += fib[i].st == WARP;
            d += fib[i].st == DONE;
          }
          if (a && a + d == e - w) {
            for (unsigned i = w; i < e; i++)
              if (fib[i].st == WARP) {
                fib[i].st = RUN;
                rel++;
              }
          }
        }
        if (blk && blk + done == n) {
          if (done && strict) {
            tid = fib[0].t;
            fail("__syncthreads() not reached by threads that already returned");
            break;
          }
          for (unsigned i = 0; i < n; i++)
            if (fib[i].st == BLOCK) fib[i].st = RUN;
          rel = n;
        }
        if (!rel && !ran) {
          fail("deadlock: divergent barrier");
          break;
        }
      }
    }
#if defined(__x86_64__)
    _mm_setcsr(csr);
#endif
  }
  // ---- typed launch -------------------------------------------------------
  template <class... A, size_t... I>
  static inline void call_(void (*f)(A...), void** a, std::index_sequence<I...>) {
    f(*(typename std::remove_const<typename std::remove_reference<A>::type>::type*)a[I]...);
  }
  template <class... A>
  struct Ctx {
    void (*f)(A...);
    void** a;
  };
  template <class... A>
  static void thunk(void* p) {
    Ctx<A...>* c = (Ctx<A...>*)p;
    call_(c->f, c->a, std::index_sequence_for<A...>{});
  }
  template <class... A>
  static int launch(void (*f)(A...), void** args, const unsigned* d, size_t dyn, int fibers,
                    int order, char* err, size_t nerr) {
    Ctx<A...> c{f, args};
    run(thunk<A...>, &c, dim3(d[0], d[1], d[2]), dim3(d[3], d[4], d[5]), dyn, fibers, order);
    if (failed && err) snprintf(err, nerr, "%s", errbuf);
    return failed;
  }
  template <class T>
  static const char* tcode() {
    typedef typename std::remove_cv<T>::type U;
    if (std::is_pointer<U>::value) return "P";
    if (std::is_same<U, bool>::value) return "b1";
    if (std::is_floating_point<U>::value) return sizeof(U) == 4 ? "f4" : "f8";
    if (std::is_integral<U>::value) {
      bool s = std::is_signed<U>::value;
      switch (sizeof(U)) {
        case 1:
          return s ? "i1" : "u1";
        case 2:
          return s ? "i2" : "u2";
        case 4:
          return s ? "i4" : "u4";
        default:
          return s ? "i8" : "u8";
      }
    }
    return "S";
  }
  template <class T>
  static void sig1(char* b) {
    typedef typename std::remove_cv<T>::type U;
    typedef typename std::remove_pointer<U>::type E;
    if (std::is_pointer<U>::value) {
      strcat(b, std::is_const<E>::value ? "c" : "");
      strcat(b, "P");
      strcat(b, std::is_void<E>::value
                    ? "v"
                    : tcode<typename std::conditional<std::is_void<E>::value, char, E>::type>());
    } else {
      strcat(b, tcode<U>());
      if (!strcmp(tcode<U>(), "S")) {
        char t[24];
        snprintf(t, 24, "%zu", sizeof(U));
        strcat(b, t);
      }
    }
    strcat(b, ",");
  }
  template <class... A>
  static const char* sig(void (*)(A...)) {
    static char b[64 + 16 * (sizeof...(A) + 1)];
    b[0] = 0;
    int _[] = {0, (sig1<A>(b), 0)...};
    (void)_;
    return b;
  }
  template <class... A>
  static int sizes(void (*)(A...), size_t* o) {
    size_t s[] = {sizeof(typename std::decay<A>::type)..., 0};
    for (size_t i = 0; i < sizeof...(A); i++) o[i] = s[i];
    return sizeof...(A);
  }
}  // namespace cudaemu
#define CUDAEMU_EXPORT(ID, EXPR)                                                                \
  extern "C" __attribute__((visibility("default"))) int cudaemu_sizes_##ID(size_t* o) {         \
    return cudaemu::sizes(EXPR, o);                                                             \
  }                                                                                             \
  extern "C" __attribute__((visibility("default"))) int cudaemu_launch_##ID(                    \
      void** a, const unsigned* d, size_t dyn, int fibers, int order, char* err, size_t nerr) { \
    return cudaemu::launch(EXPR, a, d, dyn, fibers, order, err, nerr);                          \
  }                                                                                             \
  extern "C" __attribute__((visibility("default"))) const char* cudaemu_sig_##ID() {            \
    return cudaemu::sig(EXPR);                                                                  \
  }

#define threadIdx (cudaemu::tid)
#define blockIdx (cudaemu::bid)
#define blockDim (cudaemu::bdim)
#define gridDim (cudaemu::gdim)
#define warpSize 32
static inline void __syncthreads() { cudaemu::bar(cudaemu::BLOCK); }
static inline void __syncwarp(unsigned = 0xffffffffu) { cudaemu::bar(cudaemu::WARP); }
static inline void __threadfence() {}
static inline void __threadfence_block() {}
static inline void __threadfence_system() {}
template <class T>
static inline T cudaemu_shfl(T v, int src) {
  unsigned t = cudaemu::flat();
  static_assert(sizeof(T) <= 16, "");
  memcpy(&cudaemu::warpbuf[t], &v, sizeof v);
  cudaemu::bar(cudaemu::WARP);
  T r;
  memcpy(&r, &cudaemu::warpbuf[(t & ~31u) | (unsigned)src], sizeof r);
  cudaemu::bar(cudaemu::WARP);
  return r;
}
template <class T>
static inline T __shfl_sync(unsigned, T v, int s, int w = 32) {
  int l = cudaemu::flat() & 31;
  return cudaemu_shfl(v, (l & ~(w - 1)) | (s & (w - 1)));
}
template <class T>
static inline T __shfl_down_sync(unsigned, T v, unsigned d, int w = 32) {
  int l = cudaemu::flat() & 31;
  int s = l + (int)d;
  return cudaemu_shfl(v, (s & ~(w - 1)) == (l & ~(w - 1)) ? s : l);
}
template <class T>
static inline T __shfl_up_sync(unsigned, T v, unsigned d, int w = 32) {
  int l = cudaemu::flat() & 31;
  int s = l - (int)d;
  return cudaemu_shfl(v, s >= (l & ~(w - 1)) ? s : l);
}
template <class T>
static inline T __shfl_xor_sync(unsigned, T v, int m, int w = 32) {
  int l = cudaemu::flat() & 31;
  int s = l ^ m;
  return cudaemu_shfl(v, (s & ~(w - 1)) == (l & ~(w - 1)) ? s : l);
}
static inline unsigned __ballot_sync(unsigned, int p) {
  unsigned r = 0, t = cudaemu::flat();
  memcpy(&cudaemu::warpbuf[t], &p, 4);
  cudaemu::bar(cudaemu::WARP);
  unsigned n = cudaemu::bdim.x * cudaemu::bdim.y * cudaemu::bdim.z;
  for (unsigned i = 0; i < 32 && (t & ~31u) + i < n; i++) {
    int q;
    memcpy(&q, &cudaemu::warpbuf[(t & ~31u) + i], 4);
    if (q) r |= 1u << i;
  }
  cudaemu::bar(cudaemu::WARP);
  return r;
}
static inline int __any_sync(unsigned m, int p) { return __ballot_sync(m, p) != 0; }
static inline int __syncthreads_or(int p) {
  static int acc;
  if (cudaemu::flat() == 0) {
  }
  __syncthreads();
  acc = 0;
  __syncthreads();
  acc |= p != 0;
  __syncthreads();
  int r = acc;
  __syncthreads();
  return r;
}
// ---- atomics (single OS thread: plain read-modify-write is exact) ---------
#define CUDAEMU_AT(T)                     \
  static inline T atomicAdd(T* p, T v) {  \
    T o = *p;                             \
    *p = (T)(o + v);                      \
    return o;                             \
  }                                       \
  static inline T atomicSub(T* p, T v) {  \
    T o = *p;                             \
    *p = (T)(o - v);                      \
    return o;                             \
  }                                       \
  static inline T atomicMax(T* p, T v) {  \
    T o = *p;                             \
    if (v > o) *p = v;                    \
    return o;                             \
  }                                       \
  static inline T atomicMin(T* p, T v) {  \
    T o = *p;                             \
    if (v < o) *p = v;                    \
    return o;                             \
  }                                       \
  static inline T atomicExch(T* p, T v) { \
    T o = *p;                             \
    *p = v;                               \
    return o;                             \
  }
#define CUDAEMU_AI(T)                         \
  static inline T atomicCAS(T* p, T c, T v) { \
    T o = *p;                                 \
    if (o == c) *p = v;                       \
    return o;                                 \
  }                                           \
  static inline T atomicAnd(T* p, T v) {      \
    T o = *p;                                 \
    *p = o & v;                               \
    return o;                                 \
  }                                           \
  static inline T atomicOr(T* p, T v) {       \
    T o = *p;                                 \
    *p = o | v;                               \
    return o;                                 \
  }                                           \
  static inline T atomicXor(T* p, T v) {      \
    T o = *p;                                 \
    *p = o ^ v;                               \
    return o;                                 \
  }
CUDAEMU_AT(int)
CUDAEMU_AT(unsigned) CUDAEMU_AT(unsigned long long) CUDAEMU_AI(int) CUDAEMU_AI(unsigned)
    CUDAEMU_AI(unsigned long long)
        CUDAEMU_AI(unsigned short) static inline float atomicAdd(float* p, float v) {
  float o = *p;
  *p = o + v;
  return o;
}
static inline double atomicAdd(double* p, double v) {
  double o = *p;
  *p = o + v;
  return o;
}
static inline float atomicExch(float* p, float v) {
  float o = *p;
  *p = v;
  return o;
}
static inline unsigned atomicInc(unsigned* p, unsigned m) {
  unsigned o = *p;
  *p = o >= m ? 0 : o + 1;
  return o;
}
// ---- math -----------------------------------------------------------------
template <class A, class B, class R = typename std::common_type<A, B>::type,
          class = typename std::enable_if<std::is_arithmetic<A>::value &&
                                          std::is_arithmetic<B>::value>::type>
static inline R max(A a, B b) {
  R x = a, y = b;
  return x != x ? y : (y != y ? x : (x > y ? x : y));
}
template <class A, class B, class R = typename std::common_type<A, B>::type,
          class = typename std::enable_if<std::is_arithmetic<A>::value &&
                                          std::is_arithmetic<B>::value>::type>
static inline R min(A a, B b) {
  R x = a, y = b;
  return x != x ? y : (y != y ? x : (x < y ? x : y));
}
static inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
static inline double rsqrt(double x) { return 1.0 / sqrt(x); }
static inline float rsqrt(float x) { return rsqrtf(x); }
static inline float rcbrtf(float x) { return 1.0f / cbrtf(x); }
static inline double rcbrt(double x) { return 1.0 / cbrt(x); }
// glibc declares __expf & co. itself: macros
#define __expf(x) expf(x)
#define __logf(x) logf(x)
#define __log2f(x) log2f(x)
#define __log10f(x) log10f(x)
#define __powf(x, y) powf(x, y)
#define __sinf(x) sinf(x)
#define __cosf(x) cosf(x)
#define __tanf(x) tanf(x)
#define __exp10f(x) exp10f(x)
static inline float __fdividef(float a, float b) { return a / b; }
static inline float fdividef(float a, float b) { return a / b; }
static inline float __frcp_rn(float x) { return 1.0f / x; }
static inline float __fsqrt_rn(float x) { return sqrtf(x); }
static inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
static inline float __fadd_rn(float a, float b) { return a + b; }
static inline float __fmul_rn(float a, float b) { return a * b; }
static inline float __saturatef(float x) {
  return x != x ? 0.f : (x < 0 ? 0.f : (x > 1 ? 1.f : x));
}
static inline double sinpi(double x) { return sin(M_PI * x); }
static inline double cospi(double x) { return cos(M_PI * x); }
static inline float sinpif(float x) { return sinf((float)M_PI * x); }
static inline float cospif(float x) { return cosf((float)M_PI * x); }
template <class T>
static inline T __ldg(const T* p) {
  return *p;
}
static inline int __popc(unsigned x) { return __builtin_popcount(x); }
static inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
static inline int __clz(int x) { return x ? __builtin_clz(x) : 32; }
static inline int __ffs(int x) { return __builtin_ffs(x); }
static inline unsigned __umulhi(unsigned a, unsigned b) {
  return (unsigned)(((unsigned long long)a * b) >> 32);
}
static inline int __mul24(int a, int b) { return a * b; }
static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return (unsigned long long)(((unsigned __int128)a * b) >> 64);
}
static inline int __float_as_int(float f) {
  int r;
  memcpy(&r, &f, 4);
  return r;
}
static inline float __int_as_float(int i) {
  float r;
  memcpy(&r, &i, 4);
  return r;
}
static inline unsigned __float_as_uint(float f) {
  unsigned r;
  memcpy(&r, &f, 4);
  return r;
}
static inline float __uint_as_float(unsigned i) {
  float r;
  memcpy(&r, &i, 4);
  return r;
}
static inline long long __double_as_longlong(double f) {
  long long r;
  memcpy(&r, &f, 8);
  return r;
}
static inline double __longlong_as_double(long long i) {
  double r;
  memcpy(&r, &i, 8);
  return r;
}
static inline int __float2int_rn(float x) { return (int)rintf(x); }
static inline int __float2int_rd(float x) { return (int)floorf(x); }
static inline int __float2int_rz(float x) { return (int)x; }
static inline float __int2float_rn(int x) { return (float)x; }
// IEEE binary16 (F16C-free, round to nearest even)
static inline unsigned short __float2half_rn(float f) {
  _Float16 h = (_Float16)f;
  unsigned short r;
  memcpy(&r, &h, 2);
  return r;
}
static inline float __half2float(unsigned short u) {
  _Float16 h;
  memcpy(&h, &u, 2);
  return (float)h;
}
template <class H>
static inline unsigned short __half_as_ushort(const H& h) {
  unsigned short r;
  memcpy(&r, &h, 2);
  return r;
}
#define __ushort_as_half(v) \
  __half_raw { v }  // cupy/float16.cuh
static inline long long clock64() { return 0; }
static inline int clock() { return 0; }
#define __trap() abort()
