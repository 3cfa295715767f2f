// Kernel names as cuBLAS, cuDNN, PyTorch, FlashAttention, Triton and NCCL really give them.

#include <string>

#include <gtest/gtest.h>

#include "fullwatt/explain/kernels.hpp"

namespace fullwatt::explain {
namespace {

struct Row {
  const char* name;
  const char* kind;
  const char* precision;
  bool tensor_cores;
};

constexpr Row kRows[] = {
    // cuBLAS, CUDA cores
    {"ampere_sgemm_128x64_tn", "matmul", "fp32", false},
    {"ampere_sgemm_32x32_sliced1x4_nn", "matmul", "fp32", false},
    {"volta_sgemm_128x64_nn", "matmul", "fp32", false},
    {"maxwell_fp16_sgemm_fp16_128x32_nn", "matmul", "fp16", false},
    {"sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize32x32x16_stage3_warpsize2x2x1_ff_main_v1", "matmul", "fp32", false},
    {"void cutlass::Kernel2<cutlass_80_simt_sgemm_256x128_8x4_nn_align1>(T1::Params)", "matmul", "fp32", false},
    {"void gemmSN_TN_kernel<float, 128, 16, 2, 4, 4, 4, true, cublasGemvTensorStridedBatched<float const> >", "matmul",
     "fp32", false},
    {"void gemmk1_kernel<int, float, 256, 5, false, false, false, false>", "matmul", "fp32", false},
    {"void magma_sgemmEx_kernel<float, float, float, true, false, 6, 4, 6, 3, 4>", "matmul", "fp32", false},
    {"void gemv2T_kernel_val<int, int, float, float, float, float, 128, 16, 4, 4, false, false>", "matmul", "fp32",
     false},
    {"void gemvNSP_kernel<float, float, float, float, 1, 32, 4, 1024, false, cublasGemvParamsEx<int> >", "matmul",
     "fp32", false},
    {"std::enable_if<!T7, void>::type internal::gemvx::kernel<int, int, __nv_bfloat16, __nv_bfloat16, float>", "matmul",
     "bf16", false},
    {"void cublasLt::splitKreduce_kernel<32, 16, int, float, float, float, float, false, false>", "matmul", "fp32",
     false},
    // cuBLAS, tensor cores
    {"sm80_xmma_gemm_f16f16_f16f32_f32_tn_n_tilesize96x128x32_stage4_warpsize2x2x1_tensor16x8x16_kernel", "matmul",
     "fp16", true},
    {"sm80_xmma_gemm_bf16bf16_bf16f32_f32_nn_n_tilesize128x128x32_stage4_warpsize2x2x1_tensor16x8x16_kernel", "matmul",
     "bf16", true},
    {"sm90_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize128x128x32_warpgroupsize1x1x1_execute_segment_k_off_kernel__5x_"
     "cublas",
     "matmul", "tf32", true},
    {"sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize64x64x64_warpgroupsize1x1x1_execute_segment_k_off_kernel__5x_"
     "cublas",
     "matmul", "bf16", true},
    {"nvjet_hsh_256x128_64x4_1x2_h_bz_coopA_NNT", "matmul", "fp16", true},
    {"nvjet_tst_192x192_64x3_2x1_v_bz_coopB_NNN", "matmul", "bf16", true},
    {"nvjet_qqtst_128x256_128x6_2x1_2cta_v_bz_TNT", "matmul", "fp8", true},
    {"nvjet_sm100_tst_64x32_64x16_2x1_2cta_h_bz_splitK_TNT", "matmul", "bf16", true},
    {"nvjet_sm90_hss_320x128", "matmul", "fp16", true},
    {"ampere_fp16_s16816gemm_fp16_128x128_ldg8_f2f_stages_32x5_nn", "matmul", "fp16", true},
    {"ampere_bf16_s16816gemm_bf16_256x128_ldg8_f2f_stages_64x3_nn", "matmul", "bf16", true},
    {"turing_fp16_s1688gemm_fp16_256x128_ldg8_f2f_tn", "matmul", "fp16", true},
    {"volta_h884gemm_64x128_ldg8_tn", "matmul", "fp16", true},
    {"void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_128x128_16x5_nt_align4>(T1::Params)", "matmul", "tf32", true},
    {"void cutlass::Kernel2<cutlass_80_tensorop_f16_s16816gemm_f16_128x128_32x4_tn_align8>(T1::Params)", "matmul",
     "fp16", true},
    {"void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_256x128_32x3_tn_align8>", "matmul", "bf16",
     true},
    {"_ZN7cutlass7Kernel2I65cutlass_80_wmma_tensorop_f16_s161616gemm_f16_16x16_128x2_tn_align8EEvNT_6ParamsE", "matmul",
     "fp16", true},
    {"cutlass3x_sm90_tensorop_s64x128x16gemm_bf16_bf16_f32_void_bf16_128x128x64_1x1x1_0_tnn_align8_warpspecialized_"
     "pingpong",
     "matmul", "bf16", true},
    {"cutlass_80_tensorop_i16832gemm_s8_128x256_128x3_tn_align16", "matmul", "int8", true},
    {"void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous namespace)::"
     "FusedOptimizerTensorListMetadata<4>, at::native::(anonymous namespace)::FusedAdamMathFunctor<float, 4, "
     "(at::native::ADAM_MODE)1, false>, float const*, double, double, double, double, double, bool, float const*>",
     "optimizer", "fp32", false},
    {"void at::native::vectorized_elementwise_kernel<2, at::native::BinaryFunctor<double, double, double, "
     "at::native::binary_internal::DivFunctor<double> >, std::array<char*, 3ul> >",
     "elementwise", "fp64", false},
    {"void cutlass::Kernel2<cutlass_80_tensorop_d884gemm_64x64_16x4_nn_align1>", "matmul", "fp64", true},
    // cuDNN
    {"sm80_xmma_fprop_implicit_gemm_f16f16_f16f32_f32_nhwckrsc_nhwc_tilesize128x32x32_stage4_warpsize4x1x1_g1_"
     "tensor16x8x16",
     "convolution", "fp16", true},
    {"sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nchw_tilesize128x64x32_stage4_warpsize2x2x1_g1_"
     "tensor16x8x8",
     "convolution", "tf32", true},
    {"sm80_xmma_wgrad_implicit_gemm_indexed_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x128x32_stage4",
     "convolution", "bf16", true},
    {"sm80_xmma_dgrad_implicit_gemm_f32f32_f32f32_f32_nhwckrsc_nhwc_tilesize64x64x8_stage3", "convolution", "fp32",
     false},
    {"void cutlass__5x_cudnn::Kernel<cutlass_tensorop_s1688fprop_optimized_tf32_64x64_16x10_nhwc_align4>(T1::Params)",
     "convolution", "tf32", true},
    {"_5x_cudnn_ampere_scudnn_winograd_128x128_ldg1_ldg4_relu_tile148t_nt_v1", "convolution", "fp32", false},
    {"_5x_cudnn_ampere_scudnn_128x64_relu_xregs_large_nn_v1", "convolution", "fp32", false},
    {"void cudnn::winograd_nonfused::winogradForwardData4x4<float, "
     "float>(cudnn::winograd_nonfused::WinogradDataParams)",
     "convolution", "fp32", false},
    {"void cudnn::cnn::conv2d_grouped_direct_kernel<false, true, false, false, false, false, 0, 0, int, float>",
     "convolution", "fp32", false},
    {"void implicit_convolve_sgemm<float, float, 1024, 5, 5, 3, 3, 3, 1, false, false, true>", "convolution", "fp32",
     false},
    {"void at::native::(anonymous namespace)::conv_depthwise2d_forward_kernel<3, float, int>", "convolution", "fp32",
     false},
    {"void fft2d_r2c_32x32<float, false, 0u, false>(float2*, float const*)", "convolution", "fp32", false},
    {"void cudnn::engines_precompiled::nchwToNhwcKernel<__half, __half, float, false, true, (cudnnKernelDataType_t)0>",
     "copy", "fp16", false},
    {"void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, float, 512, true, 1, true>", "normalisation", "fp32", false},
    {"void cudnn::batchnorm_bwtr_nhwc_semiPersist<__half, float, float, 512, true, 1, 2>", "normalisation", "fp16",
     false},
    // Attention
    {"void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128, 64, 128, 4, false, false, cutlass::bfloat16_t> "
     ">",
     "attention", "bf16", true},
    {"void pytorch_flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<Flash_bwd_kernel_traits<64, cutlass::half_t> >",
     "attention", "fp16", true},
    {"fmha_cutlassF_bf16_aligned_64x128_rf_sm80(PyTorchMemEffAttention::AttentionKernel<cutlass::bfloat16_t>)",
     "attention", "bf16", true},
    {"fmha_cutlassB_f32_aligned_64x64_k64_sm80", "attention", "fp32", true},
    {"cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x128_4x1x1", "attention", "", true},
    // PyTorch's own
    {"void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul> >",
     "elementwise", "fp32", false},
    {"_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_15CUDAFunctor_addIN3c108BFloat16EEESt5arrayIPcLm3EEEEviT0_"
     "T1_",
     "elementwise", "bf16", false},
    {"void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)>",
     "copy", "", false},
    {"void at::native::(anonymous namespace)::CatArrayBatchedCopy_contig<at::native::OpaqueType<4u>, unsigned int, 2, "
     "128, 1>",
     "copy", "", false},
    {"void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MeanOps<float, float, float, "
     "float> > >",
     "reduction", "fp32", false},
    {"void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::NormTwoOps<float, float> > >",
     "reduction", "fp32", false},
    {"void at::native::(anonymous namespace)::softmax_warp_forward<float, float, float, 8, false, false>", "softmax",
     "fp32", false},
    {"void at::native::(anonymous namespace)::cunn_SoftMaxForward<4, float, float, float, SoftMaxForwardEpilogue>",
     "softmax", "fp32", false},
    {"void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<c10::BFloat16, float, false>",
     "normalisation", "bf16", false},
    {"void at::native::(anonymous namespace)::GammaBetaBackwardCUDAKernelTemplate<float, float, 64u>", "normalisation",
     "fp32", false},
    {"void at::native::batch_norm_collect_statistics_kernel<at::native::InvStd, float, float, float, int>",
     "normalisation", "fp32", false},
    {"void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::TensorListMetadata<4>, "
     "at::native::FusedAdamMathFunctor<float, 4, (at::native::ADAM_MODE)0, false> >",
     "optimizer", "fp32", false},
    {"void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::TensorListMetadata<2>, "
     "std::plus<float> >",
     "optimizer", "fp32", false},
    {"void at::native::(anonymous namespace)::indexSelectLargeIndex<float, long, unsigned int, 2, 2, -2, true>",
     "embedding", "fp32", false},
    {"void at::native::(anonymous namespace)::embedding_backward_feature_kernel<float, float, long>", "embedding",
     "fp32", false},
    {"void at::native::index_elementwise_kernel<128, 4, at::native::gpu_index_kernel<float> >", "embedding", "fp32",
     false},
    {"void at::native::(anonymous namespace)::nll_loss_forward_reduce_cuda_kernel_2d<float, float, long>", "reduction",
     "fp32", false},
    {"void at::native::(anonymous namespace)::fused_dropout_kernel_vec<float, float, unsigned int, 1, 4, bool>",
     "elementwise", "fp32", false},
    // Recurrent layers
    {"void elemWiseRNNcell<float, float, float, (cudnnRNNMode_t)2, (cudnnRNNBiasMode_t)2>", "rnn", "fp32", false},
    {"void RNN_blockPersist_fp_LSTM_HMMA<__half, __half, float, 128>", "rnn", "fp16", true},
    {"void RNN_blockPersist_bp_GRU<float, float, float, 128>", "rnn", "fp32", false},
    {"void LSTM_elementWise_bp1<float, float, float>", "rnn", "fp32", false},
    {"void at::native::(anonymous namespace)::kernel::lstm_cell_forward<float, float, int, 1>", "rnn", "fp32", false},
    // Inductor and NCCL
    {"triton_poi_fused_add_cat_mul_rsub_sigmoid_silu_split_0", "elementwise", "", false},
    {"triton_red_fused__to_copy_add_mean_pow_1", "reduction", "", false},
    {"triton_per_fused_add_native_layer_norm_3", "normalisation", "", false},
    {"triton_per_fused__softmax_2", "softmax", "", false},
    {"triton_tem_fused_mm_5", "matmul", "", false},
    {"ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "communication", "fp32", false},
    {"ncclKernel_AllGather_RING_LL_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)", "communication", "int8", false},
    // The user's own
    {"my_render_pass", "other", "", false},
};

TEST(Kernels, ANameTellsKindPrecisionAndTensorCores) {
  for (const auto& row : kRows) {
    const auto found = classify_kernel(row.name);
    EXPECT_EQ(found.kind, row.kind) << row.name;
    EXPECT_EQ(found.precision, row.precision) << row.name;
    EXPECT_EQ(found.tensor_cores, row.tensor_cores) << row.name;
  }
}

TEST(Kernels, AtLeastSixtyNamesAreKnown) {
  EXPECT_GE(std::size(kRows), 60U);
}

TEST(Kernels, ANameThatCannotBeDemangledIsStillRead) {
  EXPECT_EQ(classify_kernel("_ZBroken_sgemm_").kind, "matmul");
  EXPECT_EQ(classify_kernel("").kind, "other");
}

}  // namespace
}  // namespace fullwatt::explain
