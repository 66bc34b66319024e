// The plan of an operator that one of the skeletons declares: what differs between skeletons is Base.
#pragma once

#include <rlk/sdk/arguments.hpp>

#include "device.hpp"

namespace rlk::simt::host {

// Declared: Op, kKernels, and call_of(), which takes the operator's arguments by name. Base: the skeleton's plan, of
// (device, kernels, call), with launch(stream, call, run) and workspace_of(call).
template <class Declared, class Base>
class PlanOf final : public Base {
public:
  using Op = typename Declared::Op;

  PlanOf(Device& device, const sdk::Call<Op>& call)
      : Base(device, Declared::kKernels, Declared::call_of(sdk::arguments_of(call))), params_(call.params()) {
    this->dynamic_symbols = (uint64_t{1} << Op::kSymbols) - 1;
  }
  void enqueue(sdk::Stream& stream, const sdk::Run& run) override {
    this->launch(stream, Declared::call_of(sdk::arguments_of<Op>(run, params_)), run);
  }
  uint64_t prepare(const sdk::Run& run) override {
    return this->workspace_of(Declared::call_of(sdk::arguments_of<Op>(run, params_)));
  }

private:
  const typename Op::Params params_;
};

}  // namespace rlk::simt::host
