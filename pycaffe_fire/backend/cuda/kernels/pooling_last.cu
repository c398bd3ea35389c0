// The same as pooling.cu for blobs with their channels last: a thread takes neighbouring channels.
// n counts the elements that are written; those of the mask lie as those of the pooled blob would
// without gaps.

extern "C" __global__ void max_pool_last(int n, const real* x, FIXED int channels,
                                         FIXED const int* geometry, FIXED int pitch, real* y,
                                         int* mask) {
  GEOMETRY g = geometry_of(geometry);
  int windows = volume(g.out), pixels = volume(g.image);
  each_run(n, (channels | pitch) % PACK == 0 && aligned(x, y), [&](auto run) {
    auto spot = spot_of(run, channels);
    Place at = place(spot.row % windows, g.out);
    Floats<run.width> best;
    int winners[run.width];
    for (int k = 0; k < run.width; k++) best.at[k] = -3.402823466e+38f, winners[k] = -1;
    EACH_CELL(g, d, h, w) {
      int from = seen(g, at, d, h, w);
      if (from < 0) continue;
      long long row = (long long)(spot.row / windows) * pixels + from;
      auto values = decltype(run){row * channels + spot.rest}.read(x);
      for (int k = 0; k < run.width; k++) {
        float value = values.at[k];
        if (value > best.at[k] || (value != value && best.at[k] == best.at[k])) {
          best.at[k] = value;
          winners[k] = from;
        }
      }
    }
    spot.in(pitch).write(y, best);
    for (int k = 0; k < run.width; k++) mask[run.first + k] = winners[k];
  });
}

extern "C" __global__ void max_pool_last_backward(int n, const real* dy, const int* mask,
                                                  FIXED int channels, FIXED const int* geometry,
                                                  FIXED int pitch, real* dx) {
  GEOMETRY g = geometry_of(geometry);
  int windows = volume(g.out), pixels = volume(g.image);
  each_run(n, (channels | pitch) % PACK == 0 && aligned(dy, dx), [&](auto run) {
    auto spot = spot_of(run, channels);
    int own = spot.row % pixels;
    Place at = place(own, g.image);
    Floats<run.width> sums = {};
    EACH_CELL(g, d, h, w) {
      int window = seer(g, at, d, h, w);
      if (window < 0) continue;
      Spot<run.width> from{spot.row / pixels * windows + window, spot.rest, channels};
      auto values = from.in(pitch).read(dy);
      long long winners = from.in(0).first;
      for (int k = 0; k < run.width; k++)
        if (mask[winners + k] == own) sums.at[k] += values.at[k];
    }
    run.write(dx, sums);
  });
}

extern "C" __global__ void average_pool_last(int n, const real* x, FIXED int channels,
                                             FIXED const int* geometry, FIXED int pitch, real* y) {
  GEOMETRY g = geometry_of(geometry);
  int windows = volume(g.out), pixels = volume(g.image);
  each_run(n, (channels | pitch) % PACK == 0 && aligned(x, y), [&](auto run) {
    auto spot = spot_of(run, channels);
    Place at = place(spot.row % windows, g.out);
    Floats<run.width> sums = {};
    EACH_CELL(g, d, h, w) {
      int from = seen(g, at, d, h, w);
      if (from < 0) continue;
      long long row = (long long)(spot.row / windows) * pixels + from;
      auto values = decltype(run){row * channels + spot.rest}.read(x);
      for (int k = 0; k < run.width; k++) sums.at[k] += values.at[k];
    }
    for (float& sum : sums.at) sum /= divisor(g, at);
    spot.in(pitch).write(y, sums);
  });
}

extern "C" __global__ void average_pool_last_backward(int n, const real* dy, FIXED int channels,
                                                      FIXED const int* geometry, FIXED int pitch,
                                                      real* dx) {
  GEOMETRY g = geometry_of(geometry);
  int windows = volume(g.out), pixels = volume(g.image);
  each_run(n, (channels | pitch) % PACK == 0 && aligned(dy, dx), [&](auto run) {
    auto spot = spot_of(run, channels);
    Place at = place(spot.row % pixels, g.image);
    Floats<run.width> sums = {};
    EACH_CELL(g, d, h, w) {
      int window = seer(g, at, d, h, w);
      if (window < 0) continue;
      Spot<run.width> from{spot.row / pixels * windows + window, spot.rest, channels};
      auto values = from.in(pitch).read(dy);
      float cells = divisor(g, place(window, g.out));
      for (int k = 0; k < run.width; k++) sums.at[k] += values.at[k] / cells;
    }
    run.write(dx, sums);
  });
}
