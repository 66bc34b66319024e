// One call; where a scaled 16-bit sum would round twice, in fp32 between casts.
#include "add.hpp"

namespace rlk::ascend {
namespace {

constexpr uint32_t kNumerics = RLK_NUMERICS_DETERMINISTIC | RLK_NUMERICS_BATCH_INVARIANT;

class AddPlan final : public ProgramPlan {
public:
  AddPlan(Device& device, double alpha)
      : ProgramPlan(device, sdk::ops::Add::kInputs, sdk::ops::Add::kOutputs, sdk::ops::Add::kSymbols), alpha_(alpha) {
    numerics = kNumerics;
    variant = "aclnn";
  }

private:
  void build(Builder& b, const sdk::Run& run) override {
    const Operand x = input(run, RLK_ADD_IN_A);
    const Operand y = input(run, RLK_ADD_IN_B);
    const Operand out = output(run, RLK_ADD_OUT_OUT);
    if (element_count(out.dims) == 0) return;
    if (out.dtype == kAclDouble) return b.add_scaled(x, y, b.program().scalar(alpha_), out);
    AclScalar* const alpha = b.program().scalar(static_cast<float>(alpha_));
    if (out.dtype == kAclFloat || alpha_ == 1.0) return b.add_scaled(x, y, alpha, out);
    // aclnnAdd may round alpha b to 16 bits before the sum; in fp32 everything is rounded once, at the end.
    const Operand wide_x = b.scratch(kAclFloat, x.dims);
    const Operand wide_y = b.scratch(kAclFloat, y.dims);
    const Operand sum = b.scratch(kAclFloat, out.dims);
    b.cast(x, wide_x);
    b.cast(y, wide_y);
    b.add_scaled(wide_x, wide_y, alpha, sum);
    b.cast(sum, out);
  }

  const double alpha_;
};

}  // namespace

sdk::Support Add::query(Device&, const sdk::Call<Op>& call) {
  if (auto no = decline_missing(missing(runtime().Add, runtime().Cast))) return *no;
  if (auto no = decline_views(call.desc())) return *no;
  if (sdk::dtype_of(*call.output(RLK_ADD_OUT_OUT)) != sdk::Dtype::f64) {
    if (auto no = sdk::refuse_beyond_fp32(call.params().alpha, "ALPHA", "alpha")) return *no;
  }
  sdk::Support yes = sdk::Support::yes("aclnn", kNumerics);
  yes.workspace_bound = std::numeric_limits<uint64_t>::max();
  return yes;
}

std::unique_ptr<sdk::Plan> Add::plan(Device& device, const sdk::Call<Op>& call) {
  return std::make_unique<AddPlan>(device, call.params().alpha);
}

}  // namespace rlk::ascend
