// Moves (outer, length) rows between arrays whose rows are `x_row` and `y_row` long: concatenation
// forward and backward.

extern "C" __global__ void copy_part(int n, const real* x, int x_row, int x_first, int length,
                                     int y_row, int y_first, real* y) {
  EACH(i, n) {
    long long row = (int)i / length, column = (int)i % length;
    y[row * y_row + y_first + column] = x[row * x_row + x_first + column];
  }
}
