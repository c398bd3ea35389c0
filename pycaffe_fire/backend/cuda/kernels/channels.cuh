// Sums per channel of (outer, channels, inner), by `parts` blocks for each channel, so that a
// device is filled also where channels are few: block c * parts + p takes the p-th share of
// channel c. The last block to finish adds the shares up, always in the same order.

struct Channels {
  int outer, count, inner, parts;

  // Calls body for all runs of this block's share of a channel.
  template <class Body>
  __device__ void each(int block, bool packed, Body body) const {
    if (packed && inner % PACK == 0)
      share<PACK>(block, body);
    else
      share<1>(block, body);
  }

  template <int W, class Body>
  __device__ void share(int block, Body body) const {
    int channel = block / parts, packs = outer * inner / W;
    int each = (packs + parts - 1) / parts, first = block % parts * each;
    int stop = min(first + each, packs);
    for (int i = first + threadIdx.x; i < stop; i += THREADS) {
      int element = i * W;
      long long row = (long long)(element / inner) * count + channel;
      body(Run<W>{row * inner + element % inner});
    }
  }

  // The sum of a number per thread over a channel, in thread 0 of the channel's last block; false
  // in all others. `sums` holds a number for each block, where there are several.
  template <int K>
  __device__ bool total(int block, const float (&own)[K], float* sums, int* arrived,
                        float (&totals)[K]) const {
    for (int k = 0; k < K; k++) totals[k] = block_sum(own[k]);
    if (parts == 1) return threadIdx.x == 0;
    if (threadIdx.x == 0)
      for (int k = 0; k < K; k++) sums[K * block + k] = totals[k];
    int channel = block / parts;
    if (!last_of(parts, arrived + channel)) return false;
    const volatile float* all = sums + (long long)K * channel * parts;
    for (int k = 0; k < K; k++) {
      float part = 0;
      for (int p = threadIdx.x; p < parts; p += THREADS) part += all[K * p + k];
      totals[k] = block_sum(part);
    }
    return threadIdx.x == 0;
  }
};

__device__ inline void add_to(float* sum, float keep, float more) {
  *sum = (keep != 0 ? keep * *sum : 0) + more;
}
