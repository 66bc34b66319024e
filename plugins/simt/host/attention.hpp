// What the implementations of attention share: sizes, kernel arguments, the plan of a packed batch, reasons to decline.
#pragma once

#include <rlk/sdk/ops/attention.hpp>

#include "operator.hpp"

#include <cmath>
#include <initializer_list>

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

// Heads and parameters, which have the same names in all operators of attention and in the arguments of their kernels.
template <class Args, class Arguments>
void set_heads_and_scores(Args& args, const Arguments& call) {
  constexpr int64_t kFar = int64_t{1} << 40;  // a bound beyond any sequence keeps the kernels' sums from overflowing
  args.q_heads = static_cast<int32_t>(call.Hq);
  args.kv_heads = static_cast<int32_t>(call.Hkv);
  args.group = static_cast<int32_t>(call.Hq / call.Hkv);
  args.head_size = static_cast<int32_t>(call.D);
  args.window_left = std::min(call.params.window_left, kFar);
  args.window_right = std::min(call.params.window_right, kFar);
  if (call.params.causal != decltype(call.params.causal)::off) args.window_right = 0;
  args.softcap = call.params.softcap;
  args.scale = call.params.scale > 0 ? call.params.scale : 1.0 / std::sqrt(static_cast<double>(call.D));
}
template <class Arguments>
bool is_top_left(const Arguments& call) {
  return call.params.causal_alignment == decltype(call.params.causal_alignment)::top_left;
}

// Scores that the kernels' arithmetic takes.
sdk::Refusal refuse_scores(double scale, double softcap, sdk::Dtype dtype);
struct NamedTensor {
  const rlk_tensor* tensor;  // may be absent
  const char* name;
};
// Tensors whose heads' elements lie apart.
sdk::Refusal refuse_strided_heads(std::initializer_list<NamedTensor> tensors);
// Rows of D elements that 16-byte accesses can fetch.
bool is_wide(const rlk_tensor& tensor);
// which: all of these tensors, in the reason.
sdk::Refusal refuse_narrow(std::initializer_list<const rlk_tensor*> tensors, const char* which);
// Of kernels on matrix units, whose accesses are of 16 bytes.
sdk::Refusal refuse_head_size(int64_t head, int64_t most, const char* kernels = "these kernels");
// More shared memory than a block may have.
sdk::Refusal refuse_shared_memory(int64_t head, int64_t bytes, int64_t limit);

// Time of the products without matrix units over the device's estimate with them, as measured.
inline double slower_than_matrix_units(sdk::Dtype dtype) {
  return dtype == sdk::Dtype::f64 ? 60.0 : 30.0;
}

// What every kernel asks of a call.
sdk::Refusal refuse_attention(const Device& device, const sdk::Call<sdk::ops::Attention>& described);

uint64_t attention_workspace(const AttentionSizes& sizes);
double attention_operations(const sdk::Call<sdk::ops::Attention>& call, const AttentionSizes& sizes);
double attention_bytes_us(const Device& device, const AttentionSizes& sizes, sdk::Dtype dtype);

// Kernels on matrix units have small blocks of rows, and large ones.
constexpr int kSmallBlock = 64, kLargeBlock = 128;
// Large blocks read K and V less often; small ones serve short sequences, and fill the device when there are few. Both
// give the same bits.
bool is_for_large_blocks(const simt::AttentionArgs& args, int64_t multiprocessors);
// What kernels on matrix units cost, in small blocks. matrix_work: in products of queries and keys, and weights and
// values.
double attention_matrix_us(const Device& device, const sdk::Call<sdk::ops::Attention>& call, double matrix_work);

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

class AttentionPlan : public OperatorPlan<sdk::ops::Attention> {
public:
  AttentionPlan(Device& device, const sdk::Call<sdk::ops::Attention>& call);
  uint64_t prepare(const sdk::Run& run) override;

protected:
  simt::AttentionArgs arguments(const sdk::Run& run) const;
  // Before the kernel: the packed layout is checked on the device even when there is nothing to compute.
  void start(const simt::AttentionArgs& args, StreamHandle stream) const;

private:
  FunctionHandle plan_;
};

}  // namespace rlk::simt::host
