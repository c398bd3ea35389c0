// ReLU, also leaky. The way back looks at whatever has the input's sign.

extern "C" __global__ void relu(long long n, const real* x, float slope, real* y) {
  EACH(i, n) y[i] = rectified(x[i], slope);
}

extern "C" __global__ void relu_backward(long long n, const real* sign, const real* dy,
                                         float slope, real* dx) {
  EACH(i, n) dx[i] = (sign[i] > 0 ? 1 : slope) * dy[i];
}
