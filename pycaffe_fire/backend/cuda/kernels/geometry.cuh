// A window sliding over the last three axes of (samples, channels, depth, height, width); nets
// with fewer axes have extents of 1 in front. The host fills it as 19 ints, see geometry.py.

struct Geometry {
  int channels, image[3], kernel[3], stride[3], pad[3], dilation[3], out[3];
};

// Of constants it is a value that compilers see through; else it stays in memory.
#ifdef CONSTANTS
#define GEOMETRY const Geometry
__device__ inline Geometry geometry_of(const int* n) {
  return {n[0],
          {n[1], n[2], n[3]},
          {n[4], n[5], n[6]},
          {n[7], n[8], n[9]},
          {n[10], n[11], n[12]},
          {n[13], n[14], n[15]},
          {n[16], n[17], n[18]}};
}
#else
#define GEOMETRY const Geometry&
__device__ inline const Geometry& geometry_of(const int* n) { return *(const Geometry*)n; }
#endif

__device__ inline int volume(const int* extent) { return extent[0] * extent[1] * extent[2]; }

// Where along `axis` cell `cell` of window `window` lies in the image; may lie outside.
__device__ inline int pixel(const Geometry& g, int axis, int window, int cell) {
  return window * g.stride[axis] - g.pad[axis] + cell * g.dilation[axis];
}

// Which window sees pixel `at` through cell `cell`, or -1.
__device__ inline int window_of(const Geometry& g, int axis, int at, int cell) {
  int offset = at + g.pad[axis] - cell * g.dilation[axis];
  if (offset < 0 || offset % g.stride[axis]) return -1;
  int window = offset / g.stride[axis];
  return window < g.out[axis] ? window : -1;
}

struct Place {
  int at[3];
};

__device__ inline Place place(int flat, const int* extent) {
  Place p;
  p.at[2] = flat % extent[2];
  p.at[1] = flat / extent[2] % extent[1];
  p.at[0] = flat / extent[2] / extent[1];
  return p;
}

// The flat index of a cell's pixel in its image, or -1 outside.
__device__ inline int seen(const Geometry& g, const Place& window, int d, int h, int w) {
  int z = pixel(g, 0, window.at[0], d);
  int y = pixel(g, 1, window.at[1], h);
  int x = pixel(g, 2, window.at[2], w);
  bool inside = z >= 0 && z < g.image[0] && y >= 0 && y < g.image[1] && x >= 0 && x < g.image[2];
  return inside ? (z * g.image[1] + y) * g.image[2] + x : -1;
}

// The flat index of the window that sees a pixel through a cell, or -1.
__device__ inline int seer(const Geometry& g, const Place& pixel, int d, int h, int w) {
  int z = window_of(g, 0, pixel.at[0], d);
  int y = window_of(g, 1, pixel.at[1], h);
  int x = window_of(g, 2, pixel.at[2], w);
  return z < 0 || y < 0 || x < 0 ? -1 : (z * g.out[1] + y) * g.out[2] + x;
}

#define EACH_CELL(g, d, h, w)              \
  for (int d = 0; d < (g).kernel[0]; d++)  \
    for (int h = 0; h < (g).kernel[1]; h++) \
      for (int w = 0; w < (g).kernel[2]; w++)

// What Caffe divides an average by: the cells of the window that lie inside the padded image.
__device__ inline float divisor(const Geometry& g, const Place& window) {
  int cells = 1;
  for (int axis = 0; axis < 3; axis++) {
    int start = window.at[axis] * g.stride[axis] - g.pad[axis];
    cells *= min(start + g.kernel[axis], g.image[axis] + g.pad[axis]) - start;
  }
  return cells;
}
