// Up to four tensors at once; those that are missing are null.

// y = a * a_factor + b * b_factor + ..., then ReLU if asked for; y may be one of them.
extern "C" __global__ void weighted_sum(long long n, const real* a, const real* b, const real* c,
                                        const real* d, float a_factor, float b_factor,
                                        float c_factor, float d_factor, int relu, float slope,
                                        real* y) {
  each_run(n, aligned(a, b, c, d, y), [&](auto run) {
    auto values = run.read(a);
    for (float& value : values.at) value *= a_factor;
    auto add = [&](const real* more, float factor) {
      if (!more) return;
      auto others = run.read(more);
      for (int k = 0; k < sizeof(values) / 4; k++) values.at[k] += factor * others.at[k];
    };
    add(b, b_factor);
    add(c, c_factor);
    add(d, d_factor);
    if (relu)
      for (float& value : values.at) value = rectified(value, slope);
    run.write(y, values);
  });
}

// The way back: a = dy * a_factor and so on. With `sign`, dy first goes back through a ReLU whose
// output has that sign, and the result is also written to `back`.
extern "C" __global__ void weighted_spread(long long n, const real* dy, const real* sign,
                                           float slope, float a_factor, float b_factor,
                                           float c_factor, float d_factor, real* back, real* a,
                                           real* b, real* c, real* d) {
  each_run(n, aligned(dy, sign, back, a) && aligned(b, c, d), [&](auto run) {
    auto values = run.read(dy);
    if (sign) {
      auto signs = run.read(sign);
      for (int k = 0; k < sizeof(values) / 4; k++)
        if (!(signs.at[k] > 0)) values.at[k] *= slope;
      run.write(back, values);
    }
    auto give = [&](real* target, float factor) {
      if (!target) return;
      auto made = values;
      for (float& value : made.at) value *= factor;
      run.write(target, made);
    };
    give(a, a_factor);
    give(b, b_factor);
    give(c, c_factor);
    give(d, d_factor);
  });
}
