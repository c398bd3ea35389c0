#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#ifndef CUPYCPU_SYM
#define CUPYCPU_SYM
static void* cupycpu_sym(const char* n) {
  static void* h;
  if (!h) h = dlopen(getenv("CUDAEMU_LIB"), RTLD_NOW | RTLD_GLOBAL);
  void* p = h ? dlsym(h, n) : 0;
  if (!p) {
    fprintf(stderr, "cupycpu: no %s in libcudaemu: %s\n", n, dlerror());
    abort();
  }
  return p;
}
#endif

#define CUPYCPU_FLUSH                         \
  {                                           \
    typedef void (*F)();                      \
    static F f = (F)cupycpu_sym("emu_flush"); \
    f();                                      \
  }
#include <vector>
#include <algorithm>
#include <stdexcept>
#include <stdint.h>
#include <cmath>
template <class T>
static bool cupycpu_lt(T a, T b) {
  return a < b || (b != b && a == a);
}
template <class T, class F>
static void cupycpu_rows(const std::vector<ptrdiff_t>& s, F f) {
  size_t n = s.empty() ? 1 : s.back(), r = 1;
  for (size_t i = 0; i + 1 < s.size(); i++) r *= s[i];
  for (size_t i = 0; i < r; i++) f(i * n, n);
}
template <class T>
static void cupycpu_sort(void* p, const std::vector<ptrdiff_t>& s) {
  T* d = (T*)p;
  cupycpu_rows<T>(s,
                  [&](size_t o, size_t n) { std::stable_sort(d + o, d + o + n, cupycpu_lt<T>); });
}
template <class T>
static void cupycpu_argsort(size_t* ix, void* p, const std::vector<ptrdiff_t>& s) {
  T* d = (T*)p;
  cupycpu_rows<T>(s, [&](size_t o, size_t n) {
    for (size_t i = 0; i < n; i++) ix[o + i] = i;
    std::stable_sort(ix + o, ix + o + n,
                     [&](size_t a, size_t b) { return cupycpu_lt<T>(d[o + a], d[o + b]); });
    T* t = new T[n];
    for (size_t i = 0; i < n; i++) t[i] = d[o + ix[o + i]];
    std::copy(t, t + n, d + o);
    delete[] t;
  });
}
#define CUPYCPU_SW(F, ...)                                                      \
  switch (ty) {                                                                 \
    case 0:                                                                     \
      F<int8_t>(__VA_ARGS__);                                                   \
      break;                                                                    \
    case 1:                                                                     \
      F<uint8_t>(__VA_ARGS__);                                                  \
      break;                                                                    \
    case 2:                                                                     \
      F<int16_t>(__VA_ARGS__);                                                  \
      break;                                                                    \
    case 3:                                                                     \
      F<uint16_t>(__VA_ARGS__);                                                 \
      break;                                                                    \
    case 4:                                                                     \
      F<int32_t>(__VA_ARGS__);                                                  \
      break;                                                                    \
    case 5:                                                                     \
      F<uint32_t>(__VA_ARGS__);                                                 \
      break;                                                                    \
    case 6:                                                                     \
      F<int64_t>(__VA_ARGS__);                                                  \
      break;                                                                    \
    case 7:                                                                     \
      F<uint64_t>(__VA_ARGS__);                                                 \
      break;                                                                    \
    case 9:                                                                     \
      F<float>(__VA_ARGS__);                                                    \
      break;                                                                    \
    case 10:                                                                    \
      F<double>(__VA_ARGS__);                                                   \
      break;                                                                    \
    case 13:                                                                    \
      F<bool>(__VA_ARGS__);                                                     \
      break;                                                                    \
    default:                                                                    \
      throw std::runtime_error("CPU CuPy: sort of this dtype is not emulated"); \
  }
static void thrust_sort(int ty, void* d, size_t*, const std::vector<ptrdiff_t>& s, intptr_t,
                        void*) {
  CUPYCPU_FLUSH CUPYCPU_SW(cupycpu_sort, d, s)
}
static void thrust_lexsort(...) { throw std::runtime_error("CPU CuPy: lexsort is not emulated"); }
static void thrust_argsort(int ty, size_t* ix, void* d, void*, const std::vector<ptrdiff_t>& s,
                           intptr_t, void*) {
  CUPYCPU_FLUSH CUPYCPU_SW(cupycpu_argsort, ix, d, s)
}
