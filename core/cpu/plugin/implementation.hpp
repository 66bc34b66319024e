// The built-in implementations: each kernel's registration behind the SDK. One serves all dtypes, options and strides
// of its operator and every value of every symbol, one variant per instruction set.
#pragma once

#include <rlk/sdk/immortal.hpp>
#include <rlk/sdk/implementation.hpp>
#include <rlk/sdk/ops.hpp>

#include <cstring>
#include <span>
#include <type_traits>
#include <vector>

#include "core/cpu/plugin/arguments.hpp"
#include "core/cpu/plugin/device.hpp"
#include "core/cpu/plugin/stack.hpp"
#include "core/cpu/simd/operator.hpp"

namespace rlk::cpu {

// The kernel's call from what the host describes (sdk::Call) or runs (sdk::Run).
template <class Op, class Source>
CallOf<Op> bind(const Source& source, const typename Op::Params& params) {
  using Call = CallOf<Op>;
  Call call;
  uint32_t i = 0;
  Call::each_input(call, [&](Array& array) { read_array(source.input(i++), array); });
  i = 0;
  Call::each_output(call, [&](Array& array) { read_array(source.output(i++), array); });
  i = 0;
  Call::each_symbol(call, [&](int64_t& symbol) { symbol = source.symbol(i++); });
  static_assert(sizeof(call.params) == sizeof(params));
  std::memcpy(static_cast<void*>(&call.params), &params, sizeof(params));
  return call;
}

// Kernels to which integers are numbers like others, or that read the place of each element once, with the element.
template <class Op, class... Ops>
constexpr bool is_one_of = (std::is_same_v<Op, Ops> || ...);
template <class Op>
constexpr bool finds_places = !is_one_of<Op, sdk::ops::Cast, sdk::ops::Cat, sdk::ops::Copy, sdk::ops::Fill,
                                         sdk::ops::Gather, sdk::ops::IndexSelect, sdk::ops::Sample, sdk::ops::Where>;

template <class Op>
void take_lookups(CallOf<Op>& call, Lookups& lookups) {
  if constexpr (finds_places<Op>) {
    CallOf<Op>::each_input(call, [&](Array& array) {
      if constexpr (requires { call.block_table; }) {
        if (&array == &call.block_table) return;  // its kernel copies the few entries that a context has
      }
      if (array.dtype == Dtype::i32 || array.dtype == Dtype::i64) lookups.take(array);
    });
    // The samples that a group leaves out say where the others lie.
    if constexpr (requires { call.group_ids, call.mask; }) {
      if (call.mask.ndim == 1) lookups.take(call.mask);
    }
  }
}

template <class Op>
class KernelPlan : public CpuPlan<Op> {
public:
  KernelPlan(const sdk::Call<Op>& call, ParallelFor parallel) : CpuPlan<Op>(call.params(), parallel) {
    this->numerics = numerics_of(call);
    const bool needs_none = kernel<Op>().workspace_bytes == nullptr && kernel<Op>().workspace_of_threads == nullptr;
    if (needs_none) this->workspace_bound = 0;  // and the host does not call prepare
  }

  uint64_t prepare(const sdk::Run& run) override {
    return static_cast<uint64_t>(workspace_bytes<Op>(bind<Op>(run, this->params()), this->parallel().threads));
  }
  void enqueue(sdk::Stream&, const sdk::Run& run) override {
    with_enough_stack([&] {
      CallOf<Op> call = bind<Op>(run, this->params());
      Lookups lookups;
      take_lookups<Op>(call, lookups);
      report(run, kernel<Op>().run(call, {this->parallel(), run.workspace()}));
    });
  }
};

inline std::vector<const rlk_switch*> addresses_of(std::span<const rlk_switch> switches) {
  std::vector<const rlk_switch*> list;
  for (const rlk_switch& row : switches) list.push_back(&row);
  return list;
}

template <class OpType>
struct CpuImplementation {
  using Op = OpType;
  static constexpr const char* kName = "simd";

  static sdk::Support query(CpuDevice& device, const sdk::Call<Op>& call) {
    const CallOf<Op> bound = bind<Op>(call, call.params());
    const int64_t workspace = workspace_bytes<Op>(bound, device.parallel().threads);
    return support(call, static_cast<uint64_t>(workspace), bytes_of(call.desc()), kernel<Op>().operations(bound));
  }
  static std::unique_ptr<sdk::Plan> plan(CpuDevice& device, const sdk::Call<Op>& call) {
    return std::make_unique<KernelPlan<Op>>(call, device.parallel());
  }
  static const std::vector<const rlk_switch*>& switches() {
    static const sdk::Immortal<std::vector<const rlk_switch*>> rows(addresses_of(kernel<Op>().switches));
    return *rows;
  }
};

}  // namespace rlk::cpu
