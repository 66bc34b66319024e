// The four operators as simple serial code that accumulates in fp64: every dtype, every option but
// keep_mask and sum_p2, any strides.
#pragma once

#include <rlk/sdk.hpp>
#include <rlk/sdk/ops/add.hpp>
#include <rlk/sdk/ops/attention.hpp>
#include <rlk/sdk/ops/logp.hpp>
#include <rlk/sdk/ops/logp_backward.hpp>

#include <memory>
#include <type_traits>

#include "device.hpp"

namespace golden_plugin {

using rlk::sdk::Call;
using rlk::sdk::Run;
using rlk::sdk::Support;
namespace ops = rlk::sdk::ops;

// Each computes one execution. `workspace_bytes` of it was promised for the sizes of the run.
void compute(const rlk_logp_params& params, const Run& run);
void compute(const rlk_logp_backward_params& params, const Run& run);
void compute(const rlk_attention_params& params, const Run& run);
void compute(const rlk_add_params& params, const Run& run);

// How the plan of an operator depends on its sizes; symbol(i) is the size, -1 where the form lacks it.
template <class Op>
struct Traits;

template <>
struct Traits<ops::Logp> {  // one row of fp64 scores
  static constexpr uint64_t kDynamic = 1u << RLK_LOGP_SYM_N | 1u << RLK_LOGP_SYM_R;
  static constexpr uint64_t kHostInputs = 0;
  template <class Sizes>
  static uint64_t workspace_bytes(const Sizes& sizes) {
    return sizeof(double) * static_cast<uint64_t>(sizes.symbol(RLK_LOGP_SYM_V));
  }
};

template <>
struct Traits<ops::LogpBackward> {  // the fp64 sums of grad_bias
  static constexpr uint64_t kDynamic = 1u << RLK_LOGP_BACKWARD_SYM_N | 1u << RLK_LOGP_BACKWARD_SYM_R;
  static constexpr uint64_t kHostInputs = 0;
  template <class Sizes>
  static uint64_t workspace_bytes(const Sizes& sizes) {
    return sizeof(double) * static_cast<uint64_t>(sizes.symbol(RLK_LOGP_BACKWARD_SYM_V));
  }
};

template <>
struct Traits<ops::Attention> {  // the fp64 scores of one query
  static constexpr uint64_t kDynamic = 1u << RLK_ATTENTION_SYM_B | 1u << RLK_ATTENTION_SYM_SQ |
                                       1u << RLK_ATTENTION_SYM_SK | 1u << RLK_ATTENTION_SYM_TQ |
                                       1u << RLK_ATTENTION_SYM_TK;
  static constexpr uint64_t kHostInputs = 1u << RLK_ATTENTION_IN_CU_SEQLENS_Q | 1u << RLK_ATTENTION_IN_CU_SEQLENS_K;
  template <class Sizes>
  static uint64_t workspace_bytes(const Sizes& sizes) {
    const int64_t dense = sizes.symbol(RLK_ATTENTION_SYM_SK);
    return sizeof(double) * static_cast<uint64_t>(dense >= 0 ? dense : sizes.symbol(RLK_ATTENTION_SYM_TK));
  }
};

template <>
struct Traits<ops::Add> {
  static constexpr uint64_t kDynamic = 0;
  static constexpr uint64_t kHostInputs = 0;
  template <class Sizes>
  static uint64_t workspace_bytes(const Sizes&) {
    return 0;
  }
};

// Serial code in a fixed order: the bits of a row depend on that row alone, but for sums over rows.
inline uint32_t numerics(const Call<ops::LogpBackward>& call) {
  const bool sums_rows = call.output(RLK_LOGP_BACKWARD_OUT_GRAD_BIAS) != nullptr;
  return RLK_NUMERICS_ACCURATE | RLK_NUMERICS_DETERMINISTIC | (sums_rows ? 0u : RLK_NUMERICS_BATCH_INVARIANT);
}
template <class Op>
uint32_t numerics(const Call<Op>&) {
  return RLK_NUMERICS_ACCURATE | RLK_NUMERICS_DETERMINISTIC | RLK_NUMERICS_BATCH_INVARIANT;
}

// What the serial code does not have.
inline rlk::sdk::Refusal refusal(const Call<ops::Logp>& call) {
  if (auto no = rlk::sdk::refuse_input(call.input(RLK_LOGP_IN_KEEP_MASK), "keep_mask")) return no;
  return rlk::sdk::refuse_output(call.output(RLK_LOGP_OUT_SUM_P2), "sum_p2");
}
inline rlk::sdk::Refusal refusal(const Call<ops::LogpBackward>& call) {
  return rlk::sdk::refuse_input(call.input(RLK_LOGP_BACKWARD_IN_KEEP_MASK), "keep_mask");
}
template <class Op>
rlk::sdk::Refusal refusal(const Call<Op>&) {
  return {};
}

// Host-readable inputs that the call has: an absent one cannot be asked for.
template <class Op>
uint64_t host_inputs(const Call<Op>& call) {
  uint64_t present = 0;
  for (uint32_t i = 0; i < Op::kInputs; ++i) present |= uint64_t{call.input(i) != nullptr} << i;
  return Traits<Op>::kHostInputs & present;
}

template <class Op>
class SerialPlan : public rlk::sdk::Plan {
public:
  explicit SerialPlan(const Call<Op>& call) : params_(call.params()) {
    dynamic_symbols = Traits<Op>::kDynamic;
    // What depends on a dynamic size is for prepare to tell.
    const bool known = !std::is_same<Op, ops::Attention>::value;
    workspace_bound = known ? Traits<Op>::workspace_bytes(call) : UINT64_MAX;
    host_inputs = golden_plugin::host_inputs(call);
    numerics = golden_plugin::numerics(call);
    variant = "serial";
  }
  uint64_t prepare(const Run& run) override { return Traits<Op>::workspace_bytes(run); }
  void enqueue(rlk::sdk::Stream&, const Run& run) override { compute(params_, run); }

protected:
  typename Op::Params params_;
};

template <class O>
struct Serial {
  using Op = O;
  static constexpr const char* kName = "serial";
  static Support query(Device&, const Call<Op>& call) {
    if (auto no = refusal(call)) return *no;
    Support answer = Support::yes("serial", numerics(call), RLK_SUPPORT_OK);
    answer.workspace_bound = Traits<Op>::workspace_bytes(call);
    answer.host_inputs = host_inputs(call);
    return answer;
  }
  static std::unique_ptr<rlk::sdk::Plan> plan(Device&, const Call<Op>& call) {
    return std::make_unique<SerialPlan<Op>>(call);
  }
};

// The first data error of a record is the one that is kept.
inline void report(const Run& run, int32_t kind, int64_t row, int64_t value) {
  rlk_data_error_record* record = run.data_error_record();
  if (record == nullptr || record->state != 0) return;
  record->kind = kind;
  record->tag = run.tag();
  record->row = row;
  record->value = value;
  record->state = 1;
}

}  // namespace golden_plugin
