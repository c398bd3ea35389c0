// The softmax of (samples, classes) and its loss against labels; one block for each sample.

enum Trouble { NONE, NOT_A_NUMBER, FRACTION, NO_CLASS };

__device__ inline Trouble trouble_of(float label, int classes) {
  if (!(label - label == 0)) return NOT_A_NUMBER;
  if (label != truncf(label)) return FRACTION;
  return label < 0 || label >= classes ? NO_CLASS : NONE;
}

__device__ inline float block_max(float value) {
  __shared__ float parts[THREADS];
  parts[threadIdx.x] = value;
  __syncthreads();
  for (int half = THREADS / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) parts[threadIdx.x] = max(parts[threadIdx.x], parts[threadIdx.x + half]);
    __syncthreads();
  }
  float highest = parts[0];
  __syncthreads();
  return highest;
}

// Losses of samples; the last block sums them up, divided by the normaliser, which is `fixed`, or
// if that is 0 the number of labels that count. `trouble` keeps the first wrong label: what is
// wrong, its sample and the label.
extern "C" __global__ void softmax_loss(int n, const float* __restrict__ x,
                                        const float* __restrict__ labels, int classes,
                                        int ignoring, float ignored, float smoothing,
                                        const float* weights, float fixed, float* prob,
                                        float* losses, int* arrived, float* normalizer,
                                        float* trouble, float* loss) {
  EACH_BLOCK(sample, n) {
    const float* row = x + (long long)sample * classes;
    float* out = prob + (long long)sample * classes;
    float highest = row[0], sum = 0;
    for (int c = threadIdx.x; c < classes; c += THREADS) highest = max(highest, row[c]);
    highest = block_max(highest);
    for (int c = threadIdx.x; c < classes; c += THREADS) {
      float e = expf(row[c] - highest);
      out[c] = e;
      sum += e;
    }
    sum = block_sum(sum);
    float others = 0;
    for (int c = threadIdx.x; c < classes; c += THREADS) {
      out[c] /= sum;
      if (smoothing > 0) others -= logf(max(out[c], 1.17549435e-38f));
    }
    others = smoothing > 0 ? block_sum(others) / classes : 0;
    float label = labels[sample];
    bool counts = !(ignoring && label == ignored) && trouble_of(label, classes) == NONE;
    if (threadIdx.x == 0) {
      float own = 0;
      if (counts) {
        int c = (int)label;
        float likely = max(expf(row[c] - highest) / sum, 1.17549435e-38f);
        own = (1 - smoothing) * -logf(likely) + smoothing * others;
        if (weights) own *= weights[c];
      }
      losses[sample] = own;
    }
    if (!last_of(n, arrived)) continue;
    const volatile float* all = losses;
    float total = 0, valid = 0;
    int bad = n;
    for (int i = threadIdx.x; i < n; i += THREADS) {
      bool skipped = ignoring && labels[i] == ignored;
      total += all[i];
      if (!skipped) valid++;
      if (!skipped && trouble_of(labels[i], classes) != NONE) bad = min(bad, i);
    }
    total = block_sum(total);
    valid = block_sum(valid);
    bad = -(int)block_max(-(float)bad);
    if (threadIdx.x == 0) {
      normalizer[0] = max(fixed > 0 ? fixed : valid, 1.0f);
      loss[0] = total / normalizer[0];
      if (bad < n && trouble[0] == 0) {
        trouble[0] = trouble_of(labels[bad], classes);
        trouble[1] = bad;
        trouble[2] = labels[bad];
      }
    }
  }
}

// dx = (softmax - label) * the loss's own gradient / normaliser.
extern "C" __global__ void softmax_loss_backward(int n, const float* __restrict__ prob,
                                                 const float* __restrict__ labels,
                                                 const float* dloss, const float* normalizer,
                                                 int classes, int ignoring, float ignored,
                                                 float smoothing, const float* weights,
                                                 real* __restrict__ dx) {
  EACH(i, n) {
    int sample = (int)i / classes, c = (int)i % classes;
    float label = labels[sample], scale = dloss[0] / normalizer[0], value = 0;
    if (!(ignoring && label == ignored) && trouble_of(label, classes) == NONE) {
      if (weights) scale *= weights[(int)label];
      value = prob[i] - (c == (int)label ? 1 - smoothing : 0);
      if (smoothing > 0) value -= smoothing / classes;
      value *= scale;
    }
    dx[i] = value;
  }
}
