// 16-bit floats as their bits, rounded to nearest even, and buckets of them for the wire. No
// header is included, so that the same source compiles everywhere.

__device__ inline unsigned short to_float16(float value) {
  unsigned bits = __float_as_uint(value), sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return sign | 0x7e00;   // NaN
  if (magnitude >= 0x477ff000) return sign | 0x7c00;  // rounds to infinity
  if (magnitude < 0x38800000) {                       // rounds to a denormal: let addition do it
    float shifted = __uint_as_float(magnitude) + 0.5f;
    return sign | (__float_as_uint(shifted) - 0x3f000000);
  }
  unsigned odd = magnitude >> 13 & 1;
  return sign | (magnitude - 0x38000000 + 0xfff + odd) >> 13;
}

__device__ inline float from_float16(unsigned short half) {
  unsigned sign = (unsigned)(half & 0x8000) << 16, magnitude = half & 0x7fff;
  if (magnitude >= 0x7c00) return __uint_as_float(sign | 0x7f800000 | (magnitude & 0x3ff) << 13);
  if (magnitude < 0x400) {
    float tiny = magnitude * 5.9604644775390625e-8f;  // 2^-24
    return sign ? -tiny : tiny;
  }
  return __uint_as_float(sign | (magnitude << 13) + 0x38000000);
}

__device__ inline unsigned short to_bfloat16(float value) {
  unsigned bits = __float_as_uint(value);
  if ((bits & 0x7fffffff) > 0x7f800000) return bits >> 16 | 0x40;
  return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

__device__ inline float from_bfloat16(unsigned short half) {
  return __uint_as_float((unsigned)half << 16);
}

extern "C" __global__ void pack_float16(long long n, const float* x, float scale,
                                        unsigned short* y) {
  EACH(i, n) y[i] = to_float16(x[i] * scale);
}

extern "C" __global__ void unpack_float16(long long n, const unsigned short* x, float scale,
                                          float* y) {
  EACH(i, n) y[i] = from_float16(x[i]) * scale;
}

extern "C" __global__ void pack_bfloat16(long long n, const float* x, float scale,
                                         unsigned short* y) {
  EACH(i, n) y[i] = to_bfloat16(x[i] * scale);
}

extern "C" __global__ void unpack_bfloat16(long long n, const unsigned short* x, float scale,
                                           float* y) {
  EACH(i, n) y[i] = from_bfloat16(x[i]) * scale;
}
