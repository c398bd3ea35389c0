// What follows a product: add one number per channel, then ReLU. Values are (outer, channels,
// inner); without a bias the pointer is null.

extern "C" __global__ void bias_relu(int n, const float* bias, int channels, int inner, int relu,
                                     float slope, real* values) {
  EACH(i, n) {
    float value = values[i];
    if (bias) value += bias[(int)i / inner % channels];
    values[i] = relu ? rectified(value, slope) : value;
  }
}
