// The built-in implementations: each kernel's registration behind the SDK. One serves all dtypes, options and strides
// of its operator and every value of every symbol, one variant per instruction set.
#pragma once

#include <rlk/sdk/immortal.hpp>
#include <rlk/sdk/implementation.hpp>

#include <cstring>
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

template <class Op>
class KernelPlan : public CpuPlan<Op> {
public:
  KernelPlan(const sdk::Call<Op>& call, ParallelFor parallel) : CpuPlan<Op>(call.params(), parallel) {
    this->numerics = numerics_of(call);
    const bool needs_none = kernel<Op>().workspace_bytes == nullptr && kernel<Op>().workspace_of_threads == nullptr;
    if (needs_none) this->workspace_bound = 0;  // and nobody asks prepare
  }

  uint64_t prepare(const sdk::Run& run) override {
    return static_cast<uint64_t>(workspace_bytes<Op>(bind<Op>(run, this->params()), this->parallel().threads));
  }
  void enqueue(sdk::Stream&, const sdk::Run& run) override {
    with_enough_stack([&] {
      report(run, kernel<Op>().run(bind<Op>(run, this->params()), {this->parallel(), run.workspace()}));
    });
  }
};

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
    static const sdk::Immortal<std::vector<const rlk_switch*>> rows([] {
      std::vector<const rlk_switch*> list;
      for (const rlk_switch& row : kernel<Op>().switches) list.push_back(&row);
      return list;
    }());
    return *rows;
  }
};

}  // namespace rlk::cpu
