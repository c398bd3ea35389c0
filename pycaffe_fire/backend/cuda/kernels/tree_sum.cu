// Rows summed along the canonical tree: after row r, merges[r] pairs of neighbours are due.
// A stack of as many sums as the tree has levels is enough.

#define LEVELS 32

extern "C" __global__ void tree_sum(long long n, const real* rows, const int* merges, int count,
                                    float* total) {
  EACH(i, n) {
    float stack[LEVELS];
    int depth = 0;
    for (int r = 0; r < count; ++r) {
      stack[depth++] = rows[r * n + i];
      for (int m = merges[r]; m > 0; --m, --depth) stack[depth - 2] += stack[depth - 1];
    }
    total[i] = stack[0];
  }
}
