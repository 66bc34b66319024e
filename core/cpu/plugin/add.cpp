// add behind the plugin ABI.
#include "core/cpu/elementwise/add.hpp"

#include "core/cpu/plugin/arguments.hpp"
#include "core/cpu/plugin/implementations.hpp"

namespace rlk::cpu {
namespace {

using Op = sdk::ops::Add;
static_assert(kMaxAddDims == RLK_MAX_NDIM);

// The operand's strides along the dimensions of the output; 0 where it is repeated.
void broadcast(const rlk_tensor& operand, int ndim, int64_t* strides) {
  const int missing = ndim - operand.ndim;
  for (int axis = 0; axis < ndim; ++axis) {
    const bool repeated = axis < missing || operand.shape[axis - missing] == 1;
    strides[axis] = repeated ? 0 : operand.strides[axis - missing];
  }
}

class AddPlan : public CpuPlan<Op> {
public:
  using CpuPlan::CpuPlan;

  uint64_t prepare(const sdk::Run&) override { return 0; }

  void enqueue(sdk::Stream&, const sdk::Run& run) override {
    const rlk_tensor& a = *run.input(RLK_ADD_IN_A);
    const rlk_tensor& b = *run.input(RLK_ADD_IN_B);
    const rlk_tensor& out = *run.output(RLK_ADD_OUT_OUT);
    AddArgs args;
    args.dtype = kernel_dtype(out);
    args.ndim = out.ndim;
    std::copy(out.shape, out.shape + out.ndim, args.shape);
    std::copy(out.strides, out.strides + out.ndim, args.out_strides);
    broadcast(a, out.ndim, args.a_strides);
    broadcast(b, out.ndim, args.b_strides);
    args.a = sdk::data_of(&a);
    args.b = sdk::data_of(&b);
    args.out = sdk::data_of(&out);
    args.alpha = params().alpha;
    cpu::add(args, parallel());
  }
};

}  // namespace

sdk::Support CpuAdd::query(CpuDevice&, const sdk::Call<Op>& call) {
  const rlk_tensor &a = *call.input(RLK_ADD_IN_A), &b = *call.input(RLK_ADD_IN_B), &out = *call.output(RLK_ADD_OUT_OUT);
  const double elements = static_cast<double>(sdk::element_count(a) + sdk::element_count(b) + sdk::element_count(out));
  return support(call, 0, elements * static_cast<double>(size_of(kernel_dtype(out))), elements);
}

std::unique_ptr<sdk::Plan> CpuAdd::plan(CpuDevice& device, const sdk::Call<Op>& call) {
  auto plan = std::make_unique<AddPlan>(call.params(), device.parallel());
  plan->workspace_bound = 0;
  return plan;
}

}  // namespace rlk::cpu
