// Between float and the stored type, with a factor: copies of tensors, and buckets for the wire.

extern "C" __global__ void narrow(long long n, const float* x, float scale, real* y) {
  EACH(i, n) y[i] = x[i] * scale;
}

extern "C" __global__ void widen(long long n, const real* x, float scale, float* y) {
  EACH(i, n) y[i] = x[i] * scale;
}

// y = keep * y + x, for gradients that a library leaves in the stored type.
extern "C" __global__ void add_widened(long long n, const real* x, float keep, float* y) {
  EACH(i, n) y[i] = (keep != 0 ? keep * y[i] : 0) + x[i];
}
