// What the implementations on the instructions of sm_90a have in common.
#pragma once

#include "attention_mma.hpp"
#include "images.hpp"
#include "tensor_map.hpp"

namespace rlk::cuda {

inline sdk::Refusal refuse_other_than_hopper(const simt::host::Device& device) {
  if (device.arch() == "sm_90") return std::nullopt;
  return sdk::Support::no("ARCH",
                          sdk::format("the device is %s; these kernels are made of instructions that only sm_90 "
                                      "has",
                                      device.arch().c_str()));
}

// What the build or the driver lacks, or nothing. nvcc: the first that compiles this image.
inline sdk::Refusal refuse_without(const char* image, const char* nvcc = "12") {
  if (auto refused = refuse_tensor_maps()) return refused;
  if (image_of(image, 0) != nullptr) return std::nullopt;
  return sdk::Support::no("KERNELS_NOT_BUILT",
                          sdk::format("this plugin was built without the kernels for sm_90a; rebuild it with 90 in "
                                      "RLK_CUDA_ARCHITECTURES and nvcc %s or later",
                                      nvcc));
}

// Tensors that these kernels cannot fetch. which: all of them, in the reason.
inline sdk::Refusal refuse_tensors(std::initializer_list<simt::host::NamedTensor> tensors, const char* which) {
  for (const auto& [tensor, name] : tensors) {
    if (auto refused = refuse_narrow({tensor}, which)) return refused;
    if (auto refused = refuse_tensor_map(*tensor, name)) return refused;
  }
  return std::nullopt;
}

// Of a plan's execution: throws where the kernels' 32-bit sums would overflow.
inline void expect_near(int64_t queries, int64_t keys) {
  if (queries <= kWgmmaMostTokens && keys <= kWgmmaMostTokens) return;
  throw sdk::Error(RLK_UNSUPPORTED,
                   sdk::format("sequences of %lld queries and %lld keys; these kernels take up to 2^29 tokens",
                               static_cast<long long>(queries), static_cast<long long>(keys)));
}

// A window as the kernels have it; -1: all.
inline int32_t near_bound(int64_t window) {
  return static_cast<int32_t>(window < 0 ? kWgmmaMostTokens : std::min(window, kWgmmaMostTokens));
}

}  // namespace rlk::cuda
