// One or two numbers per channel of (outer, channels, inner). `kept` receives a copy of the input
// for the way back where the output takes its place, else it is null.

extern "C" __global__ void scale_shift(int n, const real* x, const float* scale,
                                       const float* shift, FIXED int channels, FIXED int inner,
                                       real* kept, real* y) {
  PerChannel channel{channels, inner};
  each_run(n, channel.packs(0) && aligned(x, kept, y), [&](auto run) {
    auto spot = channel.spot(run);
    auto values = run.read(x);
    if (kept) run.write(kept, values);
    for (int k = 0; k < run.width; k++) {
      int c = channel.of(spot, k);
      if (scale) values.at[k] *= scale[c];
      if (shift) values.at[k] += shift[c];
    }
    run.write(y, values);
  });
}

extern "C" __global__ void prelu(int n, const real* x, const float* slopes, FIXED int channels,
                                 FIXED int inner, real* kept, real* y) {
  PerChannel channel{channels, inner};
  each_run(n, channel.packs(0) && aligned(x, kept, y), [&](auto run) {
    auto spot = channel.spot(run);
    auto values = run.read(x);
    if (kept) run.write(kept, values);
    for (int k = 0; k < run.width; k++)
      values.at[k] = rectified(values.at[k], slopes[channel.of(spot, k)]);
    run.write(y, values);
  });
}

extern "C" __global__ void prelu_backward(int n, const real* x, const real* dy,
                                          const float* slopes, FIXED int channels, FIXED int inner,
                                          real* dx) {
  PerChannel channel{channels, inner};
  each_run(n, channel.packs(0) && aligned(x, dy, dx), [&](auto run) {
    auto spot = channel.spot(run);
    auto xs = run.read(x), values = run.read(dy);
    for (int k = 0; k < run.width; k++)
      if (xs.at[k] <= 0) values.at[k] *= slopes[channel.of(spot, k)];
    run.write(dx, values);
  });
}
