// One or two numbers per channel of (outer, channels, inner). `kept` receives a copy of the input
// for the way back where the output takes its place, else it is null.

extern "C" __global__ void scale_shift(int n, const real* x, const float* scale,
                                       const float* shift, int channels, int inner, real* kept,
                                       real* y) {
  EACH(i, n) {
    int c = (int)i / inner % channels;
    float value = x[i];
    if (kept) kept[i] = value;
    if (scale) value *= scale[c];
    if (shift) value += shift[c];
    y[i] = value;
  }
}

extern "C" __global__ void prelu(int n, const real* x, const float* slopes, int channels,
                                 int inner, real* kept, real* y) {
  EACH(i, n) {
    float value = x[i];
    if (kept) kept[i] = value;
    y[i] = rectified(value, slopes[(int)i / inner % channels]);
  }
}

extern "C" __global__ void prelu_backward(int n, const real* x, const real* dy,
                                          const float* slopes, int channels, int inner, real* dx) {
  EACH(i, n) {
    float slope = x[i] <= 0 ? slopes[(int)i / inner % channels] : 1;
    dx[i] = slope * dy[i];
  }
}
