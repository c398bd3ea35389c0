// Between float and the stored type, with a factor: copies of tensors, and buckets for the wire.

extern "C" __global__ void narrow(long long n, const float* __restrict__ x, float scale,
                                  real* __restrict__ y) {
  each_run(n, aligned(x, y), [&](auto run) {
    auto values = run.read(x);
    for (float& value : values.at) value *= scale;
    run.write(y, values);
  });
}

extern "C" __global__ void widen(long long n, const real* __restrict__ x, float scale,
                                 float* __restrict__ y) {
  each_run(n, aligned(x, y), [&](auto run) {
    auto values = run.read(x);
    for (float& value : values.at) value *= scale;
    run.write(y, values);
  });
}

// y = keep * y + x, for gradients that a library leaves in the stored type.
extern "C" __global__ void add_widened(long long n, const real* __restrict__ x, float keep,
                                       float* y) {
  each_run(n, aligned(x, y), [&](auto run) {
    auto values = run.read(x);
    if (keep != 0) {
      auto before = run.read(y);
      for (int k = 0; k < sizeof(values) / 4; k++) values.at[k] += keep * before.at[k];
    }
    run.write(y, values);
  });
}
