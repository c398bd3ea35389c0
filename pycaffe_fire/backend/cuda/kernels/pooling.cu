// Pooling with windows clipped at the border. The mask holds each winner's index in its image:
// the first of equals in row-major order, or -1 where a window has no cell inside. NaN wins over
// every number, so that a diverged net shows it.

extern "C" __global__ void max_pool(int n, const real* x, const int* geometry, real* y,
                                    int* mask) {
  const Geometry& g = *(const Geometry*)geometry;
  int windows = volume(g.out), pixels = volume(g.image);
  EACH(i, n) {
    const real* image = x + (long long)((int)i / windows) * pixels;
    Place at = place((int)i % windows, g.out);
    float best = -3.402823466e+38f;
    int winner = -1;
    EACH_CELL(g, d, h, w) {
      int from = seen(g, at, d, h, w);
      float value = from < 0 ? best : (float)image[from];
      if (value > best || (value != value && best == best)) {
        best = value;
        winner = from;
      }
    }
    y[i] = best;
    mask[i] = winner;
  }
}

extern "C" __global__ void max_pool_backward(int n, const real* dy, const int* mask,
                                             const int* geometry, real* dx) {
  const Geometry& g = *(const Geometry*)geometry;
  int windows = volume(g.out), pixels = volume(g.image);
  EACH(i, n) {
    int own = (int)i % pixels;
    long long first = (long long)((int)i / pixels) * windows;
    Place at = place(own, g.image);
    float sum = 0;
    EACH_CELL(g, d, h, w) {
      int window = seer(g, at, d, h, w);
      if (window >= 0 && mask[first + window] == own) sum += dy[first + window];
    }
    dx[i] = sum;
  }
}

// Caffe divides by the cells of the window that lie inside the padded image.
__device__ inline float divisor(const Geometry& g, const Place& window) {
  int cells = 1;
  for (int axis = 0; axis < 3; axis++) {
    int start = window.at[axis] * g.stride[axis] - g.pad[axis];
    cells *= min(start + g.kernel[axis], g.image[axis] + g.pad[axis]) - start;
  }
  return cells;
}

extern "C" __global__ void average_pool(int n, const real* x, const int* geometry, real* y) {
  const Geometry& g = *(const Geometry*)geometry;
  int windows = volume(g.out), pixels = volume(g.image);
  EACH(i, n) {
    const real* image = x + (long long)((int)i / windows) * pixels;
    Place at = place((int)i % windows, g.out);
    float sum = 0;
    EACH_CELL(g, d, h, w) {
      int from = seen(g, at, d, h, w);
      if (from >= 0) sum += image[from];
    }
    y[i] = sum / divisor(g, at);
  }
}

extern "C" __global__ void average_pool_backward(int n, const real* dy, const int* geometry,
                                                 real* dx) {
  const Geometry& g = *(const Geometry*)geometry;
  int windows = volume(g.out), pixels = volume(g.image);
  EACH(i, n) {
    const real* map = dy + (long long)((int)i / pixels) * windows;
    Place at = place((int)i % pixels, g.image);
    float sum = 0;
    EACH_CELL(g, d, h, w) {
      int window = seer(g, at, d, h, w);
      if (window >= 0) sum += map[window] / divisor(g, place(window, g.out));
    }
    dx[i] = sum;
  }
}
