// Update rules over flat buffers. The table cuts them into n pieces that never cross two
// parameters: start, stop, and the parameter's multipliers of rate and decay. Each kernel
// computes the array code of the rule of its name in solver/rules/.

struct Piece {
  long long start, stop;
  float rate, decay;
};

__device__ inline Piece piece_of(const double* table, int index, double rate, double decay) {
  const double* row = table + 4 * index;
  return {(long long)row[0], (long long)row[1], (float)(rate * row[2]), (float)(decay * row[3])};
}

__device__ inline float regularised(float g, float w, float scale, float decay, int l1) {
  float pull = l1 ? (float)((w > 0) - (w < 0)) : w;
  return g * scale + decay * pull;
}

#define EACH_WEIGHT(i, p, index)                             \
  EACH_BLOCK(index, n)                                       \
  if (Piece p = piece_of(table, index, rate, decay); true)   \
    for (long long i = p.start + threadIdx.x; i < p.stop; i += THREADS)

extern "C" __global__ void sgd(int n, const double* table, const float* g, float* w, float* h,
                               double rate, double decay, int l1, float scale, float momentum) {
  EACH_WEIGHT(i, p, index) {
    float v = momentum * h[i] + p.rate * regularised(g[i], w[i], scale, p.decay, l1);
    h[i] = v;
    w[i] -= v;
  }
}

extern "C" __global__ void nesterov(int n, const double* table, const float* g, float* w, float* h,
                                    double rate, double decay, int l1, float scale,
                                    float momentum) {
  EACH_WEIGHT(i, p, index) {
    float old = h[i];
    float v = momentum * old + p.rate * regularised(g[i], w[i], scale, p.decay, l1);
    h[i] = v;
    w[i] -= (1 + momentum) * v - momentum * old;
  }
}

extern "C" __global__ void adagrad(int n, const double* table, const float* g, float* w, float* h,
                                   double rate, double decay, int l1, float scale, float delta) {
  EACH_WEIGHT(i, p, index) {
    float grad = regularised(g[i], w[i], scale, p.decay, l1);
    h[i] += grad * grad;
    w[i] -= p.rate * grad / (sqrtf(h[i]) + delta);
  }
}

extern "C" __global__ void rmsprop(int n, const double* table, const float* g, float* w, float* h,
                                   double rate, double decay, int l1, float scale, float delta,
                                   float rms_decay) {
  EACH_WEIGHT(i, p, index) {
    float grad = regularised(g[i], w[i], scale, p.decay, l1);
    h[i] = rms_decay * h[i] + (1 - rms_decay) * grad * grad;
    w[i] -= p.rate * grad / (sqrtf(h[i]) + delta);
  }
}

extern "C" __global__ void adadelta(int n, const double* table, const float* g, float* w, float* h,
                                    float* u, double rate, double decay, int l1, float scale,
                                    float delta, float momentum) {
  EACH_WEIGHT(i, p, index) {
    float grad = regularised(g[i], w[i], scale, p.decay, l1);
    h[i] = momentum * h[i] + (1 - momentum) * grad * grad;
    float v = grad * sqrtf((u[i] + delta) / (h[i] + delta));
    u[i] = momentum * u[i] + (1 - momentum) * v * v;
    w[i] -= p.rate * v;
  }
}

extern "C" __global__ void adam(int n, const double* table, const float* g, float* w, float* m,
                                float* v, double rate, double decay, int l1, float scale,
                                float beta1, float beta2, float correction, float delta) {
  EACH_WEIGHT(i, p, index) {
    float grad = regularised(g[i], w[i], scale, p.decay, l1);
    m[i] = beta1 * m[i] + (1 - beta1) * grad;
    v[i] = beta2 * v[i] + (1 - beta2) * grad * grad;
    w[i] -= p.rate * correction * m[i] / (sqrtf(v[i]) + delta);
  }
}

extern "C" __global__ void adamw(int n, const double* table, const float* g, float* w, float* m,
                                 float* v, double rate, double decay, int l1, float scale,
                                 float beta1, float beta2, float correction, float delta) {
  EACH_WEIGHT(i, p, index) {
    float grad = g[i] * scale;
    m[i] = beta1 * m[i] + (1 - beta1) * grad;
    v[i] = beta2 * v[i] + (1 - beta2) * grad * grad;
    float step = correction * m[i] / (sqrtf(v[i]) + delta);
    w[i] -= p.rate * (step + regularised(0, w[i], 1, p.decay, l1));
  }
}
