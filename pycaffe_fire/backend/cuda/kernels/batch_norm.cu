// Batch normalisation of (outer, channels, inner); null scale or shift stand for 1 and 0. The way
// back looks at the input x, or at a copy of it that forward kept.

// Count, mean and sum of squared distances from it, of values that were seen together.
struct Moments {
  float count, mean, squares;

  // Of both (Chan, Golub and LeVeque's formula).
  __device__ Moments with(const Moments& other) const {
    float all = count + other.count, apart = other.mean - mean;
    if (all == 0) return *this;
    float share = other.count / all;
    return {all, mean + apart * share, squares + other.squares + apart * apart * count * share};
  }
};

__device__ inline Moments block_moments(Moments own) {
  __shared__ Moments parts[THREADS];
  parts[threadIdx.x] = own;
  __syncthreads();
  for (int half = THREADS / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) parts[threadIdx.x] = parts[threadIdx.x].with(parts[threadIdx.x + half]);
    __syncthreads();
  }
  Moments result = parts[0];
  __syncthreads();
  return result;
}

// One pass: a thread sums distances from the first value that it sees. Running sums, where they
// are given, fade and let the new moments in; `weight` counts how much they hold.
extern "C" __global__ void channel_moments(int n, const real* __restrict__ x, int outer,
                                           int channels, int inner, int parts, float* shares,
                                           int* arrived, float fade, float unbiased, float* mean,
                                           float* variance, float* means, float* variances,
                                           float* weight) {
  Channels cut{outer, channels, inner, parts};
  bool packed = aligned(x);
  EACH_BLOCK(block, n) {
    float count = 0, origin = 0, sum = 0, squares = 0;
    cut.each(block, packed, [&](auto run) {
      auto values = run.read(x);
      if (count == 0) origin = values.at[0];
      for (float value : values.at) {
        float apart = value - origin;
        sum += apart;
        squares += apart * apart;
      }
      count += sizeof(values) / 4;
    });
    Moments own{count, 0, 0};
    if (count > 0) own = {count, origin + sum / count, max(squares - sum / count * sum, 0.0f)};
    Moments all = block_moments(own);
    int c = block / parts;
    if (parts > 1) {
      if (threadIdx.x == 0) {
        shares[3 * block] = all.count;
        shares[3 * block + 1] = all.mean;
        shares[3 * block + 2] = all.squares;
      }
      if (!last_of(parts, arrived + c)) continue;
      const volatile float* found = shares + 3ll * c * parts;
      Moments some{0, 0, 0};
      for (int p = threadIdx.x; p < parts; p += THREADS)
        some = some.with({found[3 * p], found[3 * p + 1], found[3 * p + 2]});
      all = block_moments(some);
    }
    if (threadIdx.x == 0) {
      float spread = all.squares / all.count;
      mean[c] = all.mean;
      variance[c] = spread;
      if (means) {
        means[c] = fade * means[c] + all.mean;
        variances[c] = fade * variances[c] + unbiased * spread;
        if (c == 0) weight[0] = fade * weight[0] + 1;
      }
    }
  }
}

struct Norm {
  const float *mean, *variance, *scale, *shift;
  float eps;

  __device__ float deviation(int c) const { return sqrtf(variance[c] + eps); }
  __device__ float factor(int c) const { return scale ? scale[c] : 1; }
  __device__ float offset(int c) const { return shift ? shift[c] : 0; }
};

// Runs do not cross channels.
extern "C" __global__ void normalize(int n, const real* x, const float* mean,
                                     const float* variance, const float* scale, const float* shift,
                                     int channels, int inner, float eps, int relu, real* kept,
                                     real* y) {
  Norm norm{mean, variance, scale, shift, eps};
  each_run(n, inner % PACK == 0 && aligned(x, kept, y), [&](auto run) {
    int c = (int)run.first / inner % channels;
    auto values = run.read(x);
    if (kept) run.write(kept, values);
    float centre = mean[c], deviation = norm.deviation(c);
    for (float& value : values.at) {
      value = (value - centre) / deviation;
      if (scale) value *= scale[c];
      if (shift) value += shift[c];
      if (relu) value = max(value, 0.0f);
    }
    run.write(y, values);
  });
}

// The sums of dy and of dy * normalised x, both before the scale, dy having gone back through the ReLU; they are
// added to the gradients of shift and scale, where those are given.
extern "C" __global__ void normalize_sums(int n, const real* __restrict__ x,
                                          const real* __restrict__ dy, const float* mean,
                                          const float* variance, const float* scale,
                                          const float* shift, int outer, int channels, int inner,
                                          int parts, float eps, int relu, float* shares,
                                          int* arrived, float* sums, float* products,
                                          float keep_shift, float* d_shift, float keep_scale,
                                          float* d_scale) {
  Norm norm{mean, variance, scale, shift, eps};
  Channels cut{outer, channels, inner, parts};
  bool packed = aligned(x, dy);
  EACH_BLOCK(block, n) {
    int c = block / parts;
    float centre = mean[c], deviation = norm.deviation(c);
    float factor = norm.factor(c), offset = norm.offset(c);
    float own[2] = {0, 0}, totals[2];
    cut.each(block, packed, [&](auto run) {
      auto xs = run.read(x), dys = run.read(dy);
      for (int k = 0; k < sizeof(xs) / 4; k++) {
        float normed = (xs.at[k] - centre) / deviation;
        if (relu && !(normed * factor + offset > 0)) continue;
        own[0] += dys.at[k];
        own[1] += dys.at[k] * normed;
      }
    });
    if (cut.total(block, own, shares, arrived, totals)) {
      sums[c] = totals[0];
      products[c] = totals[1];
      if (d_shift) add_to(d_shift + c, keep_shift, totals[0]);
      if (d_scale) add_to(d_scale + c, keep_scale, totals[1]);
    }
  }
}

// count is that of a channel's values, or 0 where the statistics were given and do not depend on x.
extern "C" __global__ void normalize_backward(int n, const real* x, const real* dy,
                                              const float* mean, const float* variance,
                                              const float* scale, const float* shift,
                                              const float* sums, const float* products,
                                              int channels, int inner, int count, float eps,
                                              int relu, real* dx) {
  Norm norm{mean, variance, scale, shift, eps};
  each_run(n, inner % PACK == 0 && aligned(x, dy, dx), [&](auto run) {
    int c = (int)run.first / inner % channels;
    float centre = mean[c], deviation = norm.deviation(c);
    float factor = norm.factor(c), offset = norm.offset(c);
    float sum = count ? sums[c] / count : 0, product = count ? products[c] / count : 0;
    auto xs = run.read(x), values = run.read(dy);
    for (int k = 0; k < sizeof(xs) / 4; k++) {
      float normed = (xs.at[k] - centre) / deviation;
      if (relu && !(normed * factor + offset > 0)) values.at[k] = 0;
      values.at[k] = (values.at[k] - sum - product * normed) * factor / deviation;
    }
    run.write(dx, values);
  });
}
