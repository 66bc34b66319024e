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

// What every kernel asks of a call.
sdk::Refusal refuse_attention(const Device& device, const sdk::Call<sdk::ops::Attention>& call);

uint64_t attention_workspace(const AttentionSizes& sizes);
double attention_operations(const sdk::Call<sdk::ops::Attention>& call, const AttentionSizes& sizes);
double attention_bytes_us(const Device& device, const AttentionSizes& sizes, sdk::Dtype dtype);

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
