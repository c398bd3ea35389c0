// Stands before every kernel file.
//
// Kernels take the number of their elements first and are right for any launch: EACH gives every
// element to exactly one thread, EACH_BLOCK every item to one block of THREADS threads. Kernels
// that divide indices take an `int n`, because 32-bit division is much faster; a launch with more
// elements is refused before it starts.

#define THREADS 256

// Marks parameters that are shapes: variants of kernels have them as constants (launch.py).
#define FIXED

#define EACH(i, n)                                                             \
  for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < (n); \
       i += (long long)gridDim.x * blockDim.x)

#define EACH_BLOCK(i, n) for (int i = blockIdx.x; i < (n); i += gridDim.x)

__device__ inline float rectified(float value, float slope) {
  return value > 0 ? value : slope * value;
}
