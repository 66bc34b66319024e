// How the kernels cut their work: read by the kernels and by the host that sizes grids and workspaces for them.
#pragma once

#include <cstdint>

// Clang's descendants take a constexpr function for both sides by themselves.
#if defined(__CUDACC__) && !defined(__clang__)
#define RLK_SIMT_BOTH __host__ __device__
#else
#define RLK_SIMT_BOTH
#endif

namespace rlk::simt {

// logp: packs of 16 bytes that a thread has in flight; bias or softcap need registers of their own.
constexpr int kLogpThreads = 256;
constexpr int kLogpFinishThreads = 64;
constexpr int kLogpSegmentBytes = 65536;
constexpr int kLogpBlockSegments = 4;  // at most, that one block takes
RLK_SIMT_BOTH constexpr int logp_loads(bool transform) {
  return transform ? 2 : 4;
}
// Columns of a segment: a function of the dtype alone, so that a row is always cut the same way.
RLK_SIMT_BOTH constexpr int64_t logp_segment_length(int64_t element_bytes) {
  return kLogpSegmentBytes / element_bytes;
}

// logp_backward
constexpr int kBackwardThreads = 256;
constexpr int kBackwardRows = 4;    // rows that a thread has in flight
constexpr int kBackwardBatch = 64;  // rows whose scalars a block holds at a time
constexpr int kBackwardRowsThreads = 256;
constexpr int kBackwardBiasThreads = 256;
// Words of LogpBackwardArgs::owner: one for each logits row, then kOwnerNan after any data error, then the blocks of
// the rows kernel that are done.
RLK_SIMT_BOTH constexpr int64_t backward_owners(int64_t logits_rows) {
  return logits_rows + 2;
}
RLK_SIMT_BOTH constexpr int64_t backward_tile(int64_t element_bytes) {
  return kBackwardThreads * (16 / element_bytes);
}

// attention
constexpr int kPlanThreads = 256;
constexpr int kSimtWaves = 4;
constexpr int kSimtRows = 4;  // per wave
constexpr int kSimtBlockRows = kSimtWaves * kSimtRows;
constexpr int kSimtMaxHead = 256;
constexpr int kSimtSumKeys = 8;
// Of a tile of keys (one per lane of a wave) `columns` of the head size at a time are in shared memory.
RLK_SIMT_BOTH constexpr int64_t attention_simt_shared_bytes(int64_t wave, int64_t head_size, int64_t columns,
                                                            int64_t accumulator_bytes) {
  return (wave * (columns + 1) + kSimtBlockRows * head_size) * accumulator_bytes;
}
// All columns where they fit in what a block may have, else the largest multiple of 8 that does. An odd row length
// (columns + 1) keeps the lanes of a wave on different banks.
constexpr int64_t attention_simt_columns(int64_t wave, int64_t head_size, int64_t accumulator_bytes,
                                         int64_t shared_limit) {
  const int64_t rest = shared_limit / accumulator_bytes - kSimtBlockRows * head_size;
  const int64_t most = rest / wave - 1;
  return most >= head_size ? head_size : most < 8 ? 8 : most / 8 * 8;
}

// The tensor core kernel's rows of shared memory are padded; keys of a tile depend on the head size alone.
RLK_SIMT_BOTH constexpr int attention_mma_keys(int padded_head) {
  return padded_head <= 128 ? 64 : 32;
}
RLK_SIMT_BOTH constexpr int attention_mma_stride(int padded_head) {
  return padded_head + 8;
}
RLK_SIMT_BOTH constexpr int attention_mma_shared_bytes(int padded_head, int block_rows) {
  return 2 * attention_mma_stride(padded_head) * (block_rows + 4 * attention_mma_keys(padded_head));
}

}  // namespace rlk::simt
