// Caffe's transform of images that were uploaded as bytes.

// A record is an image's place in its source (top, left, whether it is mirrored: three ints), then
// its bytes, already cropped. y = (pixel - mean) * scale; `mean` is an image that is cropped alike,
// or, if it has one row, a row for each channel as wide as y.
extern "C" __global__ void transform_images(int n, const int* __restrict__ records, int words,
                                            const float* __restrict__ mean, int mean_height,
                                            int mean_width, int channels, int height, int width,
                                            float scale, float* __restrict__ y) {
  int size = channels * height * width;
  each_run(n, aligned(y), [&](auto run) {
    Floats<sizeof(run.read(y)) / 4> values;
    for (int k = 0; k < sizeof(values) / 4; k++) {
      int i = (int)run.first + k, at = i % size;
      const int* record = records + (long long)(i / size) * words;
      int column = at % width, row = at / width % height, channel = at / width / height;
      if (record[2]) column = width - 1 - column;
      float pixel = ((const unsigned char*)(record + 3))[(channel * height + row) * width + column];
      bool shared = mean_height == 1 && mean_width == width;
      int mean_row = shared ? 0 : row + record[0], mean_column = shared ? 0 : record[1];
      float middle = mean[(channel * mean_height + mean_row) * mean_width + mean_column + column];
      values.at[k] = (pixel - middle) * scale;
    }
    run.write(y, values);
  });
}
