// Local response normalisation over a box around each element of (samples, channels, depth,
// height, width): across channels or within one, as half the box's extents say.

struct Box {
  int extent[4], half[4];
};

template <class T>
__device__ inline float box_sum(const T* values, const Box& box, int at, bool squares) {
  int strides[4], low[4], high[4], rest = at, stride = 1;
  for (int axis = 3; axis >= 0; axis--) {
    int here = rest % box.extent[axis];
    rest /= box.extent[axis];
    strides[axis] = stride;
    stride *= box.extent[axis];
    low[axis] = max(-box.half[axis], -here);
    high[axis] = min(box.half[axis], box.extent[axis] - 1 - here);
  }
  float sum = 0;
  for (int c = low[0]; c <= high[0]; c++)
    for (int d = low[1]; d <= high[1]; d++)
      for (int h = low[2]; h <= high[2]; h++)
        for (int w = low[3]; w <= high[3]; w++) {
          long long offset = (long long)c * strides[0] + (long long)d * strides[1] +
                             (long long)h * strides[2] + w;
          float value = values[at + offset];
          sum += squares ? value * value : value;
        }
  return sum;
}

extern "C" __global__ void lrn(int n, const real* x, const int* box, float factor, float beta,
                               float k, float* scale, real* y) {
  EACH(i, n) {
    float s = k + factor * box_sum(x, *(const Box*)box, (int)i, true);
    scale[i] = s;
    y[i] = x[i] * powf(s, -beta);
  }
}

extern "C" __global__ void lrn_ratio(int n, const real* x, const real* dy, const float* scale,
                                     float beta, float* ratio) {
  EACH(i, n) ratio[i] = dy[i] * powf(scale[i], -beta) * x[i] / scale[i];
}

extern "C" __global__ void lrn_backward(int n, const real* x, const real* dy, const float* scale,
                                        const float* ratio, const int* box, float factor,
                                        float beta, real* dx) {
  EACH(i, n) {
    float sum = box_sum(ratio, *(const Box*)box, (int)i, false);
    dx[i] = dy[i] * powf(scale[i], -beta) - 2 * factor * beta * x[i] * sum;
  }
}
