// Dynamic scaling of losses: the state holds the scale, the iterations since it last changed, and
// how many updates were skipped. The host needs none of it.

extern "C" __global__ void find_overflow(long long n, const float* gradients, int* overflow) {
  EACH(i, n) if (!(fabsf(gradients[i]) <= 3.402823466e+38f)) *overflow = 1;
}

// At a scale of 1 nothing is left to try: bad numbers go on to the checks of the host.
__device__ inline bool skips(const float* state, const int* overflow) {
  return *overflow && state[0] > 1;
}

extern "C" __global__ void unscale(long long n, const float* state, const int* overflow,
                                   float* gradients) {
  float factor = 1 / state[0];
  bool skip = skips(state, overflow);
  EACH(i, n) gradients[i] = skip ? 0 : gradients[i] * factor;
}

extern "C" __global__ void adjust_scale(int n, float patience, float most, float* state,
                                        int* overflow, int* skip) {
  EACH(i, n) {
    *skip = skips(state, overflow);
    state[1] += 1;
    if (*skip) {
      state[0] /= 2;
      state[2] += 1;
      state[1] = 0;
    } else if (state[1] >= patience) {
      state[0] = min(2 * state[0], most);
      state[1] = 0;
    }
    *overflow = 0;
  }
}

// The pieces of an update, all of them empty if it is to be skipped.
extern "C" __global__ void gate_pieces(int n, const double* table, const int* skip,
                                       double* gated) {
  EACH(i, n) {
    for (int column = 0; column < 4; column++) gated[4 * i + column] = table[4 * i + column];
    if (*skip) gated[4 * i + 1] = gated[4 * i];
  }
}
