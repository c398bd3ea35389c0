// Sums over a block of THREADS threads, always along the same tree.

template <class T>
__device__ inline T block_sum(T value) {
  __shared__ T parts[THREADS];
  parts[threadIdx.x] = value;
  __syncthreads();
  for (int half = THREADS / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) parts[threadIdx.x] += parts[threadIdx.x + half];
    __syncthreads();
  }
  T total = parts[0];
  __syncthreads();
  return total;
}
