// The cross-entropy of scores by row: −log softmax(row)[target], computed in float32 whatever type the scores have, and
// never written so. numbers.cu stands before it. A block has a row at a time; its threads go along it.

constexpr int kThreads = 512;  // a power of 2
constexpr float kLowest = -3.402823466e38F;

// Of numbers: the largest, and the sum of exp(number − largest).
struct Exponentials {
  float largest;
  float sum;
};

// What is no number stays none: it is in the sum.
DEVICE Exponentials together(const Exponentials& a, const Exponentials& b) {
  const float largest = fmaxf(a.largest, b.largest);
  return {largest, a.sum * expf(a.largest - largest) + b.sum * expf(b.largest - largest)};
}

DEVICE Exponentials of_pack(const Pack& pack) {
  float values[kWide];
  Number::unpack(pack, values);
  float largest = kLowest;  // finite, so that scores of −∞ are no more than unlikely
  for (int i = 0; i < kWide; ++i) largest = fmaxf(largest, values[i]);
  float sum = 0;
  for (int i = 0; i < kWide; ++i) sum += expf(values[i] - largest);
  return {largest, sum};
}

// Adds up what a block's threads found, in one order; all of them get it.
DEVICE Exponentials of_block(const Exponentials& own) {
  __shared__ Exponentials shared[kThreads];
  const int thread = static_cast<int>(threadIdx.x);
  shared[thread] = own;
  for (int half = kThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (thread < half) shared[thread] = together(shared[thread], shared[thread + half]);
  }
  __syncthreads();
  return shared[0];
}

// Of each row its loss, and the logarithm of the sum of its scores' exponentials. A target that there is not has no
// number for a loss, and what is no number ends a training.
KERNEL void __launch_bounds__(kThreads)
    cross_entropy_forward(const Pack* __restrict__ scores, const long long* __restrict__ targets,
                          float* __restrict__ losses, float* __restrict__ log_sums, int packs) {
  const long long row = static_cast<long long>(blockIdx.x);
  const Pack* const first = scores + row * packs;
  Exponentials own = {kLowest, 0};
  for (int pack = static_cast<int>(threadIdx.x); pack < packs; pack += kThreads)
    own = together(own, of_pack(load(first + pack)));
  const Exponentials all = of_block(own);
  if (threadIdx.x != 0) return;
  const float log_sum = all.largest + logf(all.sum);
  const long long target = targets[row];
  float score = __uint_as_float(0x7fffffffU);
  if (target >= 0 && target < static_cast<long long>(packs) * kWide) {
    float values[kWide];
    Number::unpack(load(first + target / kWide), values);
    score = values[target % kWide];
  }
  log_sums[row] = log_sum;
  losses[row] = log_sum - score;
}

// The gradient of the scores: (softmax − 1 at the target) · gradient of the mean loss / rows.
KERNEL void __launch_bounds__(kThreads)
    cross_entropy_backward(const Pack* __restrict__ scores, const long long* __restrict__ targets,
                           const float* __restrict__ log_sums, const float* __restrict__ of_loss,
                           Pack* __restrict__ of_scores, int packs) {
  const long long row = static_cast<long long>(blockIdx.x);
  const long long target = targets[row];
  const float log_sum = log_sums[row];
  const float factor = of_loss[0] / static_cast<float>(gridDim.x);
  for (int pack = static_cast<int>(threadIdx.x); pack < packs; pack += kThreads) {
    float values[kWide];
    Number::unpack(load(scores + row * packs + pack), values);
    for (int i = 0; i < kWide; ++i) {
      const bool is_target = static_cast<long long>(pack) * kWide + i == target;
      values[i] = (expf(values[i] - log_sum) - (is_target ? 1.0F : 0.0F)) * factor;
    }
    of_scores[row * packs + pack] = Number::pack(values);
  }
}
