// Sums of tensors, one input at a time; y may be x.

extern "C" __global__ void scaled_copy(long long n, const real* x, float factor, int relu,
                                       float slope, real* y) {
  EACH(i, n) {
    float value = factor * x[i];
    y[i] = relu ? rectified(value, slope) : value;
  }
}

extern "C" __global__ void scaled_add(long long n, const real* x, float factor, int relu,
                                      float slope, real* y) {
  EACH(i, n) {
    float value = y[i] + factor * x[i];
    y[i] = relu ? rectified(value, slope) : value;
  }
}
