// The implementation of an operator that one of the skeletons declares: what differs between skeletons is Base, the
// plan.
#pragma once

#include "operator.hpp"

namespace rlk::simt::host {

// Declared: Op, kKernels, and call_of(), which takes the operator's arguments by name. Base: a KernelPlan of (device,
// kernels, call), with support(device, call), launch(stream, call, run) and workspace_of(call).
template <class Declared, class Base>
struct DeclaredBy {
  using Op = typename Declared::Op;

  static sdk::Support query(Device& device, const sdk::Call<Op>& call) {
    return Base::support(device, Declared::call_of(sdk::arguments_of(call)));
  }
  static std::unique_ptr<sdk::Plan> plan(Device& device, const sdk::Call<Op>& call) {
    return std::make_unique<Plan>(device, call);
  }

private:
  class Plan final : public Base {
  public:
    Plan(Device& device, const sdk::Call<Op>& call)
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
};

}  // namespace rlk::simt::host
