// Runs CUDA C++ kernels on the CPU, on one OS thread, deterministically; for tests only.
//
// Blocks run one after another. Threads of a block run as a plain loop, or, if the source has
// barriers, as fibers that switch at each barrier. The order of threads and blocks is selectable
// (forward, reverse, shuffled), so that a test can prove that results do not depend on it. Shared
// memory holds NaNs when a block starts. Grids and blocks have one dimension, as all ours have.
#pragma once
#include <float.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <type_traits>
#include <utility>
#if defined(__x86_64__)
#include <xmmintrin.h>
#else
#include <ucontext.h>
#endif

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __shared__ static __attribute__((section("cudaemu_shared")))

struct uint3 {
  unsigned x, y, z;
};
static uint3 threadIdx, blockIdx, blockDim, gridDim;

namespace cudaemu {

enum State : unsigned char { READY, AT_BARRIER, DONE };
typedef void (*Body)(void*);
struct Fiber {
  void* place;
  char* stack;
  State state;
};
static const size_t STACK = 65536;
static Fiber* fibers;
static unsigned current;
static void* scheduler;
static Body body;
static void* arguments;
static bool in_fiber;
static char message[256];

static void fail(const char* what) {
  if (!message[0])
    snprintf(message, sizeof message, "%s (block %u, thread %u)", what, blockIdx.x, threadIdx.x);
}

// Switching stacks: our own few instructions where possible, because swapcontext asks the kernel.
#if defined(__x86_64__)
extern "C" void cudaemu_switch(void** from, void* to) __attribute__((visibility("hidden")));
__asm__(
    ".text\n.hidden cudaemu_switch\n.globl cudaemu_switch\n"
    ".type cudaemu_switch,@function\ncudaemu_switch:\n"
    "pushq %rbp\npushq %rbx\npushq %r12\npushq %r13\npushq %r14\npushq %r15\n"
    "movq %rsp,(%rdi)\nmovq %rsi,%rsp\n"
    "popq %r15\npopq %r14\npopq %r13\npopq %r12\npopq %rbx\npopq %rbp\nret\n");
static void leave() { cudaemu_switch(&fibers[current].place, scheduler); }
static void enter(unsigned thread) { cudaemu_switch(&scheduler, fibers[thread].place); }
static void entry();
static void prepare(Fiber& fiber) {
  void** top = (void**)((uintptr_t)(fiber.stack + STACK) & ~(uintptr_t)15);
  *--top = 0;
  *--top = (void*)entry;
  for (int i = 0; i < 6; i++) *--top = 0;
  fiber.place = top;
}
#else
static ucontext_t home;
static void leave() { swapcontext((ucontext_t*)fibers[current].place, &home); }
static void enter(unsigned thread) { swapcontext(&home, (ucontext_t*)fibers[thread].place); }
static void entry();
static void prepare(Fiber& fiber) {
  if (!fiber.place) fiber.place = malloc(sizeof(ucontext_t));
  ucontext_t* context = (ucontext_t*)fiber.place;
  getcontext(context);
  context->uc_stack.ss_sp = fiber.stack;
  context->uc_stack.ss_size = STACK;
  context->uc_link = &home;
  makecontext(context, entry, 0);
}
#endif

static void entry() {
  body(arguments);
  fibers[current].state = DONE;
  leave();
  abort();
}

static void barrier() {
  if (!in_fiber) return fail("barrier in a kernel that was not compiled for barriers");
  fibers[current].state = AT_BARRIER;
  leave();
  __asm__ __volatile__("" ::: "memory");
}

static uint64_t random_state;
static uint64_t random_number() {
  random_state ^= random_state << 13;
  random_state ^= random_state >> 7;
  return random_state ^= random_state << 17;
}

// order: 0 forward, 1 reverse, 2 and above shuffled with that seed.
static void fill_order(unsigned* order_of, unsigned n, int order) {
  for (unsigned i = 0; i < n; i++) order_of[i] = order == 1 ? n - 1 - i : i;
  if (order < 2) return;
  for (unsigned i = n - 1; i > 0; i--) {
    unsigned j = random_number() % (i + 1), kept = order_of[i];
    order_of[i] = order_of[j];
    order_of[j] = kept;
  }
}

static void run_fibers(const unsigned* order_of) {
  unsigned n = blockDim.x;
  for (unsigned i = 0; i < n; i++) fibers[i].state = READY, prepare(fibers[i]);
  for (;;) {
    unsigned done = 0;
    for (unsigned i = 0; i < n; i++) {
      current = threadIdx.x = order_of[i];
      if (fibers[current].state == READY) enter(current);
    }
    for (unsigned i = 0; i < n; i++) done += fibers[i].state == DONE;
    if (done == n) return;
    if (done) return fail("a barrier that some threads never reach");
    for (unsigned i = 0; i < n; i++) fibers[i].state = READY;
  }
}

extern "C" char __start_cudaemu_shared[] __attribute__((weak));
extern "C" char __stop_cudaemu_shared[] __attribute__((weak));

static void run(unsigned blocks, unsigned threads, bool with_barriers, int order) {
  static unsigned *thread_order, *block_order, prepared;
  message[0] = 0;
  random_state = 88172645463325252ull + order * 7919ull;
  gridDim = {blocks, 1, 1}, blockDim = {threads, 1, 1};
  thread_order = (unsigned*)realloc(thread_order, threads * sizeof(unsigned));
  block_order = (unsigned*)realloc(block_order, blocks * sizeof(unsigned));
  fill_order(thread_order, threads, order);
  fill_order(block_order, blocks, order);
  if (with_barriers && prepared < threads) {
    fibers = (Fiber*)realloc(fibers, threads * sizeof(Fiber));
    for (; prepared < threads; prepared++)
      fibers[prepared] = {nullptr, (char*)malloc(STACK), READY};
  }
#if defined(__x86_64__)
  unsigned control = _mm_getcsr();
  _mm_setcsr(control | 0x8040);  // denormals are zero: CuPy compiles with -ftz=true
#endif
  in_fiber = with_barriers;
  for (unsigned b = 0; b < blocks && !message[0]; b++) {
    blockIdx.x = block_order[b];
    if (__start_cudaemu_shared)
      memset(__start_cudaemu_shared, 0xff, __stop_cudaemu_shared - __start_cudaemu_shared);
    if (with_barriers) {
      run_fibers(thread_order);
    } else {
      for (unsigned i = 0; i < threads; i++) threadIdx.x = thread_order[i], body(arguments);
    }
  }
#if defined(__x86_64__)
  _mm_setcsr(control);
#endif
}

// Launching a kernel of any signature with pointers to its arguments.
template <class... A, size_t... I>
static void call(void (*kernel)(A...), void** values, std::index_sequence<I...>) {
  kernel(*(std::remove_cv_t<A>*)values[I]...);
}
template <class... A>
struct Call {
  void (*kernel)(A...);
  void** values;
  static void run(void* self) {
    Call* c = (Call*)self;
    call(c->kernel, c->values, std::index_sequence_for<A...>{});
  }
};
template <class... A>
static const char* launch(void (*kernel)(A...), void** values, unsigned blocks, unsigned threads,
                          int with_barriers, int order) {
  Call<A...> call{kernel, values};
  body = Call<A...>::run;
  arguments = &call;
  run(blocks, threads, with_barriers, order);
  return message;
}

// The signature as text: "i8 cPf4 Pf4 f4 ".
template <class T>
static void code(char* out) {
  using U = std::remove_cv_t<T>;
  if constexpr (std::is_pointer_v<U>) {
    using E = std::remove_pointer_t<U>;
    strcat(out, std::is_const_v<E> ? "cP" : "P");
    code<E>(out);
  } else {
    char kind = std::is_floating_point_v<U> ? 'f' : std::is_signed_v<U> ? 'i' : 'u';
    char text[8];
    snprintf(text, sizeof text, "%c%d ", kind, (int)sizeof(U));
    strcat(out, text);
  }
}
template <class... A>
static const char* signature(void (*)(A...)) {
  static char out[16 * (sizeof...(A) + 1)];
  out[0] = 0;
  (code<A>(out), ...);
  return out;
}

}  // namespace cudaemu

#define CUDAEMU_EXPORT(NAME)                                                                  \
  extern "C" const char* launch_##NAME(void** values, unsigned blocks, unsigned threads,      \
                                       int with_barriers, int order) {                        \
    return cudaemu::launch(&NAME, values, blocks, threads, with_barriers, order);             \
  }                                                                                           \
  extern "C" const char* signature_##NAME() { return cudaemu::signature(&NAME); }

// What CUDA C has and C++ lacks, as far as our kernels use it.
static inline void __syncthreads() { cudaemu::barrier(); }
static inline void __threadfence() {}
static inline int atomicAdd(int* sum, int more) {
  int before = *sum;
  *sum += more;
  return before;
}
template <class A, class B>
static inline std::common_type_t<A, B> max(A a, B b) {
  return a != a ? b : b != b ? a : a > b ? a : b;
}
template <class A, class B>
static inline std::common_type_t<A, B> min(A a, B b) {
  return a != a ? b : b != b ? a : a < b ? a : b;
}
static inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
static inline unsigned __umulhi(unsigned a, unsigned b) {
  return (unsigned)(((unsigned long long)a * b) >> 32);
}
static inline unsigned __float_as_uint(float f) {
  unsigned bits;
  memcpy(&bits, &f, sizeof bits);
  return bits;
}
static inline float __uint_as_float(unsigned bits) {
  float f;
  memcpy(&f, &bits, sizeof f);
  return f;
}
