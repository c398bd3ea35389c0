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
#include <string.h>
#include <time.h>

//: cudaGetErrorName
const char* cudaGetErrorName(int e) {
  return e == 0 ? "cudaSuccess" : e == 2 ? "cudaErrorMemoryAllocation" : "cudaErrorInvalidValue";
}

//: cudaGetErrorString
const char* cudaGetErrorString(int e) {
  return e == 0 ? "no error" : e == 2 ? "out of memory" : "invalid argument";
}

//: cudaDriverGetVersion
cudaError_t cudaDriverGetVersion(int* v) {
  *v = 13000;
  return cudaSuccess;
}

//: cudaRuntimeGetVersion
cudaError_t cudaRuntimeGetVersion(int* v) {
  *v = 13000;
  return cudaSuccess;
}

//: cudaGetDevice
static int cupycpu_dev = 0;
cudaError_t cudaGetDevice(int* d) {
  *d = cupycpu_dev;
  return cudaSuccess;
}

//: cudaDeviceGetAttribute
cudaError_t cudaDeviceGetAttribute(int* v, int a, int) {
  switch (a) {
    case 1:
      *v = 1024;
      break;
    case 2:
    case 3:
      *v = 1024;
      break;
    case 4:
      *v = 64;
      break;
    case 5:
      *v = 2147483647;
      break;
    case 6:
    case 7:
      *v = 65535;
      break;
    case 8:
      *v = 49152;
      break;
    case 9:
      *v = 65536;
      break;
    case 10:
      *v = 32;
      break;
    case 12:
      *v = 65536;
      break;
    case 16:
      *v = 4;
      break;
    case 39:
      *v = 2048;
      break;
    case 75:
      *v = 8;
      break;
    case 76:
      *v = 0;
      break;
    case 81:
      *v = 102400;
      break;
    case 97:
      *v = 49152;
      break;
    default:
      *v = 0;
  }
  return cudaSuccess;
}

//: cudaGetDeviceCount
cudaError_t cudaGetDeviceCount(int* n) {
  const char* s = getenv("CUPYCPU_DEVICES");
  *n = s ? atoi(s) : 1;
  return cudaSuccess;
}

//: cudaSetDevice
cudaError_t cudaSetDevice(int d) {
  int n;
  cudaGetDeviceCount(&n);
  if (d < 0 || d >= n) return cudaErrorInvalidValue;
  cupycpu_dev = d;
  return cudaSuccess;
}

//: cudaGetDeviceProperties
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int) {
  memset(p, 0, sizeof *p);
  strcpy(p->name, "cudaemu CPU device");
  p->major = 8;
  p->warpSize = 32;
  p->maxThreadsPerBlock = 1024;
  return cudaSuccess;
}

//: cudaDeviceGetPCIBusId
cudaError_t cudaDeviceGetPCIBusId(char* s, int n, int d) {
  snprintf(s, n, "0000:%02x:00.0", d + 1);
  return cudaSuccess;
}

//: cudaDeviceCanAccessPeer
cudaError_t cudaDeviceCanAccessPeer(int* r, int, int) {
  *r = 1;
  return cudaSuccess;
}

//: cudaMalloc
cudaError_t cudaMalloc(void** a0, size_t a1) {
  typedef int (*F)(void**, size_t);
  static F f = (F)cupycpu_sym("emu_cudaMalloc");
  return (cudaError_t)f(a0, a1);
}

//: cudaMallocAsync
cudaError_t cudaMallocAsync(void** p, size_t n, cudaStream_t) { return cudaMalloc(p, n); }

//: cudaMallocManaged
cudaError_t cudaMallocManaged(void** p, size_t n, unsigned) { return cudaMalloc(p, n); }

//: cudaHostAlloc
cudaError_t cudaHostAlloc(void** a0, size_t a1, unsigned a2) {
  typedef int (*F)(void**, size_t, unsigned);
  static F f = (F)cupycpu_sym("emu_cudaHostAlloc");
  return (cudaError_t)f(a0, a1, a2);
}

//: cudaFree
int cudaFree(void* a0) {
  typedef int (*F)(void*);
  static F f = (F)cupycpu_sym("emu_cudaFree");
  return (int)f(a0);
}

//: cudaFreeHost
cudaError_t cudaFreeHost(void* a0) {
  typedef int (*F)(void*);
  static F f = (F)cupycpu_sym("emu_cudaFreeHost");
  return (cudaError_t)f(a0);
}

//: cudaFreeAsync
cudaError_t cudaFreeAsync(void* p, cudaStream_t) {
  free(p);
  return cudaSuccess;
}

//: cudaMemGetInfo
int cudaMemGetInfo(size_t* f, size_t* t) {
  *f = *t = (size_t)8 << 30;
  return cudaSuccess;
}

//: cudaMemcpy
cudaError_t cudaMemcpy(void* a0, const void* a1, size_t a2, int a3) {
  typedef int (*F)(void*, const void*, size_t, int);
  static F f = (F)cupycpu_sym("emu_cudaMemcpy");
  return (cudaError_t)f(a0, a1, a2, a3);
}

//: cudaMemcpyAsync
cudaError_t cudaMemcpyAsync(void* a0, const void* a1, size_t a2, int a3, cudaStream_t a4) {
  typedef int (*F)(void*, const void*, size_t, int, cudaStream_t);
  static F f = (F)cupycpu_sym("emu_cudaMemcpyAsync");
  return (cudaError_t)f(a0, a1, a2, a3, a4);
}

//: cudaMemcpyPeer
cudaError_t cudaMemcpyPeer(void* d, int, const void* s, int, size_t n) {
  memmove(d, s, n);
  return cudaSuccess;
}

//: cudaMemcpyPeerAsync
cudaError_t cudaMemcpyPeerAsync(void* d, int, const void* s, int, size_t n, cudaStream_t) {
  memmove(d, s, n);
  return cudaSuccess;
}

//: cudaMemset
cudaError_t cudaMemset(void* a0, int a1, size_t a2) {
  typedef int (*F)(void*, int, size_t);
  static F f = (F)cupycpu_sym("emu_cudaMemset");
  return (cudaError_t)f(a0, a1, a2);
}

//: cudaMemsetAsync
cudaError_t cudaMemsetAsync(void* a0, int a1, size_t a2, cudaStream_t a3) {
  typedef int (*F)(void*, int, size_t, cudaStream_t);
  static F f = (F)cupycpu_sym("emu_cudaMemsetAsync");
  return (cudaError_t)f(a0, a1, a2, a3);
}

//: cudaPointerGetAttributes
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* a, const void* p) {
  a->device = 0;
  a->devicePointer = (void*)p;
  a->hostPointer = (void*)p;
  return cudaSuccess;
}

//: cudaStreamCreate
cudaError_t cudaStreamCreate(cudaStream_t* a0) {
  typedef int (*F)(cudaStream_t*);
  static F f = (F)cupycpu_sym("emu_cudaStreamCreate");
  return (cudaError_t)f(a0);
}

//: cudaStreamCreateWithFlags
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* a0, unsigned a1) {
  typedef int (*F)(cudaStream_t*, unsigned);
  static F f = (F)cupycpu_sym("emu_cudaStreamCreateWithFlags");
  return (cudaError_t)f(a0, a1);
}

//: cudaStreamCreateWithPriority
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* a0, unsigned a1, int a2) {
  typedef int (*F)(cudaStream_t*, unsigned, int);
  static F f = (F)cupycpu_sym("emu_cudaStreamCreateWithPriority");
  return (cudaError_t)f(a0, a1, a2);
}

//: cudaStreamGetFlags
cudaError_t cudaStreamGetFlags(cudaStream_t, unsigned* f) {
  *f = 0;
  return cudaSuccess;
}

//: cudaStreamGetPriority
cudaError_t cudaStreamGetPriority(cudaStream_t, int* f) {
  *f = 0;
  return cudaSuccess;
}

//: cudaStreamDestroy
cudaError_t cudaStreamDestroy(cudaStream_t a0) {
  typedef int (*F)(cudaStream_t);
  static F f = (F)cupycpu_sym("emu_cudaStreamDestroy");
  return (cudaError_t)f(a0);
}

//: cudaStreamAddCallback
cudaError_t cudaStreamAddCallback(cudaStream_t s, cudaStreamCallback_t f, void* u, unsigned) {
  f(s, cudaSuccess, u);
  return cudaSuccess;
}

//: cudaLaunchHostFunc
cudaError_t cudaLaunchHostFunc(cudaStream_t, cudaHostFn_t f, void* u) {
  f(u);
  return cudaSuccess;
}

//: cudaEventCreate
cudaError_t cudaEventCreate(cudaEvent_t* a0) {
  typedef int (*F)(cudaEvent_t*);
  static F f = (F)cupycpu_sym("emu_cudaEventCreate");
  return (cudaError_t)f(a0);
}

//: cudaEventCreateWithFlags
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* a0, unsigned a1) {
  typedef int (*F)(cudaEvent_t*, unsigned);
  static F f = (F)cupycpu_sym("emu_cudaEventCreateWithFlags");
  return (cudaError_t)f(a0, a1);
}

//: cudaEventDestroy
cudaError_t cudaEventDestroy(cudaEvent_t a0) {
  typedef int (*F)(cudaEvent_t);
  static F f = (F)cupycpu_sym("emu_cudaEventDestroy");
  return (cudaError_t)f(a0);
}

//: cudaEventRecord
cudaError_t cudaEventRecord(cudaEvent_t a0, cudaStream_t a1) {
  typedef int (*F)(cudaEvent_t, cudaStream_t);
  static F f = (F)cupycpu_sym("emu_cudaEventRecord");
  return (cudaError_t)f(a0, a1);
}

//: cudaEventElapsedTime
cudaError_t cudaEventElapsedTime(float* a0, cudaEvent_t a1, cudaEvent_t a2) {
  typedef int (*F)(float*, cudaEvent_t, cudaEvent_t);
  static F f = (F)cupycpu_sym("emu_cudaEventElapsedTime");
  return (cudaError_t)f(a0, a1, a2);
}

//: cudaStreamIsCapturing
cudaError_t cudaStreamIsCapturing(cudaStream_t a0, void* a1) {
  typedef int (*F)(cudaStream_t, void*);
  static F f = (F)cupycpu_sym("emu_cudaStreamIsCapturing");
  return (cudaError_t)f(a0, a1);
}

//: cudaStreamSynchronize
cudaError_t cudaStreamSynchronize(cudaStream_t a0) {
  typedef int (*F)(cudaStream_t);
  static F f = (F)cupycpu_sym("emu_cudaStreamSynchronize");
  return (cudaError_t)f(a0);
}

//: cudaStreamQuery
cudaError_t cudaStreamQuery(cudaStream_t a0) {
  typedef int (*F)(cudaStream_t);
  static F f = (F)cupycpu_sym("emu_cudaStreamQuery");
  return (cudaError_t)f(a0);
}

//: cudaStreamWaitEvent
cudaError_t cudaStreamWaitEvent(cudaStream_t a0, cudaEvent_t a1, unsigned a2) {
  typedef int (*F)(cudaStream_t, cudaEvent_t, unsigned);
  static F f = (F)cupycpu_sym("emu_cudaStreamWaitEvent");
  return (cudaError_t)f(a0, a1, a2);
}

//: cudaDeviceSynchronize
cudaError_t cudaDeviceSynchronize() {
  typedef int (*F)();
  static F f = (F)cupycpu_sym("emu_cudaDeviceSynchronize");
  return (cudaError_t)f();
}

//: cudaEventSynchronize
cudaError_t cudaEventSynchronize(cudaEvent_t a0) {
  typedef int (*F)(cudaEvent_t);
  static F f = (F)cupycpu_sym("emu_cudaEventSynchronize");
  return (cudaError_t)f(a0);
}

//: cudaEventQuery
cudaError_t cudaEventQuery(cudaEvent_t a0) {
  typedef int (*F)(cudaEvent_t);
  static F f = (F)cupycpu_sym("emu_cudaEventQuery");
  return (cudaError_t)f(a0);
}

//: cudaStreamBeginCapture
cudaError_t cudaStreamBeginCapture(cudaStream_t a0, int a1) {
  typedef int (*F)(cudaStream_t, int);
  static F f = (F)cupycpu_sym("emu_cudaStreamBeginCapture");
  return (cudaError_t)f(a0, a1);
}

//: cudaStreamEndCapture
cudaError_t cudaStreamEndCapture(cudaStream_t a0, void* a1) {
  typedef int (*F)(cudaStream_t, void*);
  static F f = (F)cupycpu_sym("emu_cudaStreamEndCapture");
  return (cudaError_t)f(a0, a1);
}

//: cudaGraphInstantiate
cudaError_t cudaGraphInstantiate(void* a0, void* a1, unsigned long long a2) {
  typedef int (*F)(void*, void*, unsigned long long);
  static F f = (F)cupycpu_sym("emu_cudaGraphInstantiate");
  return (cudaError_t)f(a0, a1, a2);
}

//: cudaGraphLaunch
cudaError_t cudaGraphLaunch(void* a0, cudaStream_t a1) {
  typedef int (*F)(void*, cudaStream_t);
  static F f = (F)cupycpu_sym("emu_cudaGraphLaunch");
  return (cudaError_t)f(a0, a1);
}

//: cudaGraphUpload
cudaError_t cudaGraphUpload(void* a0, cudaStream_t a1) {
  typedef int (*F)(void*, cudaStream_t);
  static F f = (F)cupycpu_sym("emu_cudaGraphUpload");
  return (cudaError_t)f(a0, a1);
}
