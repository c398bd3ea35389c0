// Stands before every kernel file, after common.cuh: how values of blobs are stored.
//
// `real` is float, or a 16-bit float that reads as a float and rounds to nearest even when written;
// arithmetic is always that of floats. No header of CUDA's is included, so that the same source
// compiles everywhere. Mind `c ? real : 0`: its type would be int, so read into a float first.

__device__ inline unsigned short to_float16(float value) {
#ifdef __CUDA_ARCH__
  unsigned short half;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"(value));
  return half;
#else
  unsigned bits = __float_as_uint(value), sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return sign | 0x7e00;   // NaN
  if (magnitude >= 0x477ff000) return sign | 0x7c00;  // rounds to infinity
  if (magnitude < 0x38800000) {                       // rounds to a denormal: let addition do it
    float shifted = __uint_as_float(magnitude) + 0.5f;
    return sign | (__float_as_uint(shifted) - 0x3f000000);
  }
  unsigned odd = magnitude >> 13 & 1;
  return sign | (magnitude - 0x38000000 + 0xfff + odd) >> 13;
#endif
}

__device__ inline float from_float16(unsigned short half) {
#ifdef __CUDA_ARCH__
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(half));
  return value;
#else
  unsigned sign = (unsigned)(half & 0x8000) << 16, magnitude = half & 0x7fff;
  if (magnitude >= 0x7c00) return __uint_as_float(sign | 0x7f800000 | (magnitude & 0x3ff) << 13);
  if (magnitude < 0x400) {
    float tiny = magnitude * 5.9604644775390625e-8f;  // 2^-24
    return sign ? -tiny : tiny;
  }
  return __uint_as_float(sign | (magnitude << 13) + 0x38000000);
#endif
}

__device__ inline unsigned short to_bfloat16(float value) {
  unsigned bits = __float_as_uint(value);
  if ((bits & 0x7fffffff) > 0x7f800000) return bits >> 16 | 0x40;
  return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

struct float16 {
  unsigned short bits;
  __device__ operator float() const { return from_float16(bits); }
  __device__ void operator=(float value) { bits = to_float16(value); }
};

struct bfloat16 {
  unsigned short bits;
  __device__ operator float() const { return __uint_as_float((unsigned)bits << 16); }
  __device__ void operator=(float value) { bits = to_bfloat16(value); }
};

typedef float float32;
typedef REAL real;

// Elementwise kernels take runs of PACK neighbours, 16 bytes of the stored type, wherever all
// arrays start on such a border, and single elements elsewhere: each_run calls its body with a
// Run<PACK> or a Run<1>, which reads and writes the values of its elements as floats.

#define PACK (16 / (int)sizeof(real))

template <class T, int W>
struct alignas(sizeof(T) * W < 16 ? sizeof(T) * W : 16) Vector {
  T at[W];
};

template <int W>
struct Floats {
  float at[W];
};

template <int W>
struct Run {
  static constexpr int width = W;
  long long first;

  template <class T>
  __device__ Floats<W> read(const T* values) const {
    Vector<T, W> found = *(const Vector<T, W>*)(values + first);
    Floats<W> result;
    for (int k = 0; k < W; k++) result.at[k] = found.at[k];
    return result;
  }

  template <class T>
  __device__ void write(T* values, const Floats<W>& given) const {
    Vector<T, W> made;
    for (int k = 0; k < W; k++) made.at[k] = given.at[k];
    *(Vector<T, W>*)(values + first) = made;
  }
};

template <class... T>
__device__ inline bool aligned(const T*... arrays) {
  return ((0ull | ... | (unsigned long long)arrays) & 15) == 0;
}

template <class Body>
__device__ inline void each_run(long long n, bool packed, Body body) {
  long long packs = packed ? n / PACK : 0;
  EACH(i, packs) body(Run<PACK>{i * PACK});
  EACH(i, n - packs * PACK) body(Run<1>{packs * PACK + i});
}

// Blobs may lie in memory as rows with gaps between them: a part of a larger blob, whose rows are
// its `pitch` apart; a pitch of 0 means that there are none. A spot is a run's place in its row.
template <int W>
struct Spot {
  int row;
  long long rest;
  int width;

  __device__ Run<W> in(int pitch) const {
    return {(long long)row * (pitch ? pitch : width) + rest};
  }
};

// Of the elements in their order; with a width of 0 there is one row.
template <int W>
__device__ inline Spot<W> spot_of(Run<W> run, int width) {
  if (width == 0) return {0, run.first, 0};
  return {(int)run.first / width, (int)run.first % width, width};
}

// Numbers per channel of (outer, channels, inner): runs stay within a channel, or, where inner is
// 1, take neighbouring channels.
struct PerChannel {
  int channels, inner;

  __device__ bool packs(int pitches) const {
    return (inner == 1 ? channels : inner) % PACK == 0 && pitches % PACK == 0;
  }
  template <int W>
  __device__ Spot<W> spot(Run<W> run) const {
    return spot_of(run, channels * inner);
  }
  // Of a spot's k-th element.
  template <int W>
  __device__ int of(Spot<W> spot, int k) const {
    return inner == 1 ? (int)spot.rest + k : (int)spot.rest / inner;
  }
};
