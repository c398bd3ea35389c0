// Images to patches and back. Strides place the patches: (image, row, window) for batched
// products per image, (row, image, window) for one long product over all images. Images may lie
// apart in memory.

extern "C" __global__ void im2col(int n, const real* images, int image_pitch,
                                  FIXED const int* geometry, long long row_stride,
                                  long long image_stride, real* patches) {
  GEOMETRY g = geometry_of(geometry);
  int windows = volume(g.out), pixels = volume(g.image), cells = volume(g.kernel);
  EACH(i, n) {
    int window = (int)i % windows, plane = (int)i / windows;
    int channel = plane % g.channels, image = plane / g.channels;
    Place at = place(window, g.out);
    const real* source = images + (long long)image * image_pitch + channel * pixels;
    real* target =
        patches + image * image_stride + (long long)channel * cells * row_stride + window;
    EACH_CELL(g, d, h, w) {
      int from = seen(g, at, d, h, w);
      *target = from < 0 ? 0 : (float)source[from];
      target += row_stride;
    }
  }
}

// Every pixel gathers from the patches that saw it, cell by cell: no atomics, always the same sum.
extern "C" __global__ void col2im(int n, const real* patches, FIXED const int* geometry,
                                  real* images) {
  GEOMETRY g = geometry_of(geometry);
  int windows = volume(g.out), pixels = volume(g.image), cells = volume(g.kernel);
  EACH(i, n) {
    int plane = (int)i / pixels;
    Place at = place((int)i % pixels, g.image);
    const real* row = patches + (long long)plane * cells * windows;
    float sum = 0;
    EACH_CELL(g, d, h, w) {
      int window = seer(g, at, d, h, w);
      if (window >= 0) sum += row[window];
      row += windows;
    }
    images[i] = sum;
  }
}
