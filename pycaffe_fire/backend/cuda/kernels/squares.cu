// Sums of squares in double precision, one number per chunk of a flat buffer; n counts the chunks.

extern "C" __global__ void square_sums(int n, const float* values, long long size,
                                       long long chunk, double* sums) {
  EACH_BLOCK(c, n) {
    long long stop = min((c + 1) * chunk, size);
    double sum = 0;
    for (long long i = c * chunk + threadIdx.x; i < stop; i += THREADS)
      sum += (double)values[i] * values[i];
    double total = block_sum(sum);
    if (threadIdx.x == 0) sums[c] = total;
  }
}
