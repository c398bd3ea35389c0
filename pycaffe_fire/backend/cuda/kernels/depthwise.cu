// Convolution with one filter per channel: too little work per group for matrix products.

extern "C" __global__ void depthwise_lower(int n, const real* images, const float* weights,
                                           FIXED const int* geometry, real* maps) {
  GEOMETRY g = geometry_of(geometry);
  int windows = volume(g.out), pixels = volume(g.image), cells = volume(g.kernel);
  EACH(i, n) {
    int plane = (int)i / windows;
    Place at = place((int)i % windows, g.out);
    const real* image = images + (long long)plane * pixels;
    const float* weight = weights + plane % g.channels * cells;
    float sum = 0;
    EACH_CELL(g, d, h, w) {
      int from = seen(g, at, d, h, w);
      if (from >= 0) sum += image[from] * *weight;
      weight++;
    }
    maps[i] = sum;
  }
}

extern "C" __global__ void depthwise_raise(int n, const real* maps, const float* weights,
                                           FIXED const int* geometry, real* images) {
  GEOMETRY g = geometry_of(geometry);
  int windows = volume(g.out), pixels = volume(g.image), cells = volume(g.kernel);
  EACH(i, n) {
    int plane = (int)i / pixels;
    Place at = place((int)i % pixels, g.image);
    const real* map = maps + (long long)plane * windows;
    const float* weight = weights + plane % g.channels * cells;
    float sum = 0;
    EACH_CELL(g, d, h, w) {
      int window = seer(g, at, d, h, w);
      if (window >= 0) sum += map[window] * *weight;
      weight++;
    }
    images[i] = sum;
  }
}
