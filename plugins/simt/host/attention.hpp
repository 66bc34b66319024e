// What the implementations of attention share: sizes, kernel arguments, the plan of a packed batch, reasons to decline.
#pragma once

#include <rlk/sdk/ops/attention.hpp>

#include "operator.hpp"

namespace rlk::simt::host {

constexpr uint32_t kAttentionNumerics =
    RLK_NUMERICS_ACCURATE | RLK_NUMERICS_DETERMINISTIC | RLK_NUMERICS_BATCH_INVARIANT;

struct AttentionSizes {
  int64_t sequences, queries, keys, q_heads, kv_heads, head;
  bool packed;
};
AttentionSizes attention_sizes(const sdk::Call<sdk::ops::Attention>& call);

// Blocks of a launch, with args.block_rows set.
int64_t attention_grid(const simt::AttentionArgs& args);

// Scores that the kernels' arithmetic takes.
sdk::Refusal refuse_scores(double scale, double softcap, sdk::Dtype dtype);
// A bound beyond any sequence keeps the kernels' sums from overflowing; -1 stays.
inline int64_t near_window(int64_t window) {
  constexpr int64_t kFar = int64_t{1} << 40;
  return window < kFar ? window : kFar;
}

// What every kernel asks of a call.
sdk::Refusal refuse_attention(const Device& device, const sdk::Call<sdk::ops::Attention>& call);

uint64_t attention_workspace(const AttentionSizes& sizes);
double attention_operations(const sdk::Call<sdk::ops::Attention>& call, const AttentionSizes& sizes);
double attention_bytes_us(const Device& device, const AttentionSizes& sizes, sdk::Dtype dtype);

// What a block of the kernels without matrix units has in shared memory (../attention_rows.cuh).
struct SimtShared {
  SimtShared(const Device& device, sdk::Dtype dtype)
      : wave(device.simt_width()), accumulator(accumulator_bytes(dtype)), limit(device.shared_limit()) {}
  int64_t columns(int64_t head) const { return simt::attention_simt_columns(wave, head, accumulator, limit); }
  int bytes(int64_t head) const {
    return static_cast<int>(simt::attention_simt_shared_bytes(wave, head, columns(head), accumulator));
  }
  // The most that a launch asks for. Heads that are processed in parts need less than some narrower ones.
  int most() const {
    const bool in_parts = columns(simt::kSimtMaxHead) < simt::kSimtMaxHead;
    return in_parts ? static_cast<int>(limit) : bytes(simt::kSimtMaxHead);
  }
  sdk::Refusal refuse(int64_t head) const;

  int wave;
  int64_t accumulator, limit;
};

class AttentionPlan : public sdk::Plan {
public:
  AttentionPlan(Device& device, const sdk::Call<sdk::ops::Attention>& call, const char* name);
  uint64_t prepare(const sdk::Run& run) override;

protected:
  simt::AttentionArgs arguments(const sdk::Run& run) const;
  // Before the kernel: the packed layout is checked on the device even when there is nothing to compute.
  void start(const simt::AttentionArgs& args, StreamHandle stream) const;

  rlk_attention_params params_;
  Place place_;

private:
  FunctionHandle plan_;
};

}  // namespace rlk::simt::host
