// Inner products of two flat buffers, parameter by parameter, in double precision.

// `pieces` holds n rows: start, stop, and the parameter, which only the host needs.
extern "C" __global__ void piece_dots(int n, const long long* pieces, const float* a,
                                      const float* b, double* sums) {
  EACH_BLOCK(p, n) {
    long long stop = pieces[3 * p + 1];
    double sum = 0;
    for (long long i = pieces[3 * p] + threadIdx.x; i < stop; i += THREADS)
      sum += (double)a[i] * b[i];
    double total = block_sum(sum);
    if (threadIdx.x == 0) sums[p] = total;
  }
}

// totals[i] = the sum of sums[firsts[i]] up to sums[firsts[i + 1]]; n counts the totals.
extern "C" __global__ void sum_runs(int n, const long long* firsts, const double* sums,
                                    double* totals) {
  EACH_BLOCK(r, n) {
    double sum = 0;
    for (long long i = firsts[r] + threadIdx.x; i < firsts[r + 1]; i += THREADS) sum += sums[i];
    double total = block_sum(sum);
    if (threadIdx.x == 0) totals[r] = total;
  }
}
