// One or two numbers per channel of (outer, channels, inner). `kept` receives a copy of the input
// for the way back where the output takes its place, else it is null. Runs do not cross channels.

extern "C" __global__ void scale_shift(int n, const real* x, const float* scale,
                                       const float* shift, int channels, int inner, real* kept,
                                       real* y) {
  each_run(n, inner % PACK == 0 && aligned(x, kept, y), [&](auto run) {
    int c = (int)run.first / inner % channels;
    auto values = run.read(x);
    if (kept) run.write(kept, values);
    for (float& value : values.at) {
      if (scale) value *= scale[c];
      if (shift) value += shift[c];
    }
    run.write(y, values);
  });
}

extern "C" __global__ void prelu(int n, const real* x, const float* slopes, int channels,
                                 int inner, real* kept, real* y) {
  each_run(n, inner % PACK == 0 && aligned(x, kept, y), [&](auto run) {
    float slope = slopes[(int)run.first / inner % channels];
    auto values = run.read(x);
    if (kept) run.write(kept, values);
    for (float& value : values.at) value = rectified(value, slope);
    run.write(y, values);
  });
}

extern "C" __global__ void prelu_backward(int n, const real* x, const real* dy,
                                          const float* slopes, int channels, int inner, real* dx) {
  each_run(n, inner % PACK == 0 && aligned(x, dy, dx), [&](auto run) {
    float slope = slopes[(int)run.first / inner % channels];
    auto xs = run.read(x), values = run.read(dy);
    for (int k = 0; k < sizeof(xs) / 4; k++)
      if (xs.at[k] <= 0) values.at[k] *= slope;
    run.write(dx, values);
  });
}
