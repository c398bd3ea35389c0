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

// Records as above, made of images that are on the device in rows of red, green, blue (or of grey).
// A line of the table: the record's number, the image's address, the bytes from row to row, and the
// record's first three ints. One thread makes one int of a record.
extern "C" __global__ void cut_images(int n, const long long* __restrict__ table, int words,
                                      int channels, int height, int width,
                                      int* __restrict__ records) {
  int size = channels * height * width;
  EACH(at_all, n) {
    int i = (int)at_all;
    const long long* line = table + i / words * 6;
    const unsigned char* image = (const unsigned char*)line[1];
    int word = i % words, value = 0;
    if (word < 3) value = (int)line[3 + word];
    for (int k = 0, at = (word - 3) * 4; word >= 3 && k < 4 && at + k < size; k++) {
      int column = (at + k) % width, row = (at + k) / width % height;
      int channel = channels - 1 - (at + k) / width / height;
      long long first = (line[3] + row) * line[2] + (line[4] + column) * channels;
      value |= image[first + channel] << 8 * k;
    }
    records[line[0] * words + word] = value;
  }
}
