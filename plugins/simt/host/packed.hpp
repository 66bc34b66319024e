// A call that an implementation would take if its tensors were contiguous: those that are not are copied so on the
// device, in the call's workspace, and what the implementation writes there is copied back. The way through the host's
// memory, which such a call would take otherwise, is some hundred times slower.
#pragma once

#include <rlk/sdk/implementation.hpp>

#include "device.hpp"

#include <memory>
#include <tuple>
#include <vector>

namespace rlk::simt::host {

// A tensor that is packed: which argument it is, -1 where it is none. In-out arguments are both.
struct PackedSlot {
  int32_t input, output;
};
// All tensors that are not contiguous, or begin at no multiple of 16 bytes, but those of lists.
std::vector<PackedSlot> packed_slots(const rlk_call_desc& call);

// The arguments of a call or an execution, those of the slots contiguous and one behind the other from base on.
class PackedArguments {
public:
  template <class CallOrRun>
  PackedArguments(const std::vector<PackedSlot>& slots, const CallOrRun& call, void* base)
      : inputs(call.inputs, call.inputs + call.n_inputs), outputs(call.outputs, call.outputs + call.n_outputs) {
    place(slots, static_cast<char*>(base));
  }
  PackedArguments(const PackedArguments&) = delete;
  PackedArguments& operator=(const PackedArguments&) = delete;

  std::vector<const rlk_tensor*> inputs, outputs;
  std::vector<rlk_tensor> tensors;  // of the slots
  uint64_t bytes = 0;               // that they take

private:
  void place(const std::vector<PackedSlot>& slots, char* base);
  std::vector<std::vector<int64_t>> strides_;
};

// What an implementation that takes the contiguous call answers of the other one.
sdk::Support support_of_packed(const Device& device, const std::vector<PackedSlot>& slots,
                               const PackedArguments& arguments, sdk::Support contiguous);
// inner: the plan of the contiguous call; nullptr where it is not ready.
std::unique_ptr<sdk::Plan> plan_of_packed(Device& device, const std::vector<PackedSlot>& slots,
                                          const PackedArguments& arguments, std::unique_ptr<sdk::Plan> inner);

template <class T>
struct Packed : T {
  using Op = typename T::Op;

  static sdk::Support query(Device& device, const sdk::Call<Op>& call) {
    sdk::Support answer = T::query(device, call);
    if (!would_take_contiguous(answer)) return answer;
    const std::vector<PackedSlot> slots = packed_slots(call.desc());
    if (slots.empty()) return answer;
    const PackedArguments arguments(slots, call.desc(), nullptr);
    const rlk_call_desc contiguous_call = described(call, arguments);
    sdk::Support contiguous = T::query(device, sdk::Call<Op>(contiguous_call));
    if (contiguous.level == RLK_SUPPORT_NO) return answer;
    return support_of_packed(device, slots, arguments, std::move(contiguous));
  }
  static std::unique_ptr<sdk::Plan> plan(Device& device, const sdk::Call<Op>& call) {
    if (!would_take_contiguous(T::query(device, call))) return T::plan(device, call);
    const std::vector<PackedSlot> slots = packed_slots(call.desc());
    const PackedArguments arguments(slots, call.desc(), nullptr);
    const rlk_call_desc desc = described(call, arguments);
    const sdk::Call<Op> contiguous(desc);
    std::unique_ptr<sdk::Plan> inner = T::plan(device, contiguous);
    if (inner != nullptr) sdk::detail::take_bound(T::query(device, contiguous), *inner);
    return plan_of_packed(device, slots, arguments, std::move(inner));
  }

private:
  static bool would_take_contiguous(const sdk::Support& answer) {
    return answer.level == RLK_SUPPORT_NO && (answer.flags & RLK_SUPPORT_IF_CONTIGUOUS) != 0;
  }
  static rlk_call_desc described(const sdk::Call<Op>& call, const PackedArguments& arguments) {
    rlk_call_desc desc = call.desc();
    desc.inputs = arguments.inputs.data();
    desc.outputs = arguments.outputs.data();
    return desc;
  }
};

template <class Tuple>
struct PackedAll;
template <class... T>
struct PackedAll<std::tuple<T...>> {
  using type = std::tuple<Packed<T>...>;
};
template <class Tuple>
using PackStrided = typename PackedAll<Tuple>::type;

}  // namespace rlk::simt::host
