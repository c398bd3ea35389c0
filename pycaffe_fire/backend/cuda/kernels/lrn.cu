// Local response normalisation over a box around each element of (samples, channels, depth,
// height, width): across channels or within one, as half the box's extents say. Across channels a
// run of neighbours has its sums in common steps, where channels are a multiple of it long.

struct Box {
  int extent[4], half[4];

  __device__ int inner() const { return extent[1] * extent[2] * extent[3]; }
  __device__ bool across() const { return (half[1] | half[2] | half[3]) == 0; }
  __device__ bool takes_runs() const { return across() && inner() % PACK == 0; }
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

// Sums over the boxes of a run's elements, which lie in one channel; in the order of channels.
// Within channels there are no runs.
template <int W, class T>
__device__ inline Floats<W> box_sums(Run<W> run, const T* values, const Box& box, bool squares) {
  Floats<W> sums = {};
  if (W == 1 && !box.across()) {
    sums.at[0] = box_sum(values, box, (int)run.first, squares);
    return sums;
  }
  int inner = box.inner(), channel = (int)run.first / inner % box.extent[0];
  int low = max(-box.half[0], -channel), high = min(box.half[0], box.extent[0] - 1 - channel);
  for (int c = low; c <= high; c++) {
    auto found = Run<W>{run.first + (long long)c * inner}.read(values);
    for (int k = 0; k < W; k++)
      sums.at[k] += squares ? found.at[k] * found.at[k] : found.at[k];
  }
  return sums;
}

extern "C" __global__ void lrn(int n, const real* __restrict__ x, const int* __restrict__ box,
                               float factor, float beta, float k, float* __restrict__ scale,
                               real* __restrict__ y) {
  Box around = *(const Box*)box;
  each_run(n, around.takes_runs() && aligned(x, scale, y), [&](auto run) {
    auto values = run.read(x), sums = box_sums(run, x, around, true);
    for (int i = 0; i < sizeof(values) / 4; i++) {
      sums.at[i] = k + factor * sums.at[i];
      values.at[i] *= powf(sums.at[i], -beta);
    }
    run.write(scale, sums);
    run.write(y, values);
  });
}

extern "C" __global__ void lrn_ratio(int n, const real* __restrict__ x,
                                     const real* __restrict__ dy, const float* __restrict__ scale,
                                     float beta, float* __restrict__ ratio) {
  each_run(n, aligned(x, dy, scale, ratio), [&](auto run) {
    auto values = run.read(x), gradients = run.read(dy), scales = run.read(scale);
    for (int i = 0; i < sizeof(values) / 4; i++)
      values.at[i] = gradients.at[i] * powf(scales.at[i], -beta) * values.at[i] / scales.at[i];
    run.write(ratio, values);
  });
}

extern "C" __global__ void lrn_backward(int n, const real* __restrict__ x,
                                        const real* __restrict__ dy,
                                        const float* __restrict__ scale,
                                        const float* __restrict__ ratio,
                                        const int* __restrict__ box, float factor, float beta,
                                        real* __restrict__ dx) {
  Box around = *(const Box*)box;
  each_run(n, around.takes_runs() && aligned(x, dy, scale, ratio) && aligned(dx), [&](auto run) {
    auto values = run.read(x), gradients = run.read(dy), scales = run.read(scale);
    auto sums = box_sums(run, ratio, around, false);
    for (int i = 0; i < sizeof(values) / 4; i++)
      values.at[i] = gradients.at[i] * powf(scales.at[i], -beta) -
                     2 * factor * beta * values.at[i] * sums.at[i];
    run.write(dx, values);
  });
}
