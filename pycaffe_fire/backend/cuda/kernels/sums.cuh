// Sums over a block of THREADS threads, always along the same tree; and over several blocks.

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

// The same of numbers that are joined by a method `with`.
template <class T>
__device__ inline T block_total(T own) {
  __shared__ T parts[THREADS];
  parts[threadIdx.x] = own;
  __syncthreads();
  for (int half = THREADS / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) parts[threadIdx.x] = parts[threadIdx.x].with(parts[threadIdx.x + half]);
    __syncthreads();
  }
  T result = parts[0];
  __syncthreads();
  return result;
}

// Is this the last of `count` blocks to come here? Then what the others wrote before can be read,
// through volatile pointers, and *arrived is 0 again.
__device__ inline bool last_of(int count, int* arrived) {
  __shared__ int last;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    last = atomicAdd(arrived, 1) == count - 1;
    if (last) *arrived = 0;
  }
  __syncthreads();
  bool result = last;
  __threadfence();
  __syncthreads();
  return result;
}
