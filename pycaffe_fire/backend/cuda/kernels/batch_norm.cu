// Batch normalisation of (samples, channels, inner) from given statistics; null scale or shift
// stand for 1 and 0. The normalised input is kept for the way back.

extern "C" __global__ void normalize(int n, const real* x, const float* mean,
                                     const float* variance, const float* scale, const float* shift,
                                     int channels, int inner, float eps, int relu, real* normed,
                                     real* y) {
  EACH(i, n) {
    int c = (int)i / inner % channels;
    float value = (x[i] - mean[c]) / sqrtf(variance[c] + eps);
    normed[i] = value;
    if (scale) value *= scale[c];
    if (shift) value += shift[c];
    y[i] = relu ? max(value, 0.0f) : value;
  }
}

// dy where the ReLU after scale and shift let something through.
extern "C" __global__ void through_relu(int n, const real* dy, const real* normed,
                                        const float* scale, const float* shift, int channels,
                                        int inner, real* out) {
  EACH(i, n) {
    int c = (int)i / inner % channels;
    float value = normed[i] * (scale ? scale[c] : 1) + (shift ? shift[c] : 0);
    float here = dy[i];
    out[i] = value > 0 ? here : 0;
  }
}

// count is that of a channel's values, or 0 where the statistics were given and do not depend on x.
extern "C" __global__ void normalize_backward(int n, const real* dy, const real* normed,
                                              const float* variance, const float* scale,
                                              const float* dy_sums, const float* product_sums,
                                              int channels, int inner, int count, float eps,
                                              real* dx) {
  EACH(i, n) {
    int c = (int)i / inner % channels;
    float value = dy[i];
    if (count) value -= dy_sums[c] / count + product_sums[c] / count * normed[i];
    dx[i] = value * (scale ? scale[c] : 1) / sqrtf(variance[c] + eps);
  }
}

// Running averages: old sums fade, new ones are added; `weight` counts how much they hold.
extern "C" __global__ void remember_moments(int n, const float* mean, float unbiased,
                                            const float* variance, float fade, float* means,
                                            float* variances, float* weight) {
  EACH(i, n) {
    means[i] = fade * means[i] + mean[i];
    variances[i] = fade * variances[i] + unbiased * variance[i];
    if (i == 0) weight[0] = fade * weight[0] + 1;
  }
}
