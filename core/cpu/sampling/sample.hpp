// One token per row, drawn from filtered and tempered logits: the declaration's integers, so the same bits everywhere.
//
// Cost model: logits are read once, to fp32 scores; weights are some 30 vector instructions per vector of scores. For
// top_k and top_p the scores are counted by bins of weight, one addition per token, and what follows looks at the
// tokens of one bin; nothing is sorted. Where rows are few, the parts of a row are tasks; otherwise a row is one. A
// slot of the workspace, 18 bytes per vocabulary entry and 14 KiB per part of 16384, holds a row: at most two slots per
// thread.
#pragma once

#include "core/cpu/simd/kernel.hpp"

namespace rlk::cpu {

// A parameter of every row: its element of an input, or the scalar where there is none.
template <typename T, typename Scalar>
struct PerRow {
  const T* data = nullptr;  // optional, [N]
  int64_t stride = 1;
  Scalar scalar{};

  T operator[](int64_t row) const { return data != nullptr ? data[row * stride] : static_cast<T>(scalar); }
};
using RowFloat = PerRow<float, double>;
using RowInteger = PerRow<int64_t, int64_t>;

// An optional tensor [N, V] beside the logits.
template <typename T>
struct Beside {
  T* data = nullptr;
  int64_t row_stride = 0, col_stride = 1;

  T& operator()(int64_t row, int64_t column) const { return data[row * row_stride + column * col_stride]; }
};

enum SampleStatus : int32_t { kDrawn, kGreedy, kNoFinite, kStrange, kNoRound };

struct SampleArgs {
  int64_t n = 0, vocab = 0;
  Dtype dtype = Dtype::f32;
  const void* logits = nullptr;
  int64_t row_stride = 0, col_stride = 1;
  RowInteger row_ids;
  RowFloat temperature{nullptr, 1, 1.0}, top_p{nullptr, 1, 1.0}, min_p;
  RowFloat repetition{nullptr, 1, 1.0}, frequency, presence;
  RowInteger top_k, seed, step;
  Beside<const uint8_t> prompt_mask, allowed;
  Beside<const int32_t> output_counts;
  bool in_rounds = false;  // by uniform_samples, [rounds, N], which may be empty
  const float* uniform_samples = nullptr;
  int64_t rounds = 0, round_stride = 0, sample_stride = 1;
  bool joint = false;  // top_p is a share of what min_p leaves, not of what top_k leaves
  bool top_k_keeps_ties = true, top_p_exceeds = false, top_p_keeps_ties = false;

  void* ids = nullptr;
  bool ids_are_i64 = true;
  int64_t ids_stride = 1;
  void* logp = nullptr;  // optional, accumulator(dtype)
  int64_t logp_stride = 1;
  void* processed_logp = nullptr;  // optional, accumulator(dtype)
  int64_t processed_logp_stride = 1;
  int32_t* status = nullptr;  // optional
  int64_t status_stride = 1;
  uint8_t* success = nullptr;  // optional
  int64_t success_stride = 1;
  Beside<uint8_t> keep_mask;  // optional
  void* workspace = nullptr;  // sample_workspace_bytes, aligned to 64 bytes
};

// For a hook of this many threads.
int64_t sample_workspace_bytes(int64_t n, int64_t vocab, bool wants_logp, int64_t threads);

// Returns the data error of the lowest row without a finite logit; kind 0 when there is none. hook.threads is that of
// the workspace.
DataError sample(const SampleArgs& args, const ParallelFor& hook);

// 64 random bits of Philox4x32-10: key `seed`, counter (row_id, step), the first two of its four words.
uint64_t sample_random(uint64_t seed, uint64_t row_id, uint64_t step);

}  // namespace rlk::cpu
