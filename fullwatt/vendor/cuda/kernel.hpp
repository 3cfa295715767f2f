#pragma once

#include <cstdint>

namespace fullwatt::vendor::cuda::kernel {

constexpr unsigned kBlocks = 2;
constexpr unsigned kThreads = 128;  ///< of each block
constexpr unsigned kElements = kBlocks * kThreads;
constexpr const char* kName = "fullwatt_check";

/// output[i] = input[i] * 3 + i. PTX, because the driver compiles it for any GPU, which tests its compiler too, and
/// because machine code would be needed per architecture. PTX 6.0 is what CUDA 9.0 (driver 384) understands; sm_50
/// (Maxwell) is the oldest GPU that drivers of today serve, and every newer one runs PTX written for it.
constexpr const char* kPtx = R"ptx(
.version 6.0
.target sm_50
.address_size 64

.visible .entry fullwatt_check(.param .u64 input, .param .u64 output)
{
  .reg .u32 %block, %threads, %thread, %index, %value;
  .reg .u64 %from, %to, %offset;

  ld.param.u64 %from, [input];
  ld.param.u64 %to, [output];
  mov.u32 %block, %ctaid.x;
  mov.u32 %threads, %ntid.x;
  mov.u32 %thread, %tid.x;
  mad.lo.u32 %index, %block, %threads, %thread;
  mul.wide.u32 %offset, %index, 4;
  add.u64 %from, %from, %offset;
  add.u64 %to, %to, %offset;
  ld.u32 %value, [%from];
  mad.lo.u32 %value, %value, 3, %index;
  st.u32 [%to], %value;
  ret;
}
)ptx";

/// What the kernel must have written for one element; wraps as the GPU's 32-bit integers do.
constexpr std::uint32_t expected(std::uint32_t input, std::uint32_t index) {
  return input * 3U + index;
}

}  // namespace fullwatt::vendor::cuda::kernel
