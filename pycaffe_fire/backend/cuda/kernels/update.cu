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

// Calls body(run, piece) for all elements; pieces that start on a border are read in packs.
template <class Body>
__device__ inline void each_weight(int n, const double* table, double rate, double decay,
                                   bool packed, Body body) {
  EACH_BLOCK(index, n) {
    Piece p = piece_of(table, index, rate, decay);
    long long count = p.stop - p.start;
    long long packs = packed && p.start % PACK == 0 ? count / PACK : 0;
    for (long long i = threadIdx.x; i < packs; i += THREADS) body(Run<PACK>{p.start + i * PACK}, p);
    for (long long i = p.start + packs * PACK + threadIdx.x; i < p.stop; i += THREADS)
      body(Run<1>{i}, p);
  }
}

#define EACH_OF(k, values) for (int k = 0; k < sizeof(values) / 4; k++)

extern "C" __global__ void sgd(int n, const double* table, const float* __restrict__ g, float* w,
                               float* h, double rate, double decay, int l1, float scale,
                               float momentum) {
  each_weight(n, table, rate, decay, aligned(g, w, h), [&](auto run, const Piece& p) {
    auto gs = run.read(g), ws = run.read(w), hs = run.read(h);
    EACH_OF(k, gs) {
      float v = momentum * hs.at[k] + p.rate * regularised(gs.at[k], ws.at[k], scale, p.decay, l1);
      hs.at[k] = v;
      ws.at[k] -= v;
    }
    run.write(h, hs);
    run.write(w, ws);
  });
}

extern "C" __global__ void nesterov(int n, const double* table, const float* __restrict__ g,
                                    float* w, float* h, double rate, double decay, int l1,
                                    float scale, float momentum) {
  each_weight(n, table, rate, decay, aligned(g, w, h), [&](auto run, const Piece& p) {
    auto gs = run.read(g), ws = run.read(w), hs = run.read(h);
    EACH_OF(k, gs) {
      float old = hs.at[k];
      float v = momentum * old + p.rate * regularised(gs.at[k], ws.at[k], scale, p.decay, l1);
      hs.at[k] = v;
      ws.at[k] -= (1 + momentum) * v - momentum * old;
    }
    run.write(h, hs);
    run.write(w, ws);
  });
}

extern "C" __global__ void adagrad(int n, const double* table, const float* __restrict__ g,
                                   float* w, float* h, double rate, double decay, int l1,
                                   float scale, float delta) {
  each_weight(n, table, rate, decay, aligned(g, w, h), [&](auto run, const Piece& p) {
    auto gs = run.read(g), ws = run.read(w), hs = run.read(h);
    EACH_OF(k, gs) {
      float grad = regularised(gs.at[k], ws.at[k], scale, p.decay, l1);
      hs.at[k] += grad * grad;
      ws.at[k] -= p.rate * grad / (sqrtf(hs.at[k]) + delta);
    }
    run.write(h, hs);
    run.write(w, ws);
  });
}

extern "C" __global__ void rmsprop(int n, const double* table, const float* __restrict__ g,
                                   float* w, float* h, double rate, double decay, int l1,
                                   float scale, float delta, float rms_decay) {
  each_weight(n, table, rate, decay, aligned(g, w, h), [&](auto run, const Piece& p) {
    auto gs = run.read(g), ws = run.read(w), hs = run.read(h);
    EACH_OF(k, gs) {
      float grad = regularised(gs.at[k], ws.at[k], scale, p.decay, l1);
      hs.at[k] = rms_decay * hs.at[k] + (1 - rms_decay) * grad * grad;
      ws.at[k] -= p.rate * grad / (sqrtf(hs.at[k]) + delta);
    }
    run.write(h, hs);
    run.write(w, ws);
  });
}

extern "C" __global__ void adadelta(int n, const double* table, const float* __restrict__ g,
                                    float* w, float* h, float* u, double rate, double decay,
                                    int l1, float scale, float delta, float momentum) {
  each_weight(n, table, rate, decay, aligned(g, w, h, u), [&](auto run, const Piece& p) {
    auto gs = run.read(g), ws = run.read(w), hs = run.read(h), us = run.read(u);
    EACH_OF(k, gs) {
      float grad = regularised(gs.at[k], ws.at[k], scale, p.decay, l1);
      hs.at[k] = momentum * hs.at[k] + (1 - momentum) * grad * grad;
      float v = grad * sqrtf((us.at[k] + delta) / (hs.at[k] + delta));
      us.at[k] = momentum * us.at[k] + (1 - momentum) * v * v;
      ws.at[k] -= p.rate * v;
    }
    run.write(h, hs);
    run.write(u, us);
    run.write(w, ws);
  });
}

extern "C" __global__ void adam(int n, const double* table, const float* __restrict__ g, float* w,
                                float* m, float* v, double rate, double decay, int l1,
                                float scale, float beta1, float beta2, float correction,
                                float delta) {
  each_weight(n, table, rate, decay, aligned(g, w, m, v), [&](auto run, const Piece& p) {
    auto gs = run.read(g), ws = run.read(w), ms = run.read(m), vs = run.read(v);
    EACH_OF(k, gs) {
      float grad = regularised(gs.at[k], ws.at[k], scale, p.decay, l1);
      ms.at[k] = beta1 * ms.at[k] + (1 - beta1) * grad;
      vs.at[k] = beta2 * vs.at[k] + (1 - beta2) * grad * grad;
      ws.at[k] -= p.rate * correction * ms.at[k] / (sqrtf(vs.at[k]) + delta);
    }
    run.write(m, ms);
    run.write(v, vs);
    run.write(w, ws);
  });
}

extern "C" __global__ void adamw(int n, const double* table, const float* __restrict__ g, float* w,
                                 float* m, float* v, double rate, double decay, int l1,
                                 float scale, float beta1, float beta2, float correction,
                                 float delta) {
  each_weight(n, table, rate, decay, aligned(g, w, m, v), [&](auto run, const Piece& p) {
    auto gs = run.read(g), ws = run.read(w), ms = run.read(m), vs = run.read(v);
    EACH_OF(k, gs) {
      float grad = gs.at[k] * scale;
      ms.at[k] = beta1 * ms.at[k] + (1 - beta1) * grad;
      vs.at[k] = beta2 * vs.at[k] + (1 - beta2) * grad * grad;
      float step = correction * ms.at[k] / (sqrtf(vs.at[k]) + delta);
      ws.at[k] -= p.rate * (step + regularised(0, ws.at[k], 1, p.decay, l1));
    }
    run.write(m, ms);
    run.write(v, vs);
    run.write(w, ws);
  });
}
