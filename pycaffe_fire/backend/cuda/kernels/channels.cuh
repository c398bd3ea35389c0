// Numbers per channel of (outer, channels, inner), by `parts` blocks for each channel, or for each
// COLUMNS channels where inner is 1, so that a device is filled also where channels are few. The
// last block to finish joins the shares of all, always in the same order.
//
// A kernel's body gets the part of a block: Rows, of one channel, or Columns, of neighbouring
// channels, one for each lane of a thread. Both have the same methods. What is summed is a struct
// of floats that starts as zeros and knows how to join `with` another.

#define COLUMNS 64

template <int K>
struct Sums {
  float at[K];

  __device__ Sums with(const Sums& other) const {
    Sums both;
    for (int k = 0; k < K; k++) both.at[k] = at[k] + other.at[k];
    return both;
  }
};

template <class T>
__device__ inline void leave(float* shares, const T& share) {
  for (int i = 0; i < sizeof(T) / 4; i++) shares[i] = ((const float*)&share)[i];
}

template <class T>
__device__ inline T found(const volatile float* shares) {
  T share;
  for (int i = 0; i < sizeof(T) / 4; i++) ((float*)&share)[i] = shares[i];
  return share;
}

struct Cut {
  int outer, channels, inner, parts;
};

template <int W>
struct Rows {
  static constexpr int lanes = 1, run = W;  // channels of a thread, elements it reads at a time
  Cut cut;
  int block;

  __device__ bool inside() const { return true; }
  __device__ int channel(int) const { return block / cut.parts; }
  __device__ static constexpr int lane(int) { return 0; }

  // Calls body(spot) for all runs of this thread.
  template <class Body>
  __device__ void each(Body body) const {
    int packs = cut.outer * cut.inner / W, share = (packs + cut.parts - 1) / cut.parts;
    int first = block % cut.parts * share, stop = min(first + share, packs);
    for (int i = first + threadIdx.x; i < stop; i += THREADS) {
      int element = i * W, row = element / cut.inner;
      long long rest = channel(0) * cut.inner + element % cut.inner;
      body(Spot<W>{row, rest, cut.channels * cut.inner});
    }
  }

  // Joins what all threads of all blocks have of a channel; one thread calls body(channel, all).
  template <class T, class Body>
  __device__ void total(const T (&own)[1], float* shares, int* arrived, Body body) const {
    constexpr int K = sizeof(T) / 4;
    T all = block_total(own[0]);
    if (cut.parts > 1) {
      if (threadIdx.x == 0) leave(shares + (long long)K * block, all);
      if (!last_of(cut.parts, arrived + channel(0))) return;
      T some{};
      for (int p = threadIdx.x; p < cut.parts; p += THREADS)
        some = some.with(found<T>(shares + (long long)K * (channel(0) * cut.parts + p)));
      all = block_total(some);
    }
    if (threadIdx.x == 0) body(channel(0), all);
  }
};

// Of threads that have W neighbouring columns each: thread t gets column t % COLUMNS.
template <class T, int W>
__device__ inline T column_total(const T (&own)[W]) {
  constexpr int threads = COLUMNS / W, slots = THREADS / threads;
  __shared__ T all[THREADS * W];
  int slot = threadIdx.x / threads, column = threadIdx.x % threads * W;
  for (int w = 0; w < W; w++) all[slot * COLUMNS + column + w] = own[w];
  __syncthreads();
  for (int half = slots / 2; half > 0; half /= 2) {
    for (int i = threadIdx.x; i < half * COLUMNS; i += THREADS)
      all[i] = all[i].with(all[i + half * COLUMNS]);
    __syncthreads();
  }
  T result = all[threadIdx.x % COLUMNS];
  __syncthreads();
  return result;
}

template <int W>
struct Columns {
  static constexpr int lanes = W, run = W, threads = COLUMNS / W;
  Cut cut;
  int block;

  __device__ int first() const { return block / cut.parts * COLUMNS; }
  __device__ bool inside() const { return channel(0) < cut.channels; }
  __device__ int channel(int lane) const { return first() + threadIdx.x % threads * W + lane; }
  __device__ static constexpr int lane(int k) { return k; }

  template <class Body>
  __device__ void each(Body body) const {
    if (!inside()) return;
    int share = (cut.outer + cut.parts - 1) / cut.parts, start = block % cut.parts * share;
    int stop = min(start + share, cut.outer);
    for (int row = start + threadIdx.x / threads; row < stop; row += THREADS / threads)
      body(Spot<W>{row, channel(0), cut.channels});
  }

  template <class T, class Body>
  __device__ void total(const T (&own)[W], float* shares, int* arrived, Body body) const {
    constexpr int K = sizeof(T) / 4;
    T all = column_total(own);
    int column = threadIdx.x % COLUMNS;
    if (cut.parts > 1) {
      if (threadIdx.x < COLUMNS) leave(shares + K * ((long long)block * COLUMNS + column), all);
      if (!last_of(cut.parts, arrived + block / cut.parts)) return;
      T some[1] = {};
      for (int p = threadIdx.x / COLUMNS; p < cut.parts; p += THREADS / COLUMNS) {
        long long from = (long long)(block / cut.parts * cut.parts + p) * COLUMNS + column;
        some[0] = some[0].with(found<T>(shares + K * from));
      }
      all = column_total(some);
    }
    if (threadIdx.x < COLUMNS && first() + column < cut.channels) body(first() + column, all);
  }
};

// Calls body(part) with this block's.
template <class Body>
__device__ inline void part_of(const Cut& cut, int block, bool packed, Body body) {
  if (cut.inner == 1) {
    if (packed && cut.channels % PACK == 0)
      body(Columns<PACK>{cut, block});
    else
      body(Columns<1>{cut, block});
  } else if (packed && cut.inner % PACK == 0) {
    body(Rows<PACK>{cut, block});
  } else {
    body(Rows<1>{cut, block});
  }
}

__device__ inline void add_to(float* sum, float keep, float more) {
  *sum = (keep != 0 ? keep * *sum : 0) + more;
}
