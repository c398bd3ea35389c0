// ReLU, also leaky. The way back looks at whatever has the input's sign. Rows of `width` elements;
// without gaps in any array, one row of width 0 for all.

extern "C" __global__ void relu(long long n, const real* x, float slope, FIXED int width,
                                FIXED int x_pitch, FIXED int y_pitch, real* y) {
  each_run(n, (width | x_pitch | y_pitch) % PACK == 0 && aligned(x, y), [&](auto run) {
    auto spot = spot_of(run, width);
    auto values = spot.in(x_pitch).read(x);
    for (float& value : values.at) value = rectified(value, slope);
    spot.in(y_pitch).write(y, values);
  });
}

extern "C" __global__ void relu_backward(long long n, const real* sign, const real* dy, float slope,
                                         FIXED int width, FIXED int sign_pitch, FIXED int dy_pitch,
                                         FIXED int dx_pitch, real* dx) {
  bool packed = (width | sign_pitch | dy_pitch | dx_pitch) % PACK == 0 && aligned(sign, dy, dx);
  each_run(n, packed, [&](auto run) {
    auto spot = spot_of(run, width);
    auto signs = spot.in(sign_pitch).read(sign), values = spot.in(dy_pitch).read(dy);
    for (int k = 0; k < run.width; k++)
      if (!(signs.at[k] > 0)) values.at[k] *= slope;
    spot.in(dx_pitch).write(dx, values);
  });
}
