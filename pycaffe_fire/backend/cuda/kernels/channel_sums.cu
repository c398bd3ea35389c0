// Sums per channel of (outer, channels, inner); n counts the blocks, see channels.cuh.

// sums = keep * sums + the channel's sum of dy. With `sign`, dy first goes back through a ReLU
// whose output or input has that sign, and is written to dx.
extern "C" __global__ void channel_sums(int n, const real* dy, const real* sign, float slope,
                                        int outer, int channels, int inner, int parts, float keep,
                                        real* dx, float* shares, int* arrived, float* sums) {
  Channels cut{outer, channels, inner, parts};
  bool packed = aligned(dy, sign, dx);
  EACH_BLOCK(block, n) {
    float own[1] = {0}, total[1];
    cut.each(block, packed, [&](auto run) {
      auto values = run.read(dy);
      if (sign) {
        auto signs = run.read(sign);
        for (int k = 0; k < sizeof(values) / 4; k++)
          if (!(signs.at[k] > 0)) values.at[k] *= slope;
        run.write(dx, values);
      }
      for (float value : values.at) own[0] += value;
    });
    if (cut.total(block, own, shares, arrived, total)) add_to(sums + block / parts, keep, total[0]);
  }
}

// sums = keep * sums + the channel's sum of x * dy, where `negative` asks so only over x <= 0.
extern "C" __global__ void channel_dots(int n, const real* __restrict__ x,
                                        const real* __restrict__ dy, int outer, int channels,
                                        int inner, int parts, int negative, float keep,
                                        float* shares, int* arrived, float* sums) {
  Channels cut{outer, channels, inner, parts};
  bool packed = aligned(x, dy);
  EACH_BLOCK(block, n) {
    float own[1] = {0}, total[1];
    cut.each(block, packed, [&](auto run) {
      auto xs = run.read(x), dys = run.read(dy);
      for (int k = 0; k < sizeof(xs) / 4; k++)
        if (!negative || xs.at[k] <= 0) own[0] += xs.at[k] * dys.at[k];
    });
    if (cut.total(block, own, shares, arrived, total)) add_to(sums + block / parts, keep, total[0]);
  }
}
