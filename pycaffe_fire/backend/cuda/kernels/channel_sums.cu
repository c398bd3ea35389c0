// One block per channel of (outer, channels, inner); n counts the channels.

// sums = keep * sums + the channel's sum.
extern "C" __global__ void channel_sums(int n, const real* values, int outer, int inner,
                                        float keep, float* sums) {
  EACH_BLOCK(c, n) {
    float sum = 0;
    for (int i = threadIdx.x; i < outer * inner; i += THREADS)
      sum += values[((long long)(i / inner) * n + c) * inner + i % inner];
    float total = block_sum(sum);
    if (threadIdx.x == 0) sums[c] = (keep != 0 ? keep * sums[c] : 0) + total;
  }
}

// sums = keep * sums + the channel's sum of x * dy, where `negative` asks so only over x <= 0.
extern "C" __global__ void channel_dots(int n, const real* x, const real* dy, int outer, int inner,
                                        int negative, float keep, float* sums) {
  EACH_BLOCK(c, n) {
    float sum = 0;
    for (int i = threadIdx.x; i < outer * inner; i += THREADS) {
      long long at = ((long long)(i / inner) * n + c) * inner + i % inner;
      float value = x[at];
      if (!negative || value <= 0) sum += value * dy[at];
    }
    float total = block_sum(sum);
    if (threadIdx.x == 0) sums[c] = (keep != 0 ? keep * sums[c] : 0) + total;
  }
}

// The mean, then the mean square distance from it.
extern "C" __global__ void channel_moments(int n, const real* values, int outer, int inner,
                                           float* mean, float* variance) {
  int count = outer * inner;
  EACH_BLOCK(c, n) {
    float sum = 0, squares = 0;
    for (int i = threadIdx.x; i < count; i += THREADS)
      sum += values[((long long)(i / inner) * n + c) * inner + i % inner];
    float centre = block_sum(sum) / count;
    for (int i = threadIdx.x; i < count; i += THREADS) {
      float d = values[((long long)(i / inner) * n + c) * inner + i % inner] - centre;
      squares += d * d;
    }
    float spread = block_sum(squares) / count;
    if (threadIdx.x == 0) {
      mean[c] = centre;
      variance[c] = spread;
    }
  }
}

// The sums of dy and of dy * normed, both before the scale.
extern "C" __global__ void channel_products(int n, const real* dy, const real* normed, int outer,
                                            int inner, float* dy_sums, float* product_sums) {
  EACH_BLOCK(c, n) {
    float sum = 0, products = 0;
    for (int i = threadIdx.x; i < outer * inner; i += THREADS) {
      long long at = ((long long)(i / inner) * n + c) * inner + i % inner;
      float here = dy[at];
      sum += here;
      products += here * normed[at];
    }
    float total = block_sum(sum), product = block_sum(products);
    if (threadIdx.x == 0) {
      dy_sums[c] = total;
      product_sums[c] = product;
    }
  }
}
