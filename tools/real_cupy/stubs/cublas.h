//: head
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
#include <stdlib.h>
#include <string.h>
#include <stdio.h>
template <class T>
static void cupycpu_gemm(int ta, int tb, int m, int n, int k, T al, const T* A, int lda, const T* B,
                         int ldb, T be, T* C, int ldc) {
  T* P = (T*)malloc(sizeof(T) * ((size_t)m * k + 1));  // op(A) as m x k column-major
  for (int p = 0; p < k; p++)
    for (int i = 0; i < m; i++)
      P[(size_t)p * m + i] = ta ? A[(size_t)i * lda + p] : A[(size_t)p * lda + i];
  for (int j = 0; j < n; j++) {
    T* c = C + (size_t)j * ldc;
    if (be == 0)
      for (int i = 0; i < m; i++) c[i] = 0;
    else if (be != 1)
      for (int i = 0; i < m; i++) c[i] *= be;
    for (int p = 0; p < k; p++) {
      T b = al * (tb ? B[(size_t)p * ldb + j] : B[(size_t)j * ldb + p]);
      const T* a = P + (size_t)p * m;
      for (int i = 0; i < m; i++) c[i] += a[i] * b;
    }
  }
  free(P);
}
#define CUPYCPU_FLUSH                         \
  {                                           \
    typedef void (*F)();                      \
    static F f = (F)cupycpu_sym("emu_flush"); \
    f();                                      \
  }

//: cublasGetPointerMode
cublasStatus_t cublasGetPointerMode(cublasHandle_t, cublasPointerMode_t* m) {
  *(int*)m = 0;
  return CUBLAS_STATUS_SUCCESS;
}

//: cublasCreate
cublasStatus_t cublasCreate(cublasHandle_t* h) {
  *h = (void*)16;
  return CUBLAS_STATUS_SUCCESS;
}

//: cublasGetVersion
cublasStatus_t cublasGetVersion(cublasHandle_t, int* v) {
  *v = 130000;
  return CUBLAS_STATUS_SUCCESS;
}

//: cublasSgemmEx
cublasStatus_t cublasSgemmEx(cublasHandle_t, int ta, int tb, int m, int n, int k, const float* al,
                             const void* A, int at, int lda, const void* B, int bt, int ldb,
                             const float* be, void* C, int ct, int ldc) {
  CUPYCPU_FLUSH if (at || bt || ct) return (cublasStatus_t)15;
  cupycpu_gemm<float>(ta, tb, m, n, k, *al, (const float*)A, lda, (const float*)B, ldb, *be,
                      (float*)C, ldc);
  return CUBLAS_STATUS_SUCCESS;
}

//: cublasSaxpy
cublasStatus_t cublasSaxpy(cublasHandle_t, int n, const float* a, const float* x, int ix, float* y,
                           int iy) {
  CUPYCPU_FLUSH for (int i = 0; i < n; i++) y[(size_t)i * iy] += *a * x[(size_t)i * ix];
  return CUBLAS_STATUS_SUCCESS;
}

//: cublasSscal
cublasStatus_t cublasSscal(cublasHandle_t, int n, const float* a, float* x, int ix) {
  CUPYCPU_FLUSH for (int i = 0; i < n; i++) x[(size_t)i * ix] *= *a;
  return CUBLAS_STATUS_SUCCESS;
}

//: cublasSdot
cublasStatus_t cublasSdot(cublasHandle_t, int n, const float* x, int ix, const float* y, int iy,
                          float* r) {
  CUPYCPU_FLUSH double s = 0;
  for (int i = 0; i < n; i++) s += (double)x[(size_t)i * ix] * y[(size_t)i * iy];
  *r = (float)s;
  return CUBLAS_STATUS_SUCCESS;
}

//: cublasSasum
cublasStatus_t cublasSasum(cublasHandle_t, int n, const float* x, int ix, float* r) {
  CUPYCPU_FLUSH double s = 0;
  for (int i = 0; i < n; i++) {
    double v = x[(size_t)i * ix];
    s += v < 0 ? -v : v;
  }
  *r = (float)s;
  return CUBLAS_STATUS_SUCCESS;
}

//: cublasSnrm2
cublasStatus_t cublasSnrm2(cublasHandle_t, int n, const float* x, int ix, float* r) {
  CUPYCPU_FLUSH double s = 0;
  for (int i = 0; i < n; i++) {
    double v = x[(size_t)i * ix];
    s += v * v;
  }
  *r = (float)__builtin_sqrt(s);
  return CUBLAS_STATUS_SUCCESS;
}

//: cublasSgemv
cublasStatus_t cublasSgemv(cublasHandle_t, int t, int m, int n, const float* al, const float* A,
                           int lda, const float* x, int ix, const float* be, float* y, int iy) {
  CUPYCPU_FLUSH int o = t ? n : m, q = t ? m : n;
  for (int i = 0; i < o; i++) {
    double s = 0;
    for (int j = 0; j < q; j++)
      s += (double)(t ? A[(size_t)i * lda + j] : A[(size_t)j * lda + i]) * x[(size_t)j * ix];
    float& d = y[(size_t)i * iy];
    d = (float)(*al * s + (*be != 0 ? *be * d : 0));
  }
  return CUBLAS_STATUS_SUCCESS;
}

//: cublasSger
cublasStatus_t cublasSger(cublasHandle_t, int m, int n, const float* al, const float* x, int ix,
                          const float* y, int iy, float* A, int lda) {
  CUPYCPU_FLUSH for (int j = 0; j < n; j++) for (int i = 0; i < m; i++) A[(size_t)j * lda + i] +=
      *al * x[(size_t)i * ix] * y[(size_t)j * iy];
  return CUBLAS_STATUS_SUCCESS;
}

//: cublasSgeam
cublasStatus_t cublasSgeam(cublasHandle_t, int ta, int tb, int m, int n, const float* al,
                           const float* A, int lda, const float* be, const float* B, int ldb,
                           float* C, int ldc) {
  CUPYCPU_FLUSH for (int j = 0; j < n; j++) for (int i = 0; i < m; i++) {
    float v = 0;
    if (*al != 0) v += *al * (ta ? A[(size_t)i * lda + j] : A[(size_t)j * lda + i]);
    if (*be != 0) v += *be * (tb ? B[(size_t)i * ldb + j] : B[(size_t)j * ldb + i]);
    C[(size_t)j * ldc + i] = v;
  }
  return CUBLAS_STATUS_SUCCESS;
}

//: cublasSgemm
cublasStatus_t cublasSgemm(cublasHandle_t, int ta, int tb, int m, int n, int k, const float* al,
                           const float* A, int lda, const float* B, int ldb, const float* be,
                           float* C, int ldc) {
  CUPYCPU_FLUSH cupycpu_gemm<float>(ta, tb, m, n, k, *al, A, lda, B, ldb, *be, C, ldc);
  return CUBLAS_STATUS_SUCCESS;
}

//: cublasSgemmBatched
cublasStatus_t cublasSgemmBatched(cublasHandle_t, int ta, int tb, int m, int n, int k,
                                  const float* al, const float** A, int lda, const float** B,
                                  int ldb, const float* be, float** C, int ldc, int b) {
  CUPYCPU_FLUSH for (int i = 0; i < b; i++)
      cupycpu_gemm<float>(ta, tb, m, n, k, *al, A[i], lda, B[i], ldb, *be, C[i], ldc);
  return CUBLAS_STATUS_SUCCESS;
}

//: cublasSgemmStridedBatched
cublasStatus_t cublasSgemmStridedBatched(cublasHandle_t, int ta, int tb, int m, int n, int k,
                                         const float* al, const float* A, int lda, long long sA,
                                         const float* B, int ldb, long long sB, const float* be,
                                         float* C, int ldc, long long sC, int b) {
  CUPYCPU_FLUSH for (int i = 0; i < b; i++) cupycpu_gemm<float>(
      ta, tb, m, n, k, *al, A + i * sA, lda, B + i * sB, ldb, *be, C + i * sC, ldc);
  return CUBLAS_STATUS_SUCCESS;
}

//: cublasDaxpy
cublasStatus_t cublasDaxpy(cublasHandle_t, int n, const double* a, const double* x, int ix,
                           double* y, int iy) {
  CUPYCPU_FLUSH for (int i = 0; i < n; i++) y[(size_t)i * iy] += *a * x[(size_t)i * ix];
  return CUBLAS_STATUS_SUCCESS;
}

//: cublasDscal
cublasStatus_t cublasDscal(cublasHandle_t, int n, const double* a, double* x, int ix) {
  CUPYCPU_FLUSH for (int i = 0; i < n; i++) x[(size_t)i * ix] *= *a;
  return CUBLAS_STATUS_SUCCESS;
}

//: cublasDdot
cublasStatus_t cublasDdot(cublasHandle_t, int n, const double* x, int ix, const double* y, int iy,
                          double* r) {
  CUPYCPU_FLUSH double s = 0;
  for (int i = 0; i < n; i++) s += (double)x[(size_t)i * ix] * y[(size_t)i * iy];
  *r = (double)s;
  return CUBLAS_STATUS_SUCCESS;
}

//: cublasDasum
cublasStatus_t cublasDasum(cublasHandle_t, int n, const double* x, int ix, double* r) {
  CUPYCPU_FLUSH double s = 0;
  for (int i = 0; i < n; i++) {
    double v = x[(size_t)i * ix];
    s += v < 0 ? -v : v;
  }
  *r = (double)s;
  return CUBLAS_STATUS_SUCCESS;
}

//: cublasDnrm2
cublasStatus_t cublasDnrm2(cublasHandle_t, int n, const double* x, int ix, double* r) {
  CUPYCPU_FLUSH double s = 0;
  for (int i = 0; i < n; i++) {
    double v = x[(size_t)i * ix];
    s += v * v;
  }
  *r = (double)__builtin_sqrt(s);
  return CUBLAS_STATUS_SUCCESS;
}

//: cublasDgemv
cublasStatus_t cublasDgemv(cublasHandle_t, int t, int m, int n, const double* al, const double* A,
                           int lda, const double* x, int ix, const double* be, double* y, int iy) {
  CUPYCPU_FLUSH int o = t ? n : m, q = t ? m : n;
  for (int i = 0; i < o; i++) {
    double s = 0;
    for (int j = 0; j < q; j++)
      s += (double)(t ? A[(size_t)i * lda + j] : A[(size_t)j * lda + i]) * x[(size_t)j * ix];
    double& d = y[(size_t)i * iy];
    d = (double)(*al * s + (*be != 0 ? *be * d : 0));
  }
  return CUBLAS_STATUS_SUCCESS;
}

//: cublasDger
cublasStatus_t cublasDger(cublasHandle_t, int m, int n, const double* al, const double* x, int ix,
                          const double* y, int iy, double* A, int lda) {
  CUPYCPU_FLUSH for (int j = 0; j < n; j++) for (int i = 0; i < m; i++) A[(size_t)j * lda + i] +=
      *al * x[(size_t)i * ix] * y[(size_t)j * iy];
  return CUBLAS_STATUS_SUCCESS;
}

//: cublasDgeam
cublasStatus_t cublasDgeam(cublasHandle_t, int ta, int tb, int m, int n, const double* al,
                           const double* A, int lda, const double* be, const double* B, int ldb,
                           double* C, int ldc) {
  CUPYCPU_FLUSH for (int j = 0; j < n; j++) for (int i = 0; i < m; i++) {
    double v = 0;
    if (*al != 0) v += *al * (ta ? A[(size_t)i * lda + j] : A[(size_t)j * lda + i]);
    if (*be != 0) v += *be * (tb ? B[(size_t)i * ldb + j] : B[(size_t)j * ldb + i]);
    C[(size_t)j * ldc + i] = v;
  }
  return CUBLAS_STATUS_SUCCESS;
}

//: cublasDgemm
cublasStatus_t cublasDgemm(cublasHandle_t, int ta, int tb, int m, int n, int k, const double* al,
                           const double* A, int lda, const double* B, int ldb, const double* be,
                           double* C, int ldc) {
  CUPYCPU_FLUSH cupycpu_gemm<double>(ta, tb, m, n, k, *al, A, lda, B, ldb, *be, C, ldc);
  return CUBLAS_STATUS_SUCCESS;
}

//: cublasDgemmBatched
cublasStatus_t cublasDgemmBatched(cublasHandle_t, int ta, int tb, int m, int n, int k,
                                  const double* al, const double** A, int lda, const double** B,
                                  int ldb, const double* be, double** C, int ldc, int b) {
  CUPYCPU_FLUSH for (int i = 0; i < b; i++)
      cupycpu_gemm<double>(ta, tb, m, n, k, *al, A[i], lda, B[i], ldb, *be, C[i], ldc);
  return CUBLAS_STATUS_SUCCESS;
}

//: cublasDgemmStridedBatched
cublasStatus_t cublasDgemmStridedBatched(cublasHandle_t, int ta, int tb, int m, int n, int k,
                                         const double* al, const double* A, int lda, long long sA,
                                         const double* B, int ldb, long long sB, const double* be,
                                         double* C, int ldc, long long sC, int b) {
  CUPYCPU_FLUSH for (int i = 0; i < b; i++) cupycpu_gemm<double>(
      ta, tb, m, n, k, *al, A + i * sA, lda, B + i * sB, ldb, *be, C + i * sC, ldc);
  return CUBLAS_STATUS_SUCCESS;
}

//: cublasGemmStridedBatchedEx
cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t a0, int a1, int a2, int a3, int a4, int a5,
                                          const void* a6, const void* a7, int a8, int a9,
                                          long long a10, const void* a11, int a12, int a13,
                                          long long a14, const void* a15, const void* a16, int a17,
                                          int a18, long long a19, int a20, int a21, int a22) {
  typedef int (*F)(cublasHandle_t, int, int, int, int, int, const void*, const void*, int, int,
                   long long, const void*, int, int, long long, const void*, const void*, int, int,
                   long long, int, int, int);
  static F f = (F)cupycpu_sym("emu_cublasGemmStridedBatchedEx");
  return (cublasStatus_t)f(a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15,
                           a16, a17, a18, a19, a20, a21, a22);
}

//: cublasGemmStridedBatchedEx_v11
cublasStatus_t cublasGemmStridedBatchedEx_v11(cublasHandle_t a0, int a1, int a2, int a3, int a4,
                                              int a5, const void* a6, const void* a7, int a8,
                                              int a9, long long a10, const void* a11, int a12,
                                              int a13, long long a14, const void* a15,
                                              const void* a16, int a17, int a18, long long a19,
                                              int a20, int a21, int a22) {
  typedef int (*F)(cublasHandle_t, int, int, int, int, int, const void*, const void*, int, int,
                   long long, const void*, int, int, long long, const void*, const void*, int, int,
                   long long, int, int, int);
  static F f = (F)cupycpu_sym("emu_cublasGemmStridedBatchedEx");
  return (cublasStatus_t)f(a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15,
                           a16, a17, a18, a19, a20, a21, a22);
}

//: cublasGemmEx
cublasStatus_t cublasGemmEx(cublasHandle_t h, int ta, int tb, int m, int n, int k, const void* al,
                            const void* A, int at, int lda, const void* B, int bt, int ldb,
                            const void* be, void* C, int ct, int ldc, int comp, int algo) {
  typedef int (*F)(cublasHandle_t, int, int, int, int, int, const void*, const void*, int, int,
                   long long, const void*, int, int, long long, const void*, const void*, int, int,
                   long long, int, int, int);
  static F f = (F)cupycpu_sym("emu_cublasGemmStridedBatchedEx");
  return (cublasStatus_t)f(h, ta, tb, m, n, k, al, A, at, lda, 0, B, bt, ldb, 0, be, C, ct, ldc, 0,
                           1, comp, algo);
}

//: cublasGemmEx_v11
cublasStatus_t cublasGemmEx_v11(cublasHandle_t h, int ta, int tb, int m, int n, int k,
                                const void* al, const void* A, int at, int lda, const void* B,
                                int bt, int ldb, const void* be, void* C, int ct, int ldc, int comp,
                                int algo) {
  typedef int (*F)(cublasHandle_t, int, int, int, int, int, const void*, const void*, int, int,
                   long long, const void*, int, int, long long, const void*, const void*, int, int,
                   long long, int, int, int);
  static F f = (F)cupycpu_sym("emu_cublasGemmStridedBatchedEx");
  return (cublasStatus_t)f(h, ta, tb, m, n, k, al, A, at, lda, 0, B, bt, ldb, 0, be, C, ct, ldc, 0,
                           1, comp, algo);
}

//: cublasSetStream
cublasStatus_t cublasSetStream(cublasHandle_t a0, cudaStream_t a1) {
  typedef int (*F)(cublasHandle_t, cudaStream_t);
  static F f = (F)cupycpu_sym("emu_cublasSetStream");
  return (cublasStatus_t)f(a0, a1);
}
