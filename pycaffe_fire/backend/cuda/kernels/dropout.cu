// Dropout from Philox4x32-10 with the counter that backend/random.py documents: the CPU's masks.

__device__ inline unsigned philox_word(unsigned long long key, unsigned long long step,
                                       unsigned long long sample, unsigned block, int word) {
  unsigned c[4] = {block, (unsigned)sample, (unsigned)step,
                   (unsigned)(sample >> 32 & 0xffff) | (unsigned)(step >> 32 & 0xffff) << 16};
  unsigned k0 = (unsigned)key, k1 = (unsigned)(key >> 32);
  for (int round = 0; round < 10; round++) {
    unsigned high0 = __umulhi(0xD2511F53u, c[0]), low0 = 0xD2511F53u * c[0];
    unsigned high1 = __umulhi(0xCD9E8D57u, c[2]), low1 = 0xCD9E8D57u * c[2];
    c[0] = high1 ^ c[1] ^ k0;
    c[1] = low1;
    c[2] = high0 ^ c[3] ^ k1;
    c[3] = low0;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return c[word];
}

// y = x * scale where a uniform number is at least `ratio`, else 0; forward and backward.
extern "C" __global__ void dropout(int n, const real* x, int per_sample, unsigned long long key,
                                   unsigned long long step, unsigned long long first_sample,
                                   float ratio, float scale, real* y) {
  EACH(i, n) {
    int position = (int)i % per_sample;
    unsigned word = philox_word(key, step, first_sample + (int)i / per_sample, position / 4,
                                position % 4);
    float uniform = (word >> 8) * 5.9604644775390625e-8f;  // 2^-24
    y[i] = uniform >= ratio ? x[i] * scale : 0;
  }
}

extern "C" __global__ void uniform(int n, int per_sample, unsigned long long key,
                                   unsigned long long step, unsigned long long first_sample,
                                   float* out) {
  EACH(i, n) {
    int position = (int)i % per_sample;
    unsigned word = philox_word(key, step, first_sample + (int)i / per_sample, position / 4,
                                position % 4);
    out[i] = (word >> 8) * 5.9604644775390625e-8f;
  }
}
