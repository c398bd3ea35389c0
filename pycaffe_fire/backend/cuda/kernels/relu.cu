// ReLU, also leaky. The way back looks at whatever has the input's sign.

extern "C" __global__ void relu(long long n, const real* x, float slope, real* y) {
  each_run(n, aligned(x, y), [&](auto run) {
    auto values = run.read(x);
    for (float& value : values.at) value = rectified(value, slope);
    run.write(y, values);
  });
}

extern "C" __global__ void relu_backward(long long n, const real* sign, const real* dy,
                                         float slope, real* dx) {
  each_run(n, aligned(sign, dy, dx), [&](auto run) {
    auto signs = run.read(sign), values = run.read(dy);
    for (int k = 0; k < sizeof(values) / 4; k++)
      if (!(signs.at[k] > 0)) values.at[k] *= slope;
    run.write(dx, values);
  });
}
