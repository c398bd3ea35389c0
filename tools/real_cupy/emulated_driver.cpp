// The few CUDA driver / NVRTC / cudart entry points that CuPy soft-links, on top of cudaemu (g++).
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/wait.h>
#include <string>
#include <vector>
#include <map>
#include <mutex>
#include <deque>
#include <functional>
#include <memory>
#include <set>
#include <time.h>
#define X extern "C" __attribute__((visibility("default")))
using std::string;
struct Mod {
  void* h;
  bool fib;
  std::map<string, string> id;
};
struct Fn {
  int (*sizes)(size_t*);
  Mod* m;
  int (*f)(void**, const unsigned*, size_t, int, int, char*, size_t);
  string name;
};
static char lasterr[1024];
X int cuGetErrorName(int e, const char** s) {
  *s = e == 0     ? "CUDA_SUCCESS"
       : e == 719 ? "CUDA_ERROR_LAUNCH_FAILED"
       : e == 500 ? "CUDA_ERROR_NOT_FOUND"
                  : "CUDA_ERROR_INVALID_VALUE";
  return 0;
}
X int cuGetErrorString(int e, const char** s) {
  *s = e == 719   ? lasterr
       : e == 0   ? "no error"
       : e == 500 ? "named symbol not found"
                  : "invalid argument";
  return 0;
}
X int cuDevicePrimaryCtxRelease(int) { return 0; }
X int cuCtxGetCurrent(void** c) {
  *c = (void*)16;
  return 0;
}
X int cuCtxSetCurrent(void*) { return 0; }
X int cuCtxCreate(void** c, unsigned, int) {
  *c = (void*)16;
  return 0;
}
X int cuCtxDestroy(void*) { return 0; }
X int cuCtxGetDevice(int* d) {
  *d = 0;
  return 0;
}
X int cuStreamGetCtx(void*, void** c) {
  *c = (void*)16;
  return 0;
}
X int cuModuleLoadData(Mod** out, const char* img) {
  if (strncmp(img, "CUDAEMU1\n", 9)) return 200;
  const char* p = img + 9;
  auto line = [&]() {
    const char* e = strchr(p, '\n');
    string s(p, e ? e - p : strlen(p));
    p = e ? e + 1 : p + s.size();
    return s;
  };
  Mod* m = new Mod;
  string so = line();
  m->fib = line() == "1";
  for (;;) {
    string l = line();
    if (l == "END" || l.empty()) break;
    size_t t = l.find('\t');
    m->id[l.substr(t + 1)] = l.substr(0, t);
    m->id[l.substr(0, t)] = l.substr(0, t);
  }
  m->h = dlopen(so.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!m->h) {
    fprintf(stderr, "cudaemu: %s\n", dlerror());
    return 200;
  }
  *out = m;
  return 0;
}
X int cuModuleLoad(Mod** out, const char* f) {
  FILE* h = fopen(f, "rb");
  if (!h) return 301;
  string s;
  char b[4096];
  size_t n;
  while ((n = fread(b, 1, 4096, h))) s.append(b, n);
  fclose(h);
  return cuModuleLoadData(out, s.c_str());
}
X int cuModuleUnload(Mod*) { return 0; }
X int cuModuleGetFunction(Fn** f, Mod* m, const char* n) {
  auto i = m->id.find(n);
  if (i == m->id.end()) return 500;
  Fn* q = new Fn;
  q->m = m;
  q->name = n;
  *(void**)&q->f = dlsym(m->h, ("cudaemu_launch_" + i->second).c_str());
  if (!q->f) return 500;
  *(void**)&q->sizes = dlsym(m->h, ("cudaemu_sizes_" + i->second).c_str());
  *f = q;
  return 0;
}
X int cuModuleGetGlobal(void** p, size_t* n, Mod* m, const char* name) {
  *p = dlsym(m->h, name);
  *n = 0;
  return *p ? 0 : 500;
}

// ---- streams, events, capture --------------------------------------------------------------
// CUDAEMU_ASYNC=0 everything at once; 1 as late as possible (a stream runs when somebody waits for
// it); >=2 random progress with that seed
static std::recursive_mutex rm;
typedef std::lock_guard<std::recursive_mutex> Lock;
struct Op {
  std::function<int()> run;
  string name;
};
struct Stream;
struct Event {
  Stream* s = 0;
  size_t at = 0;
  double ms = 0;
  struct Graph* g = 0;
};
struct Graph {
  std::vector<Op> ops;
};
struct Stream {
  int id;
  bool nonblocking;
  std::deque<Op> q;
  size_t put = 0, done = 0;
  Graph* cap = 0;
  bool busy = false;
};
static std::vector<Stream*> streams;
static Stream null_{0, false};
static int sticky;
static std::set<std::pair<char*, size_t>> pinned;
static std::map<void*, Stream*> handles;
static std::map<string, long>& counts = *new std::map<string, long>;
static int mode() {
  static int m = getenv("CUDAEMU_ASYNC") ? atoi(getenv("CUDAEMU_ASYNC")) : 0;
  return m;
}
static bool trace() {
  static bool t = getenv("CUDAEMU_TRACE") != 0;
  return t;
}
static unsigned long long rs = 88172645463325252ull;
static unsigned rnd() {
  rs ^= rs << 13;
  rs ^= rs >> 7;
  rs ^= rs << 17;
  return rs >> 11;
}
static Stream* S(void* p) {
  if (!p || p == (void*)1 || p == (void*)2) return &null_;
  return (Stream*)p;
}
static void step(Stream* s) {
  Op o = std::move(s->q.front());
  s->q.pop_front();
  s->busy = true;
  if (trace()) fprintf(stderr, "[emu] run  stream %d %s\n", s->id, o.name.c_str());
  int e = o.run();
  s->busy = false;
  s->done++;
  if (e && !sticky) {
    sticky = e;
    fprintf(stderr, "cudaemu: %s on stream %d failed: %s\n", o.name.c_str(), s->id, lasterr);
  }
}
static void drain(Stream* s, size_t to) {
  while (s->done < to && !s->q.empty() && !s->busy) step(s);
}
static void drain(Stream* s) { drain(s, s->put); }
static int err() {
  int e = sticky;
  return e;
}
static int put(Stream* s, const string& n, std::function<int()> f) {
  Lock l(rm);
  if (trace())
    fprintf(stderr, "[emu] %s stream %d %s\n", s->cap ? "capture" : "queue", s->id, n.c_str());
  if (s->cap) {
    s->cap->ops.push_back({f, n});
    return 0;
  }
  if (s == &null_)
    counts[n.substr(0, n.find(' ')) + " on NULL stream"]++;
  else
    counts[n.substr(0, n.find(' '))]++;
  if (s == &null_) {
    for (auto t : streams)
      if (!t->nonblocking && !t->q.empty()) {
        size_t at = t->put;
        s->q.push_back({[t, at] {
                          drain(t, at);
                          return 0;
                        },
                        "legacy-wait"});
        s->put++;
      }
  } else if (!s->nonblocking && !null_.q.empty()) {
    size_t at = null_.put;
    s->q.push_back({[at] {
                      drain(&null_, at);
                      return 0;
                    },
                    "legacy-wait"});
    s->put++;
  }
  s->q.push_back({f, n});
  s->put++;
  if (mode() == 0)
    drain(s);
  else if (mode() >= 2) {
    static bool seeded = (rs += mode() * 0x9E3779B97F4A7C15ull, true);
    (void)seeded;
    std::vector<Stream*> all(streams);
    all.push_back(&null_);
    for (unsigned k = rnd() % 4; k--;) {
      Stream* t = all[rnd() % all.size()];
      for (unsigned j = rnd() % 6; j--;)
        if (!t->q.empty() && !t->busy) step(t);
    }
  }
  return mode() == 0 ? err() : 0;
}
static bool is_pinned(const void* p, size_t n) {
  for (auto& b : pinned)
    if ((char*)p >= b.first && (char*)p + n <= b.first + b.second) return true;
  return false;
}
X int emu_cudaMalloc(void** p, size_t n) {
  if (posix_memalign(p, 512, n ? n : 1)) return 2;
  memset(*p, 0xff, n);
  return 0;
}
X int emu_cudaFree(void* p) {
  Lock l(rm);
  if (!p) return 0;
  for (auto t : streams)
    if (!t->busy) drain(t);
  drain(&null_);
  free(p);
  return 0;
}
X int emu_cudaHostAlloc(void** p, size_t n, unsigned) {
  int e = emu_cudaMalloc(p, n);
  if (!e) {
    Lock l(rm);
    pinned.insert({(char*)*p, n});
  }
  return e;
}
X int emu_cudaFreeHost(void* p) {
  Lock l(rm);
  for (auto t : streams)
    if (!t->busy) drain(t);
  drain(&null_);
  for (auto i = pinned.begin(); i != pinned.end(); ++i)
    if (i->first == p) {
      pinned.erase(i);
      break;
    }
  free(p);
  return 0;
}
X int emu_cudaStreamCreateWithFlags(void** s, unsigned f) {
  Lock l(rm);
  auto* t = new Stream{(int)streams.size() + 1, (f & 1) != 0};
  streams.push_back(t);
  *s = t;
  return 0;
}
X int emu_cudaStreamCreateWithPriority(void** s, unsigned f, int) {
  return emu_cudaStreamCreateWithFlags(s, f);
}
X int emu_cudaStreamCreate(void** s) { return emu_cudaStreamCreateWithFlags(s, 0); }
X int emu_cudaStreamDestroy(void* s) {
  Lock l(rm);
  if (S(s) != &null_) drain(S(s));
  return 0;
}
X int emu_cudaStreamSynchronize(void* s) {
  Lock l(rm);
  if (S(s)->cap) return 900;
  drain(S(s));
  if (S(s) == &null_)
    for (auto t : streams)
      if (!t->nonblocking) drain(t);
  return err();
}
X int emu_cudaDeviceSynchronize() {
  Lock l(rm);
  for (auto t : streams) {
    if (t->cap) return 900;
    drain(t);
  }
  drain(&null_);
  return err();
}
X void emu_flush() {
  Lock l(rm);
  for (auto t : streams)
    if (!t->cap) drain(t);
  drain(&null_);
}
X int emu_cudaStreamQuery(void* s) {
  Lock l(rm);
  return S(s)->q.empty() ? 0 : 600;
}
X int emu_cudaEventCreateWithFlags(void** e, unsigned) {
  *e = new Event;
  return 0;
}
X int emu_cudaEventCreate(void** e) {
  *e = new Event;
  return 0;
}
X int emu_cudaEventDestroy(void*) { return 0; }
X int emu_cudaEventRecord(void* e_, void* s_) {
  Lock l(rm);
  Event* e = (Event*)e_;
  Stream* s = S(s_);
  if (s->cap) {
    e->g = s->cap;
    e->s = 0;
    return 0;
  }
  e->g = 0;
  int r = put(s, "event-record", [e] {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    e->ms = t.tv_sec * 1e3 + t.tv_nsec * 1e-6;
    return 0;
  });
  e->s = s;
  e->at = s->put;
  return r;
}
X int emu_cudaEventSynchronize(void* e_) {
  Lock l(rm);
  Event* e = (Event*)e_;
  if (e->g) return 900;
  if (e->s) drain(e->s, e->at);
  return err();
}
X int emu_cudaEventQuery(void* e_) {
  Lock l(rm);
  Event* e = (Event*)e_;
  return !e->s || e->s->done >= e->at ? 0 : 600;
}
X int emu_cudaEventElapsedTime(float* ms, void* a, void* b) {
  emu_cudaEventSynchronize(a);
  emu_cudaEventSynchronize(b);
  *ms = ((Event*)b)->ms - ((Event*)a)->ms;
  return 0;
}
X int emu_cudaStreamWaitEvent(void* s_, void* e_, unsigned) {
  Lock l(rm);
  Event* e = (Event*)e_;
  Stream* s = S(s_);
  if (s->cap) {
    if (e->g == s->cap) return 0;
    fprintf(stderr, "cudaemu: a captured stream waits for an event that was not captured\n");
    return 905;
  }
  if (e->g) return 904;
  Stream* t = e->s;
  size_t at = e->at;
  if (!t) return 0;
  return put(s, "wait-event", [t, at] {
    drain(t, at);
    return 0;
  });
}
X int emu_cudaMemcpyAsync(void* d, const void* s, size_t n, int kind, void* st) {
  Lock l(rm);
  Stream* q = S(st);
  char nm[128];
  snprintf(nm, 128, "memcpy%s %zu", kind == 1 ? "H2D" : kind == 2 ? "D2H" : "D2D", n);
  if (kind == 1 && !is_pinned(s, n) && !q->cap) {
    auto c = std::make_shared<string>((const char*)s, n);
    return put(q, nm, [d, c] {
      memcpy(d, c->data(), c->size());
      return 0;
    });
  }
  int e = put(q, nm, [d, s, n] {
    memmove(d, s, n);
    return 0;
  });
  if (kind == 2 && !q->cap && !is_pinned(d, n)) {
    drain(q);
    return err();
  }
  return e;
}
X int emu_cudaMemcpy(void* d, const void* s, size_t n, int kind) {
  Lock l(rm);
  int e = emu_cudaMemcpyAsync(d, s, n, kind, 0);
  if (e) return e;
  return emu_cudaStreamSynchronize(0);
}
X int emu_cudaMemsetAsync(void* p, int v, size_t n, void* st) {
  return put(S(st), "memset", [p, v, n] {
    memset(p, v, n);
    return 0;
  });
}
X int emu_cudaMemset(void* p, int v, size_t n) { return emu_cudaMemsetAsync(p, v, n, 0); }
X int emu_cudaStreamBeginCapture(void* s, int) {
  Lock l(rm);
  if (S(s) == &null_) return 900;
  if (S(s)->cap) return 901;
  S(s)->cap = new Graph;
  return 0;
}
X int emu_cudaStreamEndCapture(void* s, void* g) {
  Lock l(rm);
  if (!S(s)->cap) return 901;
  *(Graph**)g = S(s)->cap;
  S(s)->cap = 0;
  return 0;
}
X int emu_cudaStreamIsCapturing(void* s, void* r) {
  *(int*)r = S(s)->cap ? 1 : 0;
  return 0;
}
X int emu_cudaGraphInstantiate(void* e, void* g, unsigned long long) {
  *(void**)e = g;
  return 0;
}
X int emu_cudaGraphUpload(void*, void*) { return 0; }
X int emu_cudaGraphLaunch(void* g, void* s) {
  Lock l(rm);
  int e = 0;
  for (auto& o : ((Graph*)g)->ops) {
    e = put(S(s), o.name, o.run);
    if (e) break;
  }
  counts["graph-launch"]++;
  return e;
}
X void emu_report() {
  for (auto& c : counts) fprintf(stderr, "[emu] %8ld %s\n", c.second, c.first.c_str());
}
__attribute__((destructor)) static void at_end() {
  if (getenv("CUDAEMU_COUNTS")) emu_report();
}
// ---- cuBLAS
template <class T>
static void cupycpu_gemm(int ta, int tb, int m, int n, int k, T al, const T* A, int lda, const T* B,
                         int ldb, T be, T* C, int ldc) {
  T* P = (T*)malloc(sizeof(T) * ((size_t)m * k + 1));
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
#include "gemm.inc"
X int emu_cublasSetStream(void* h, void* s) {
  Lock l(rm);
  handles[h] = S(s);
  return 0;
}
X int cublasSetStream_v2(void* h, void* s) { return emu_cublasSetStream(h, s); }
X int emu_cublasGemmStridedBatchedEx(void* h, int ta, int tb, int m, int n, int k, const void* al,
                                     const void* A, int at, int lda, long long sA, const void* B,
                                     int bt, int ldb, long long sB, const void* be, void* C, int ct,
                                     int ldc, long long sC, int b, int comp, int) {
  double a8 = *(const float*)al, b8 = *(const float*)be;
  if (cupycpu_double(comp)) {
    a8 = *(const double*)al;
    b8 = *(const double*)be;
  }
  int e = cupycpu_ex(ta, tb, 0, 0, 0, al, A, at, 1, sA, B, bt, 1, sB, be, C, ct, 1, sC, 0, comp);
  if (e) return e;  // types
  {
    int ra = ta ? k : m, rb = tb ? n : k;
    if (m < 0 || n < 0 || k < 0 || b < 0 || lda < (ra > 1 ? ra : 1) || ldb < (rb > 1 ? rb : 1) ||
        ldc < (m > 1 ? m : 1)) {
      fprintf(stderr, "cudaemu: gemm m %d n %d k %d ta %d tb %d lda %d ldb %d ldc %d\n", m, n, k,
              ta, tb, lda, ldb, ldc);
      return 7;
    }
  }
  Lock l(rm);
  Stream* s = handles.count(h) ? handles[h] : &null_;
  char nm[96];
  snprintf(nm, 96, "gemm %dx%dx%d batch %d type %d->%d", m, n, k, b, at, ct);
  return put(s, nm,
             [=] {
               float fa = a8, fb = b8;
               const void *pa = cupycpu_double(comp) ? (const void*)&a8 : &fa,
                          *pb = cupycpu_double(comp) ? (const void*)&b8 : &fb;
               return cupycpu_ex(ta, tb, m, n, k, pa, A, at, lda, sA, B, bt, ldb, sB, pb, C, ct,
                                 ldc, sC, b, comp);
             })
             ? 14
             : 0;
}
X int cublasGemmStridedBatchedEx(void* h, int ta, int tb, int m, int n, int k, const void* al,
                                 const void* A, int at, int lda, long long sA, const void* B,
                                 int bt, int ldb, long long sB, const void* be, void* C, int ct,
                                 int ldc, long long sC, int b, int comp, int algo) {
  return emu_cublasGemmStridedBatchedEx(h, ta, tb, m, n, k, al, A, at, lda, sA, B, bt, ldb, sB, be,
                                        C, ct, ldc, sC, b, comp, algo);
}
X int cuLaunchKernel(Fn* f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                     unsigned bz, unsigned sh, void* st, void** kp, void**) {
  if (!gx || !gy || !gz || !bx || !by || !bz || (size_t)bx * by * bz > 1024 || bz > 64 ||
      gy > 65535 || gz > 65535 || sh > 49152)
    return 1;
  size_t sz[512];
  int n = f->sizes(sz);
  auto args = std::make_shared<std::vector<string>>();
  for (int i = 0; i < n; i++) {
    string v(sz[i] + 16, 0);
    memcpy(&v[0], kp[i], sz[i]);
    args->push_back(v);
  }
  return put(S(st), "kernel " + f->name, [=] {
    unsigned d[6] = {gx, gy, gz, bx, by, bz};
    const char* o = getenv("CUDAEMU_ORDER");
    char e[512] = "";
    std::vector<void*> p;
    for (auto& a : *args) p.push_back(&a[0]);
    p.push_back(0);
    if (f->f(p.data(), d, sh, f->m->fib, o ? atoi(o) : 0, e, 512)) {
      snprintf(lasterr, sizeof lasterr, "%s: %s", f->name.c_str(), e);
      return 719;
    }
    return 0;
  });
}
X int cuLaunchCooperativeKernel(Fn*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                                unsigned, void*, void**) {
  return 801;
}
X int cuFuncGetAttribute(int* v, int a, Fn*) {
  *v = a == 0 ? 1024 : 0;
  return 0;
}
X int cuFuncSetAttribute(Fn*, int, int) { return 0; }
X int cuOccupancyMaxActiveBlocksPerMultiprocessor(int* n, Fn*, int, size_t) {
  *n = 2;
  return 0;
}
X int cuOccupancyMaxPotentialBlockSize(int* g, int* b, Fn*, void*, size_t, int) {
  *g = 8;
  *b = 256;
  return 0;
}
X int cuLinkCreate(unsigned, void*, void*, void**) { return 801; }
X int cuLinkAddData(...) { return 801; }
X int cuLinkAddFile(...) { return 801; }
X int cuLinkComplete(...) { return 801; }
X int cuLinkDestroy(void*) { return 801; }
X int cudaRuntimeGetVersion(int* v) {
  *v = 13000;
  return 0;
}
#include "nvrtc.inc"
