// Dropout from Philox4x32-10 with the counter that backend/random.py documents: the CPU's masks.

struct Words {
  unsigned at[4];

  __device__ unsigned pick(int k) const {  // by comparing: an index would put them into memory
    return k == 0 ? at[0] : k == 1 ? at[1] : k == 2 ? at[2] : at[3];
  }
};

__device__ inline Words philox(unsigned long long key, unsigned long long step,
                               unsigned long long sample, unsigned block) {
  unsigned c0 = block, c1 = (unsigned)sample, c2 = (unsigned)step;
  unsigned c3 = (unsigned)(sample >> 32 & 0xffff) | (unsigned)(step >> 32 & 0xffff) << 16;
  unsigned k0 = (unsigned)key, k1 = (unsigned)(key >> 32);
  for (int round = 0; round < 10; round++) {
    unsigned high0 = __umulhi(0xD2511F53u, c0), low0 = 0xD2511F53u * c0;
    unsigned high1 = __umulhi(0xCD9E8D57u, c2), low1 = 0xCD9E8D57u * c2;
    c0 = high1 ^ c1 ^ k0;
    c1 = low1;
    c2 = high0 ^ c3 ^ k1;
    c3 = low0;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {c0, c1, c2, c3};
}

// Uniform numbers for a run of elements, all of one sample: one round of the generator for four.
template <int W>
__device__ inline Floats<W> uniforms(Run<W> run, int per_sample, unsigned long long key,
                                     unsigned long long step, unsigned long long first_sample) {
  unsigned position = (unsigned)run.first % per_sample;
  unsigned long long sample = first_sample + (unsigned)run.first / per_sample;
  Floats<W> found;
  Words words;
  for (int k = 0; k < W; k++) {
    if (k % 4 == 0) words = philox(key, step, sample, (position + k) / 4);
    unsigned word = W == 1 ? words.pick(position % 4) : words.at[k % 4];
    found.at[k] = (word >> 8) * 5.9604644775390625e-8f;  // 2^-24
  }
  return found;
}

// y = x * scale where a uniform number is at least `ratio`, else 0; forward and backward. May run
// in place.
extern "C" __global__ void dropout(int n, const real* x, int per_sample, unsigned long long key,
                                   unsigned long long step, unsigned long long first_sample,
                                   float ratio, float scale, real* y) {
  each_run(n, per_sample % PACK == 0 && aligned(x, y), [&](auto run) {
    auto values = run.read(x);
    auto drawn = uniforms(run, per_sample, key, step, first_sample);
    for (int k = 0; k < sizeof(values) / 4; k++)
      values.at[k] = drawn.at[k] >= ratio ? values.at[k] * scale : 0;
    run.write(y, values);
  });
}

extern "C" __global__ void uniform(int n, int per_sample, unsigned long long key,
                                   unsigned long long step, unsigned long long first_sample,
                                   float* __restrict__ out) {
  each_run(n, per_sample % PACK == 0 && aligned(out), [&](auto run) {
    run.write(out, uniforms(run, per_sample, key, step, first_sample));
  });
}
