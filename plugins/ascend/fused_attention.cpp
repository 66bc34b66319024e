// The call's arguments, and its limits as documented of Atlas A2 and A3.
#include "fused_attention.hpp"

namespace rlk::ascend {

void add_fused_attention(Builder& b, const FusedAttention& call) {
  Operand key = call.k, value = call.v;
  key.in_list = value.in_list = true;
  Step step;
  step.name = runtime().FusedInferAttentionScoreV3.name;
  step.run = runtime().FusedInferAttentionScoreV3.run;
  step.inputs = {call.q, key, value, call.mask, call.block_table};
  step.outputs = {call.out, call.lse};
  step.rebindable = false;  // sequence lengths and addresses belong together
  const auto ints = [&](const Dims& values) { return values.empty() ? nullptr : b.program().ints(values); };
  const AclIntArray* q_ends = ints(call.q_ends);
  const AclIntArray* k_lengths = ints(call.k_lengths);
  step.begin = [=, heads = call.heads, kv_heads = call.kv_heads, scale = call.scale, packed = call.packed,
                mode = call.sparse_mode, before = call.before, after = call.after, block_size = call.block_size,
                want_lse = call.lse.present](Descriptors& t, uint32_t, uint64_t* bytes, AclExecutor** executor) {
    static char tnd[] = "TND", bsnd[] = "BSND";
    const AclTensor* const none = nullptr;
    constexpr int64_t kHighPrecision = 0;  // innerPrecise
    return runtime().FusedInferAttentionScoreV3.workspace(
        t.in[0], t.lists[0], t.lists[1], none, t.in[3], q_ends, k_lengths, none, none, none, none, none, none, none,
        t.in[4], none, none, none, none, none, none, none, none, nullptr, none, none, none, heads, scale, before, after,
        packed ? tnd : bsnd, kv_heads, mode, kHighPrecision, block_size, 0, want_lse, 0, 0, t.out[0], t.out[1], bytes,
        executor);
  };
  b.program().add(std::move(step));
}

sdk::Refusal decline_fused_attention(const Device& device, const FusedAttentionLimits& limits) {
  using sdk::Support;
  if (auto no = sdk::refuse_dtype(limits.q, "q", {sdk::Dtype::f16, sdk::Dtype::bf16})) return no;
  if (auto no = decline_other_devices(device, "the fused attention")) return no;
  if (limits.softcap != 0) return Support::no("SOFTCAP", "the fused attention has no softcap; it must be 0");
  if (limits.scale > 0x1p60) {  // scores of fp32 would be infinite, and their differences NaN
    return Support::no("SCALE", "the fused attention computes in fp32, and takes scales up to 2^60");
  }
  if (limits.head_size % 16 != 0) {
    return Support::no("SIZE", sdk::format("head size %lld; the fused attention takes multiples of 16",
                                           static_cast<long long>(limits.head_size)));
  }
  if (limits.heads > 256 || limits.heads / limits.kv_heads > 64) {
    return Support::no("SIZE",
                       sdk::format("%lld query heads on %lld key heads; at most 256, 64 to one",
                                   static_cast<long long>(limits.heads), static_cast<long long>(limits.kv_heads)));
  }
  return std::nullopt;
}

Dims host_values(const sdk::Run& run, uint32_t index) {
  const rlk_tensor& tensor = *run.input(index);
  const void* values = run.host_input(index);
  Dims result(static_cast<size_t>(sdk::element_count(tensor)));
  if (values == nullptr && !result.empty()) {
    throw sdk::Error(RLK_INVALID_ARGUMENT,
                     sdk::format("host values of input %u are missing; query and plan_create asked for them", index));
  }
  for (size_t i = 0; i < result.size(); ++i) {
    result[i] = sdk::dtype_of(tensor) == sdk::Dtype::i32 ? static_cast<const int32_t*>(values)[i]
                                                         : static_cast<const int64_t*>(values)[i];
  }
  return result;
}

}  // namespace rlk::ascend
