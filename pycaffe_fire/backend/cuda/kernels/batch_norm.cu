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

// One pass: a thread sums distances from the first value that it sees. Running sums, where they
// are given, fade and let the new moments in; `weight` counts how much they hold.
extern "C" __global__ void channel_moments(int n, const real* __restrict__ x, int outer,
                                           FIXED int channels, FIXED int inner, FIXED int parts,
                                           FIXED int pitch, float* shares, int* arrived,
                                           float fade, float unbiased, float* mean,
                                           float* variance, float* means, float* variances,
                                           float* weight) {
  Cut cut{outer, channels, inner, parts};
  EACH_BLOCK(block, n) part_of(cut, block, pitch % PACK == 0 && aligned(x), [&](auto part) {
    float count = 0, origin[part.lanes], sum[part.lanes] = {}, squares[part.lanes] = {};
    part.each([&](auto spot) {
      auto values = spot.in(pitch).read(x);
      for (int k = 0; k < part.run; k++) {
        int lane = part.lane(k);
        if (count == 0 && k == lane) origin[lane] = values.at[k];
        float apart = values.at[k] - origin[lane];
        sum[lane] += apart;
        squares[lane] += apart * apart;
      }
      count += part.run / part.lanes;
    });
    Moments own[part.lanes] = {};
    for (int lane = 0; lane < part.lanes && count > 0; lane++)
      own[lane] = {count, origin[lane] + sum[lane] / count,
                   max(squares[lane] - sum[lane] / count * sum[lane], 0.0f)};
    part.total(own, shares, arrived, [&](int c, const Moments& all) {
      float spread = all.squares / all.count;
      mean[c] = all.mean;
      variance[c] = spread;
      if (means) {
        means[c] = fade * means[c] + all.mean;
        variances[c] = fade * variances[c] + unbiased * spread;
        if (c == 0) weight[0] = fade * weight[0] + 1;
      }
    });
  });
}

struct Norm {
  const float *mean, *variance, *scale, *shift;
  float eps;

  __device__ float deviation(int c) const { return sqrtf(variance[c] + eps); }
  __device__ float factor(int c) const { return scale ? scale[c] : 1; }
  __device__ float offset(int c) const { return shift ? shift[c] : 0; }
};

extern "C" __global__ void normalize(int n, const real* x, const float* mean,
                                     const float* variance, const float* scale, const float* shift,
                                     FIXED int channels, FIXED int inner, FIXED int x_pitch,
                                     FIXED int y_pitch, float eps, int relu, real* kept, real* y) {
  Norm norm{mean, variance, scale, shift, eps};
  PerChannel channel{channels, inner};
  each_run(n, channel.packs(x_pitch | y_pitch) && aligned(x, kept, y), [&](auto run) {
    auto spot = channel.spot(run);
    auto values = spot.in(x_pitch).read(x);
    if (kept) run.write(kept, values);
    for (int k = 0; k < run.width; k++) {
      int c = channel.of(spot, k);
      float value = (values.at[k] - mean[c]) / norm.deviation(c);
      if (scale) value *= scale[c];
      if (shift) value += shift[c];
      values.at[k] = relu ? max(value, 0.0f) : value;
    }
    spot.in(y_pitch).write(y, values);
  });
}

// The sums of dy and of dy * normalised x, both before the scale, dy having gone back through the
// ReLU; they are added to the gradients of shift and scale, where those are given.
extern "C" __global__ void normalize_sums(int n, const real* __restrict__ x,
                                          const real* __restrict__ dy, const float* mean,
                                          const float* variance, const float* scale,
                                          const float* shift, int outer, FIXED int channels,
                                          FIXED int inner, FIXED int parts, FIXED int pitch,
                                          float eps, int relu, float* shares, int* arrived,
                                          float* sums, float* products, float keep_shift,
                                          float* d_shift, float keep_scale, float* d_scale) {
  Norm norm{mean, variance, scale, shift, eps};
  Cut cut{outer, channels, inner, parts};
  bool packed = pitch % PACK == 0 && aligned(x, dy);
  EACH_BLOCK(block, n) part_of(cut, block, packed, [&](auto part) {
    float centre[part.lanes], deviation[part.lanes], factor[part.lanes], offset[part.lanes];
    for (int lane = 0; lane < part.lanes && part.inside(); lane++) {
      int c = part.channel(lane);
      centre[lane] = mean[c], deviation[lane] = norm.deviation(c);
      factor[lane] = norm.factor(c), offset[lane] = norm.offset(c);
    }
    Sums<2> own[part.lanes] = {};
    part.each([&](auto spot) {
      auto xs = spot.in(0).read(x), dys = spot.in(pitch).read(dy);
      for (int k = 0; k < part.run; k++) {
        int lane = part.lane(k);
        float normed = (xs.at[k] - centre[lane]) / deviation[lane];
        if (relu && !(normed * factor[lane] + offset[lane] > 0)) continue;
        own[lane].at[0] += dys.at[k];
        own[lane].at[1] += dys.at[k] * normed;
      }
    });
    part.total(own, shares, arrived, [&](int c, const Sums<2>& all) {
      sums[c] = all.at[0];
      products[c] = all.at[1];
      if (d_shift) add_to(d_shift + c, keep_shift, all.at[0]);
      if (d_scale) add_to(d_scale + c, keep_scale, all.at[1]);
    });
  });
}

// count is that of a channel's values, or 0 where the statistics were given and do not depend on x.
extern "C" __global__ void normalize_backward(int n, const real* x, const real* dy,
                                              const float* mean, const float* variance,
                                              const float* scale, const float* shift,
                                              const float* sums, const float* products,
                                              FIXED int channels, FIXED int inner,
                                              FIXED int dy_pitch, FIXED int dx_pitch, int count,
                                              float eps, int relu, real* dx) {
  Norm norm{mean, variance, scale, shift, eps};
  PerChannel channel{channels, inner};
  each_run(n, channel.packs(dy_pitch | dx_pitch) && aligned(x, dy, dx), [&](auto run) {
    auto spot = channel.spot(run);
    auto xs = run.read(x), values = spot.in(dy_pitch).read(dy);
    for (int k = 0; k < run.width; k++) {
      int c = channel.of(spot, k);
      float factor = norm.factor(c), deviation = norm.deviation(c);
      float sum = count ? sums[c] / count : 0, product = count ? products[c] / count : 0;
      float normed = (xs.at[k] - mean[c]) / deviation;
      if (relu && !(normed * factor + norm.offset(c) > 0)) values.at[k] = 0;
      values.at[k] = (values.at[k] - sum - product * normed) * factor / deviation;
    }
    spot.in(dx_pitch).write(dx, values);
  });
}
