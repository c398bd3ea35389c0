// One block per weight sums over all images and windows; n counts the weights.

extern "C" __global__ void depthwise_correlate(int n, const real* images, const real* maps,
                                               FIXED const int* geometry, int samples, float keep,
                                               float* gradients) {
  GEOMETRY g = geometry_of(geometry);
  int windows = volume(g.out), pixels = volume(g.image), cells = volume(g.kernel);
  EACH_BLOCK(item, n) {
    int channel = item / cells;
    Place cell = place(item % cells, g.kernel);
    float sum = 0;
    for (int i = threadIdx.x; i < samples * windows; i += THREADS) {
      int window = i % windows;
      long long plane = (long long)(i / windows) * g.channels + channel;
      int from = seen(g, place(window, g.out), cell.at[0], cell.at[1], cell.at[2]);
      if (from >= 0) sum += images[plane * pixels + from] * maps[plane * windows + window];
    }
    float total = block_sum(sum);
    if (threadIdx.x == 0) gradients[item] = (keep != 0 ? keep * gradients[item] : 0) + total;
  }
}
