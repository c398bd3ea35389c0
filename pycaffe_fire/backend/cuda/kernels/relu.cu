// ReLU, also leaky. The way back looks at whatever has the input's sign.

extern "C" __global__ void relu(long long n, const float* x, float slope, float* y) {
  EACH(i, n) y[i] = rectified(x[i], slope);
}

extern "C" __global__ void relu_backward(long long n, const float* sign, const float* dy,
                                         float slope, float* dx) {
  EACH(i, n) dx[i] = sign[i] > 0 ? dy[i] : slope * dy[i];
}
