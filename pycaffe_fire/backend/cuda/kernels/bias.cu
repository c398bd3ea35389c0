// What follows a product: add one number per channel, then ReLU. Values are (outer, channels,
// inner); without a bias the pointer is null. Runs do not cross channels.

extern "C" __global__ void bias_relu(int n, const float* bias, int channels, int inner, int relu,
                                     float slope, real* values) {
  each_run(n, inner % PACK == 0 && aligned(values), [&](auto run) {
    auto here = run.read(values);
    float more = bias ? bias[(int)run.first / inner % channels] : 0;
    for (float& value : here.at) {
      if (bias) value += more;
      if (relu) value = rectified(value, slope);
    }
    run.write(values, here);
  });
}
