// Values in another order, at another pitch or stored in another type: NCHW to NHWC and back, and
// parts of a larger blob taken out or put in.

#define TILE 32

// Rows of `width` elements that begin x_pitch and y_pitch elements apart; n counts the elements.
template <class A, class B>
__device__ inline void each_run_copied(int n, const A* x, int width, int x_pitch, int y_pitch,
                                       B* y) {
  bool packed = (width | x_pitch | y_pitch) % PACK == 0 && aligned((const void*)x, (void*)y);
  each_run(n, packed, [&](auto run) {
    auto spot = spot_of(run, width);
    spot.in(y_pitch).write(y, spot.in(x_pitch).read(x));
  });
}

extern "C" __global__ void copy_rows(int n, const real* __restrict__ x, FIXED int width,
                                     FIXED int x_pitch, FIXED int y_pitch, real* __restrict__ y) {
  each_run_copied(n, x, width, x_pitch, y_pitch, y);
}

extern "C" __global__ void narrow_rows(int n, const float* __restrict__ x, FIXED int width,
                                       FIXED int x_pitch, FIXED int y_pitch,
                                       real* __restrict__ y) {
  each_run_copied(n, x, width, x_pitch, y_pitch, y);
}

extern "C" __global__ void widen_rows(int n, const real* __restrict__ x, FIXED int width,
                                      FIXED int x_pitch, FIXED int y_pitch,
                                      float* __restrict__ y) {
  each_run_copied(n, x, width, x_pitch, y_pitch, y);
}

// One matrix (rows, columns) for each sample, its columns written as rows; blocks take tiles, of
// which n counts all. Rows lie x_pitch apart in x, columns y_pitch in y.
template <class A, class B>
__device__ inline void turn_tiles(int n, const A* x, int rows, int columns, int x_pitch,
                                  int x_sample, int y_pitch, int y_sample, B* y) {
  __shared__ float tile[TILE][TILE + 1];
  int across = (columns + TILE - 1) / TILE, down = (rows + TILE - 1) / TILE;
  int fast = threadIdx.x % TILE, slow = threadIdx.x / TILE;
  EACH_BLOCK(block, n) {
    int at = block % (across * down), top = at / across * TILE, left = at % across * TILE;
    const A* from = x + (long long)(block / (across * down)) * x_sample;
    B* to = y + (long long)(block / (across * down)) * y_sample;
    for (int i = slow; i < TILE; i += THREADS / TILE)
      if (top + i < rows && left + fast < columns)
        tile[i][fast] = from[(long long)(top + i) * x_pitch + left + fast];
    __syncthreads();
    for (int i = slow; i < TILE; i += THREADS / TILE)
      if (left + i < columns && top + fast < rows)
        to[(long long)(left + i) * y_pitch + top + fast] = tile[fast][i];
    __syncthreads();
  }
}

extern "C" __global__ void turn(int n, const real* __restrict__ x, FIXED int rows,
                                FIXED int columns, FIXED int x_pitch, FIXED int x_sample,
                                FIXED int y_pitch, FIXED int y_sample, real* __restrict__ y) {
  turn_tiles(n, x, rows, columns, x_pitch, x_sample, y_pitch, y_sample, y);
}

extern "C" __global__ void turn_narrow(int n, const float* __restrict__ x, FIXED int rows,
                                       FIXED int columns, FIXED int x_pitch, FIXED int x_sample,
                                       FIXED int y_pitch, FIXED int y_sample,
                                       real* __restrict__ y) {
  turn_tiles(n, x, rows, columns, x_pitch, x_sample, y_pitch, y_sample, y);
}

extern "C" __global__ void turn_wide(int n, const real* __restrict__ x, FIXED int rows,
                                     FIXED int columns, FIXED int x_pitch, FIXED int x_sample,
                                     FIXED int y_pitch, FIXED int y_sample,
                                     float* __restrict__ y) {
  turn_tiles(n, x, rows, columns, x_pitch, x_sample, y_pitch, y_sample, y);
}
