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

// An implementation as functions that know its operator: what is done around it has no need to.
using AskCall = sdk::Support (*)(Device& device, const rlk_call_desc& call);
using PlanCall = std::unique_ptr<sdk::Plan> (*)(Device& device, const rlk_call_desc& call);
sdk::Support query_packed(AskCall ask, Device& device, const rlk_call_desc& call);
std::unique_ptr<sdk::Plan> make_packed(AskCall ask, PlanCall plan, Device& device, const rlk_call_desc& call);

template <class T>
struct Packed : T {
  using Op = typename T::Op;

  static sdk::Support query(Device& device, const sdk::Call<Op>& call) {
    return query_packed(&ask, device, call.desc());
  }
  static std::unique_ptr<sdk::Plan> plan(Device& device, const sdk::Call<Op>& call) {
    return make_packed(&ask, &make, device, call.desc());
  }

private:
  static sdk::Support ask(Device& device, const rlk_call_desc& call) { return T::query(device, sdk::Call<Op>(call)); }
  static std::unique_ptr<sdk::Plan> make(Device& device, const rlk_call_desc& call) {
    return T::plan(device, sdk::Call<Op>(call));
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
