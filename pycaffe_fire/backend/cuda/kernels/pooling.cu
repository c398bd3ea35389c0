// Pooling with windows clipped at the border, of images one channel after the other. The mask holds
// each winner's index in its image: the first of equals in row-major order, or -1 where a window
// has no cell inside. NaN wins over every number, so that a diverged net shows it.

// Where value i of the pooled blob lies whose images are `pitch` elements apart; 0: without a gap.
__device__ inline long long pooled(int i, int windows, int channels, int pitch) {
  if (pitch == 0) return i;
  int plane = i / windows;
  return (long long)(plane / channels) * pitch + plane % channels * windows + i % windows;
}

extern "C" __global__ void max_pool(int n, const real* x, FIXED int channels,
                                    FIXED const int* geometry, FIXED int pitch, real* y,
                                    int* mask) {
  GEOMETRY g = geometry_of(geometry);
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
    y[pooled((int)i, windows, channels, pitch)] = best;
    mask[i] = winner;
  }
}

extern "C" __global__ void max_pool_backward(int n, const real* dy, const int* mask,
                                             FIXED int channels, FIXED const int* geometry,
                                             FIXED int pitch, real* dx) {
  GEOMETRY g = geometry_of(geometry);
  int windows = volume(g.out), pixels = volume(g.image);
  EACH(i, n) {
    int own = (int)i % pixels;
    int first = (int)i / pixels * windows;
    const real* map = dy + pooled(first, windows, channels, pitch);
    Place at = place(own, g.image);
    float sum = 0;
    EACH_CELL(g, d, h, w) {
      int window = seer(g, at, d, h, w);
      if (window >= 0 && mask[first + window] == own) sum += map[window];
    }
    dx[i] = sum;
  }
}

extern "C" __global__ void average_pool(int n, const real* x, FIXED int channels,
                                        FIXED const int* geometry, FIXED int pitch, real* y) {
  GEOMETRY g = geometry_of(geometry);
  int windows = volume(g.out), pixels = volume(g.image);
  EACH(i, n) {
    const real* image = x + (long long)((int)i / windows) * pixels;
    Place at = place((int)i % windows, g.out);
    float sum = 0;
    EACH_CELL(g, d, h, w) {
      int from = seen(g, at, d, h, w);
      if (from >= 0) sum += image[from];
    }
    y[pooled((int)i, windows, channels, pitch)] = sum / divisor(g, at);
  }
}

extern "C" __global__ void average_pool_backward(int n, const real* dy, FIXED int channels,
                                                 FIXED const int* geometry, FIXED int pitch,
                                                 real* dx) {
  GEOMETRY g = geometry_of(geometry);
  int windows = volume(g.out), pixels = volume(g.image);
  EACH(i, n) {
    const real* map = dy + pooled((int)i / pixels * windows, windows, channels, pitch);
    Place at = place((int)i % pixels, g.image);
    float sum = 0;
    EACH_CELL(g, d, h, w) {
      int window = seer(g, at, d, h, w);
      if (window >= 0) sum += map[window] / divisor(g, place(window, g.out));
    }
    dx[i] = sum;
  }
}
