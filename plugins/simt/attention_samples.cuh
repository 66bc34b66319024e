// Where the numbers of a sample's tokens lie, and those of its prefix.
#pragma once

#include "attention.cuh"
#include "attention_samples.h"

namespace rlk::simt {

// A token's numbers of one head.
template <class T>
__device__ __forceinline__ T* sample_row(const SampleTensor& tensor, int64_t batch, int64_t sample, int64_t token,
                                         int64_t head) {
  return static_cast<T*>(tensor.data) + batch * tensor.batch_stride + sample * tensor.sample_stride +
         token * tensor.token_stride + head * tensor.head_stride;
}
// Of the keys of a sample, or of the prefix of its batch entry.
__device__ __forceinline__ KeyMask key_mask_of(const SampleMask& mask, int64_t batch, int64_t sample) {
  if (mask.data == nullptr) return KeyMask{};
  return KeyMask{mask.data + batch * mask.batch_stride + sample * mask.sample_stride, mask.key_stride};
}
__device__ __forceinline__ bool keeps_key(const KeyMask& mask, int64_t key) {
  return mask.data == nullptr || mask.data[key * mask.stride] != 0;
}

// Of `count` keys that `before` others precede.
__device__ __forceinline__ KeyRange span_of(const KeyRange& keys, int64_t before, int64_t count) {
  const int64_t first = keys.first - before, last = keys.last - before;
  return {first > 0 ? first : 0, last < count ? last : count - 1};
}

}  // namespace rlk::simt
