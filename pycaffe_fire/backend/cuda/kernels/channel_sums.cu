// Sums per channel of (outer, channels, inner); n counts the blocks, see channels.cuh.

// sums = keep * sums + the channel's sum of dy. With `sign`, dy first goes back through a ReLU
// whose output or input has that sign, and is written to dx, which lies as dy does.
extern "C" __global__ void channel_sums(int n, const real* dy, const real* sign, float slope,
                                        int outer, FIXED int channels, FIXED int inner,
                                        FIXED int parts, FIXED int pitch, FIXED int sign_pitch,
                                        float keep, real* dx, float* shares, int* arrived,
                                        float* sums) {
  Cut cut{outer, channels, inner, parts};
  bool packed = (pitch | sign_pitch) % PACK == 0 && aligned(dy, sign, dx);
  EACH_BLOCK(block, n) part_of(cut, block, packed, [&](auto part) {
    Sums<1> own[part.lanes] = {};
    part.each([&](auto spot) {
      auto values = spot.in(pitch).read(dy);
      if (sign) {
        auto signs = spot.in(sign_pitch).read(sign);
        for (int k = 0; k < part.run; k++)
          if (!(signs.at[k] > 0)) values.at[k] *= slope;
        spot.in(pitch).write(dx, values);
      }
      for (int k = 0; k < part.run; k++) own[part.lane(k)].at[0] += values.at[k];
    });
    part.total(own, shares, arrived,
               [&](int c, const Sums<1>& all) { add_to(sums + c, keep, all.at[0]); });
  });
}

// sums = keep * sums + the channel's sum of x * dy, where `negative` asks so only over x <= 0.
extern "C" __global__ void channel_dots(int n, const real* __restrict__ x,
                                        const real* __restrict__ dy, int outer, FIXED int channels,
                                        FIXED int inner, FIXED int parts, int negative, float keep,
                                        float* shares, int* arrived, float* sums) {
  Cut cut{outer, channels, inner, parts};
  EACH_BLOCK(block, n) part_of(cut, block, aligned(x, dy), [&](auto part) {
    Sums<1> own[part.lanes] = {};
    part.each([&](auto spot) {
      auto xs = spot.in(0).read(x), dys = spot.in(0).read(dy);
      for (int k = 0; k < part.run; k++)
        if (!negative || xs.at[k] <= 0) own[part.lane(k)].at[0] += xs.at[k] * dys.at[k];
    });
    part.total(own, shares, arrived,
               [&](int c, const Sums<1>& all) { add_to(sums + c, keep, all.at[0]); });
  });
}
