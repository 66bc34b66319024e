// One call, after a has been repeated to the output's shape where it must be.
#include "add.hpp"

namespace rlk::cambricon {
namespace {

constexpr uint32_t kNumerics = RLK_NUMERICS_DETERMINISTIC | RLK_NUMERICS_BATCH_INVARIANT;

class AddPlan final : public ProgramPlan {
public:
  AddPlan(Device& device, double alpha) : ProgramPlan(device, "cnnl", kNumerics), alpha_(static_cast<float>(alpha)) {}

private:
  void build(Calls& calls, const sdk::Run& run, Stream*) override {
    const Operand out = operand_of(*run.output(RLK_ADD_OUT_OUT), kFloat);
    if (count(out.dims) == 0) return;
    const auto of_rank = [&](uint32_t input) {
      Operand x = operand_of(*run.input(input), kFloat);
      x.dims.insert(x.dims.begin(), out.dims.size() - x.dims.size(), 1);
      return x;
    };
    Operand a = of_rank(RLK_ADD_IN_A);
    const Operand b = of_rank(RLK_ADD_IN_B);
    if (a.dims != out.dims) {  // that the first operand of cnnlOpTensor may broadcast is not known
      const Operand whole = calls.scratch(kFloat, out.dims);
      calls.expand(a, whole);
      a = whole;
    }
    calls.add(a, 1, b, alpha_, out);
  }

  const float alpha_;
};

}  // namespace

sdk::Support Add::query(Device&, const sdk::Call<Op>& call) {
  if (auto no = sdk::refuse_dtype(call.input(RLK_ADD_IN_A), "a", {sdk::Dtype::f32})) return *no;
  if (auto no =
          refuse_missing({RLK_CNNL_NEEDS(cnnlCreateOpTensorDescriptor), RLK_CNNL_NEEDS(cnnlSetOpTensorDescriptor),
                          RLK_CNNL_NEEDS(cnnlDestroyOpTensorDescriptor), RLK_CNNL_NEEDS(cnnlGetOpTensorWorkspaceSize),
                          RLK_CNNL_NEEDS(cnnlOpTensor), RLK_CNNL_NEEDS(cnnlExpand)})) {
    return *no;
  }
  if (auto no = refuse_tensors(call.desc())) return *no;
  if (auto no = sdk::refuse_beyond_fp32(call.params().alpha, "ALPHA", "alpha")) return *no;
  sdk::Support yes = sdk::Support::yes("cnnl", kNumerics);
  yes.workspace_bound = UINT64_MAX;
  return yes;
}

std::unique_ptr<sdk::Plan> Add::plan(Device& device, const sdk::Call<Op>& call) {
  return std::make_unique<AddPlan>(device, call.params().alpha);
}

}  // namespace rlk::cambricon
