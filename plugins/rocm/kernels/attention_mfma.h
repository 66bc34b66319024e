// The tiles of attention on matrix units, as both sides of a launch have them.
#pragma once

namespace rlk::rocm {

constexpr int kMfmaWaves = 4;
constexpr int kMfmaThreads = kMfmaWaves * 64;

// The head size of the kernels that compute this one.
constexpr int attention_mfma_head(int head) {
  return head <= 64 ? 64 : head <= 96 ? 96 : head <= 128 ? 128 : 256;
}
// Keys of a tile: they depend on the head size alone, so that a row's bits do not depend on the block's size.
constexpr int attention_mfma_keys(int padded_head) {
  return padded_head <= 64 ? 64 : 32;
}
// Elements of a row in shared memory: of a key's, and of the transposed values'.
constexpr int attention_mfma_key_stride(int padded_head) {
  return padded_head + 8;
}
constexpr int attention_mfma_value_stride(int padded_head) {
  return attention_mfma_keys(padded_head) + 8;
}
constexpr int attention_mfma_shared_bytes(int padded_head) {
  return 2 * (attention_mfma_keys(padded_head) * attention_mfma_key_stride(padded_head) +
              padded_head * attention_mfma_value_stride(padded_head));
}

}  // namespace rlk::rocm
