// Batch norm in training of pictures that lie channels-last, with what may follow it: a residual that is added, and a
// ReLU. numbers.cu stands before it.
//
// To these kernels a batch is a matrix: a row for each point of each picture, and the channels side by side. A thread
// keeps to one pack of channels and goes down the rows. Sums of blocks lie in `partial`, [blocks][2][channels], and are
// added in one order, so that the same numbers give the same results.

constexpr int kThreads = 256;      // of a block that goes down the rows
constexpr int kLanes = 32;         // that add up the sums of one channel
constexpr int kLaneChannels = 16;  // of a block that does so
constexpr int kAtOnce = 4;         // rows that a thread reads before it computes, to have enough on the way

// The packs of some rows.
struct Rows {
  Pack packs[kAtOnce];
};

// Where the gradient of a ReLU comes through.
enum class Mask { all, by_input, by_output };

// Which channels and rows a thread has. A block is `width` packs wide.
struct Place {
  int group;
  int line;  // of the block
  long long row;
  long long step;
  bool is_used;
};

DEVICE Place place(int groups, int width) {
  const int lines = kThreads / width;
  const int line = static_cast<int>(threadIdx.x) / width;
  const int group = static_cast<int>(blockIdx.y) * width + static_cast<int>(threadIdx.x) % width;
  return {group, line, static_cast<long long>(blockIdx.x) * lines + line, static_cast<long long>(gridDim.x) * lines,
          line < lines && group < groups};
}

// Calls `compute(index, number)` for the index of each of a thread's packs, after `fetch` of the same for some of them
// at once; from the last row to the first where that is wanted.
template <bool kFromLast, class Fetch, class Compute>
DEVICE void go_down(const Place& at, long long rows, int groups, const Fetch& fetch, const Compute& compute) {
  if (!at.is_used) return;
  const auto index = [&](long long row) { return (kFromLast ? rows - 1 - row : row) * groups + at.group; };
  for (long long first = at.row; first < rows; first += kAtOnce * at.step) {
    UNROLL
    for (int i = 0; i < kAtOnce; ++i) {
      if (first + i * at.step < rows) fetch(index(first + i * at.step), i);
    }
    UNROLL
    for (int i = 0; i < kAtOnce; ++i) {
      if (first + i * at.step < rows) compute(index(first + i * at.step), i);
    }
  }
}

// The numbers of a thread's channels in a row of [rows][channels].
DEVICE void read(const float* from, int row, const Place& at, int groups, float (&to)[kWide]) {
  if (!at.is_used) return;
  const float* const first = from + (static_cast<long long>(row) * groups + at.group) * kWide;
  for (int i = 0; i < kWide; ++i) to[i] = first[i];
}

// Of a thread's channels, from [mean, scale, bias, inverse deviation][channels].
struct Coefficients {
  DEVICE Coefficients(const float* from, const Place& at, int groups) {
    read(from, 0, at, groups, mean);
    read(from, 1, at, groups, scale);
    read(from, 2, at, groups, bias);
  }
  // The same for forward and backward to the bit.
  DEVICE float of(float x, int channel) const { return fmaf(x - mean[channel], scale[channel], bias[channel]); }
  // By a ReLU, which sees what the output's type holds.
  DEVICE bool is_cut_off(float x, int channel) const { return of(x, channel) <= Number::kRoundsTo0; }

  float mean[kWide];
  float scale[kWide];
  float bias[kWide];
};

// Adds up the sums of a block's threads and writes them.
DEVICE void write_sums(const float (&sums)[2][kWide], const Place& at, int groups, int width, float* partial) {
  __shared__ float shared[2 * kWide][kThreads];
  const int thread = static_cast<int>(threadIdx.x);
  for (int i = 0; i < kWide; ++i) {
    shared[i][thread] = sums[0][i];
    shared[kWide + i][thread] = sums[1][i];
  }
  for (int left = kThreads / width; left > 1;) {
    const int half = (left + 1) / 2;
    __syncthreads();
    if (at.line < left - half) {
      for (int i = 0; i < 2 * kWide; ++i) shared[i][thread] += shared[i][thread + half * width];
    }
    left = half;
  }
  if (at.line > 0 || !at.is_used) return;
  for (int which = 0; which < 2; ++which) {
    const long long line = static_cast<long long>(blockIdx.x) * 2 + which;
    float* const to = partial + (line * groups + at.group) * kWide;
    for (int i = 0; i < kWide; ++i) to[i] = shared[which * kWide + i][thread];
  }
}

struct Total {
  double first;
  double second;
};

// Both sums of a channel over all blocks, in its first lane.
DEVICE Total total(const float* partial, int blocks, int channels, int channel, int lane) {
  __shared__ double shared[2][kLanes][kLaneChannels];
  const int column = static_cast<int>(threadIdx.x) % kLaneChannels;
  double sums[2] = {0, 0};
  if (channel < channels) {
    for (int block = lane; block < blocks; block += kLanes) {
      const float* const from = partial + static_cast<long long>(block) * 2 * channels + channel;
      sums[0] += from[0];
      sums[1] += from[channels];
    }
  }
  shared[0][lane][column] = sums[0];
  shared[1][lane][column] = sums[1];
  for (int half = kLanes / 2; half > 0; half /= 2) {
    __syncthreads();
    if (lane >= half) continue;
    for (int which = 0; which < 2; ++which) shared[which][lane][column] += shared[which][lane + half][column];
  }
  return {shared[0][lane][column], shared[1][lane][column]};
}

// Of each channel the sums of x and x², both less the channel's first number, without which small deviations from a
// large mean would be lost.
KERNEL void __launch_bounds__(kThreads)
    batch_norm_sums(const Pack* __restrict__ x, float* __restrict__ partial, long long rows, int groups, int width) {
  const Place at = place(groups, width);
  float sums[2][kWide] = {};
  float first[kWide];
  if (at.is_used) Number::unpack(load(x + at.group), first);
  Rows inputs;
  go_down<false>(
      at, rows, groups, [&](long long index, int i) { inputs.packs[i] = load(x + index); },
      [&](long long, int i) {
        float values[kWide];
        Number::unpack(inputs.packs[i], values);
        for (int channel = 0; channel < kWide; ++channel) {
          const float value = values[channel] - first[channel];
          sums[0][channel] += value;
          sums[1][channel] = fmaf(value, value, sums[1][channel]);
        }
      });
  write_sums(sums, at, groups, width, partial);
}

// Mean and deviation of each channel, and those of the running statistics, which may be missing. The convolution's
// bias, too, may be missing; it is not in x, since a norm takes it out again.
KERNEL void __launch_bounds__(kLanes* kLaneChannels)
    batch_norm_statistics(const float* __restrict__ partial, int blocks, const Pack* __restrict__ x, long long rows,
                          int channels, const float* __restrict__ weight, const float* __restrict__ bias,
                          const float* __restrict__ convolution_bias, float* running_mean, float* running_variance,
                          double momentum, double epsilon, float* __restrict__ coefficients) {
  const int channel = static_cast<int>(blockIdx.x) * kLaneChannels + static_cast<int>(threadIdx.x) % kLaneChannels;
  const int lane = static_cast<int>(threadIdx.x) / kLaneChannels;
  const Total sums = total(partial, blocks, channels, channel, lane);
  if (lane > 0 || channel >= channels) return;
  float first[kWide];
  Number::unpack(load(x + channel / kWide), first);
  const double count = static_cast<double>(rows);
  const double moved = sums.first / count;
  const double mean = first[channel % kWide] + moved;
  double variance = sums.second / count - moved * moved;
  if (variance < 0) variance = 0;
  const float inverse = static_cast<float>(1 / sqrt(variance + epsilon));
  coefficients[channel] = static_cast<float>(mean);
  coefficients[channels + channel] = weight[channel] * inverse;
  coefficients[2 * channels + channel] = bias[channel];
  coefficients[3 * channels + channel] = inverse;
  if (running_mean == nullptr) return;
  const double whole_mean = convolution_bias == nullptr ? mean : mean + convolution_bias[channel];
  const double unbiased = variance * (count / (count - 1));
  running_mean[channel] = static_cast<float>((1 - momentum) * running_mean[channel] + momentum * whole_mean);
  running_variance[channel] = static_cast<float>((1 - momentum) * running_variance[channel] + momentum * unbiased);
}

// From the last row to the first: the cache still holds what the sums read last.
template <bool kAdds, bool kHasRelu>
DEVICE void forward(const Pack* __restrict__ x, const Pack* __restrict__ residual,
                    const float* __restrict__ coefficients, Pack* __restrict__ y, long long rows, int groups,
                    int width) {
  const Place at = place(groups, width);
  const Coefficients norm(coefficients, at, groups);
  Rows inputs;
  Rows residuals;
  go_down<true>(
      at, rows, groups,
      [&](long long index, int i) {
        inputs.packs[i] = load(x + index);
        if (kAdds) residuals.packs[i] = load(residual + index);
      },
      [&](long long index, int i) {
        float values[kWide], added[kWide] = {};
        Number::unpack(inputs.packs[i], values);
        if (kAdds) Number::unpack(residuals.packs[i], added);
        for (int channel = 0; channel < kWide; ++channel) {
          const float value = norm.of(values[channel], channel) + added[channel];
          values[channel] = kHasRelu && value <= 0 ? 0 : value;  // what is no number stays none
        }
        y[index] = Number::pack(values);
      });
}

// Of each channel the sums of the gradient that comes through the mask, and of its product with x less its mean. By the
// output's mask the gradient is also that of the residual, and written.
template <Mask kMask>
DEVICE void gradient_sums(const Pack* __restrict__ x, const Pack* __restrict__ y, const Pack* __restrict__ of_y,
                          const float* __restrict__ coefficients, Pack* __restrict__ of_residual,
                          float* __restrict__ partial, long long rows, int groups, int width) {
  const Place at = place(groups, width);
  const Coefficients norm(coefficients, at, groups);
  float sums[2][kWide] = {};
  Rows inputs;
  Rows outputs;
  Rows of_outputs;
  go_down<false>(
      at, rows, groups,
      [&](long long index, int i) {
        inputs.packs[i] = load(x + index);
        of_outputs.packs[i] = load(of_y + index);
        if (kMask == Mask::by_output) outputs.packs[i] = load(y + index);
      },
      [&](long long index, int i) {
        float values[kWide], gradients[kWide], made[kWide] = {};
        Number::unpack(inputs.packs[i], values);
        Number::unpack(of_outputs.packs[i], gradients);
        if (kMask == Mask::by_output) Number::unpack(outputs.packs[i], made);
        for (int channel = 0; channel < kWide; ++channel) {
          if (kMask == Mask::by_output && made[channel] <= 0) gradients[channel] = 0;
          if (kMask == Mask::by_input && norm.is_cut_off(values[channel], channel)) gradients[channel] = 0;
          sums[0][channel] += gradients[channel];
          sums[1][channel] = fmaf(gradients[channel], values[channel] - norm.mean[channel], sums[1][channel]);
        }
        if (kMask == Mask::by_output) of_residual[index] = Number::pack(gradients);
      });
  write_sums(sums, at, groups, width, partial);
}

// The gradients of the parameters, and what backward subtracts: [mean gradient, slope over x][channels]. A norm takes
// the convolution's bias out again, so that its gradient is zero.
KERNEL void __launch_bounds__(kLanes* kLaneChannels)
    batch_norm_gradients(const float* __restrict__ partial, int blocks, long long rows, int channels,
                         const float* __restrict__ coefficients, float* __restrict__ of_weight,
                         float* __restrict__ of_bias, float* __restrict__ of_convolution_bias,
                         float* __restrict__ subtracted) {
  const int channel = static_cast<int>(blockIdx.x) * kLaneChannels + static_cast<int>(threadIdx.x) % kLaneChannels;
  const int lane = static_cast<int>(threadIdx.x) / kLaneChannels;
  const Total sums = total(partial, blocks, channels, channel, lane);
  if (lane > 0 || channel >= channels) return;
  const double count = static_cast<double>(rows);
  const double inverse = coefficients[3 * channels + channel];
  of_weight[channel] = static_cast<float>(sums.second * inverse);
  of_bias[channel] = static_cast<float>(sums.first);
  if (of_convolution_bias != nullptr) of_convolution_bias[channel] = 0;
  subtracted[channel] = static_cast<float>(sums.first / count);
  subtracted[channels + channel] = static_cast<float>(sums.second * inverse * inverse / count);
}

// The gradient of x, from the last row to the first as forward.
template <Mask kMask>
DEVICE void backward(const Pack* __restrict__ x, const Pack* __restrict__ of_y, const float* __restrict__ coefficients,
                     const float* __restrict__ subtracted, Pack* __restrict__ of_x, long long rows, int groups,
                     int width) {
  const Place at = place(groups, width);
  const Coefficients norm(coefficients, at, groups);
  float mean_gradient[kWide], slope[kWide];
  read(subtracted, 0, at, groups, mean_gradient);
  read(subtracted, 1, at, groups, slope);
  Rows inputs;
  Rows of_outputs;
  go_down<true>(
      at, rows, groups,
      [&](long long index, int i) {
        inputs.packs[i] = load(x + index);
        of_outputs.packs[i] = load(of_y + index);
      },
      [&](long long index, int i) {
        float values[kWide], gradients[kWide];
        Number::unpack(inputs.packs[i], values);
        Number::unpack(of_outputs.packs[i], gradients);
        for (int channel = 0; channel < kWide; ++channel) {
          if (kMask == Mask::by_input && norm.is_cut_off(values[channel], channel)) gradients[channel] = 0;
          const float apart = (values[channel] - norm.mean[channel]) * slope[channel];
          gradients[channel] = (gradients[channel] - mean_gradient[channel] - apart) * norm.scale[channel];
        }
        of_x[index] = Number::pack(gradients);
      });
}

#define FORWARD(name, adds, has_relu)                                                                             \
  KERNEL void __launch_bounds__(kThreads)                                                                         \
      name(const Pack* __restrict__ x, const Pack* __restrict__ residual, const float* __restrict__ coefficients, \
           Pack* __restrict__ y, long long rows, int groups, int width) {                                         \
    forward<adds, has_relu>(x, residual, coefficients, y, rows, groups, width);                                   \
  }
FORWARD(batch_norm_forward, false, false)
FORWARD(batch_norm_relu_forward, false, true)
FORWARD(batch_norm_add_forward, true, false)
FORWARD(batch_norm_add_relu_forward, true, true)

#define GRADIENT_SUMS(name, mask)                                                                               \
  KERNEL void __launch_bounds__(kThreads)                                                                       \
      name(const Pack* __restrict__ x, const Pack* __restrict__ y, const Pack* __restrict__ of_y,               \
           const float* __restrict__ coefficients, Pack* __restrict__ of_residual, float* __restrict__ partial, \
           long long rows, int groups, int width) {                                                             \
    gradient_sums<mask>(x, y, of_y, coefficients, of_residual, partial, rows, groups, width);                   \
  }
GRADIENT_SUMS(batch_norm_gradient_sums, Mask::all)
GRADIENT_SUMS(batch_norm_relu_gradient_sums, Mask::by_input)
GRADIENT_SUMS(batch_norm_add_relu_gradient_sums, Mask::by_output)

#define BACKWARD(name, mask)                                                                                       \
  KERNEL void __launch_bounds__(kThreads)                                                                          \
      name(const Pack* __restrict__ x, const Pack* __restrict__ of_y, const float* __restrict__ coefficients,      \
           const float* __restrict__ subtracted, Pack* __restrict__ of_x, long long rows, int groups, int width) { \
    backward<mask>(x, of_y, coefficients, subtracted, of_x, rows, groups, width);                                  \
  }
BACKWARD(batch_norm_backward, Mask::all)
BACKWARD(batch_norm_relu_backward, Mask::by_input)
