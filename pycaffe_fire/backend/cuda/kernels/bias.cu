// What follows a product: add one number per channel, then ReLU. Values are (outer, channels,
// inner); without a bias the pointer is null.

extern "C" __global__ void bias_relu(int n, const float* bias, FIXED int channels, FIXED int inner,
                                     int relu, float slope, FIXED int pitch, real* values) {
  PerChannel channel{channels, inner};
  each_run(n, channel.packs(pitch) && aligned(values), [&](auto run) {
    auto spot = channel.spot(run);
    auto here = spot.in(pitch).read(values);
    for (int k = 0; k < run.width; k++) {
      if (bias) here.at[k] += bias[channel.of(spot, k)];
      if (relu) here.at[k] = rectified(here.at[k], slope);
    }
    spot.in(pitch).write(values, here);
  });
}
