// Softmax over the middle axis of (outer, classes, inner). A thread takes one position; neighbours
// read neighbouring inner elements.

extern "C" __global__ void softmax(int n, const float* x, int classes, int inner, float* y) {
  EACH(i, n) {
    long long first = (long long)((int)i / inner) * classes * inner + (int)i % inner;
    float highest = x[first], sum = 0;
    for (int c = 1; c < classes; c++) highest = max(highest, x[first + (long long)c * inner]);
    for (int c = 0; c < classes; c++) {
      float e = expf(x[first + (long long)c * inner] - highest);
      y[first + (long long)c * inner] = e;
      sum += e;
    }
    for (int c = 0; c < classes; c++) y[first + (long long)c * inner] /= sum;
  }
}
