// Tokens of key and value by the order of their slots, in chunks of it.
#include "cache.hpp"

#include <algorithm>

#include "slots.hpp"

namespace rlk::ascend {
namespace {

using Op = sdk::ops::ReshapeAndCache;
using Operands = Op::Args<Operand>;
using sdk::Dtype;
using sdk::ops::reshape_and_cache::Layout;

class CachePlan final : public ProgramPlan {
public:
  explicit CachePlan(Device& device) : ProgramPlan(device, Op::kInputs, Op::kOutputs, Op::kSymbols), c_(constants_) {}

private:
  void build(Builder& b, const sdk::Run& run) override {
    const Operands call = operands_of<Op>(run);
    const int64_t tokens = call.slot_mapping.dims[0];
    const int64_t slots = call.out_key_cache.dims[0] * call.out_key_cache.dims[1];
    const int64_t elements = call.key.dims[1] * call.key.dims[2];
    if (tokens == 0) return;
    constexpr int64_t kNoSlot = -1;
    const SlotWrites writes = add_slot_writes(b, c_, call.slot_mapping, slots, kNoSlot);
    const Operand token = b.scratch(kAclInt64, {tokens});
    b.index_select(writes.token, 0, writes.place, token);
    const int64_t most = chunk_rows(2 * elements * element_bytes(call.key.dtype));
    const int64_t mark = b.program().mark();
    for (int64_t first = 0; elements > 0 && first < tokens; first += most) {
      const int64_t count = std::min(most, tokens - first);
      for (const auto& [from, to] : {std::pair{call.key, call.out_key_cache}, {call.value, call.out_value_cache}}) {
        b.program().rewind(mark);
        const Operand cache = reshaped(to, {slots, elements}), written = b.scratch(from.dtype, {count, elements});
        const Operand taken = b.scratch(from.dtype, {count, elements});
        b.index_select(reshaped(from, {from.dims[0], elements}), 0, rows(token, first, count), taken);
        // Without a slot all write what slot 0 holds.
        b.where(writes.has_any, taken, rows(cache, 0, 1), written);
        b.index_copy(cache, 0, rows(writes.slot, first, count), written);
      }
    }
  }

  const SlotConstants c_;
};

}  // namespace

sdk::Support ReshapeAndCache::query(Device&, const sdk::Call<Op>& described) {
  const auto call = sdk::arguments_of(described);
  if (auto no = sdk::refuse_dtype(call.key, "key", {Dtype::f32, Dtype::bf16, Dtype::f16})) return *no;
  if (call.params.layout != Layout::token_major)
    return sdk::Support::no("LAYOUT", "slots of a head_major cache are no rows, which aclnnInplaceIndexCopy writes");
  if (auto no = decline_missing(missing_for_slots())) return *no;
  if (auto no = decline_views(described.desc())) return *no;
  for (const rlk_tensor* tensor : {call.key, call.value, call.out_key_cache, call.out_value_cache, call.slot_mapping}) {
    if (auto no = sdk::refuse_gaps(tensor, "every tensor")) return *no;
  }
  if (call.N > kMostSlots || call.B * call.BS > kMostSlots)
    return sdk::Support::no("SIZE", "more than 16777216 tokens or slots in one call");
  sdk::Support yes = sdk::Support::yes(kName, RLK_NUMERICS_DETERMINISTIC);
  yes.workspace_bound = std::numeric_limits<uint64_t>::max();
  return yes;
}

std::unique_ptr<sdk::Plan> ReshapeAndCache::plan(Device& device, const sdk::Call<Op>&) {
  return std::make_unique<CachePlan>(device);
}

}  // namespace rlk::ascend
