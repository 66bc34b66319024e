// What each call takes, as public frameworks call it (DIOPI, OneFlow, InfiniTensor, Dragon), and how rlk's tensors
// become its arguments. Softmax is not here: the numbers of its modes and algorithms are in no public text.
#include "fused.hpp"

#include "plugins/composed/operator.hpp"
#include "primitives.hpp"

namespace rlk::cambricon {
namespace {

using sdk::Dtype;
using sdk::Support;

// A norm of rows: one call, with memory for the numbers of each row that the caller does not ask for.
template <class Op>
class NormPlan final : public ProgramPlan {
public:
  using Named = sdk::Arguments<Op>;
  using Emit = void (*)(Calls&, const NormOperands&, float eps);

  NormPlan(Device& device, const Named& call, Emit emit)
      : ProgramPlan(device), eps_(static_cast<float>(call.params.eps)), emit_(emit) {}

private:
  void build(Calls& c, const sdk::Run& run, Stream*) override {
    const auto input = [&](auto argument) { return operand_of(*run.input(sdk::index_of(argument)), kHalf); };
    NormOperands norm{input(&Named::x), input(&Named::weight)};
    norm.y = operand_of(*run.output(sdk::index_of(&Named::y)), kHalf);
    if (count(norm.x.dims) == 0) return;
    if constexpr (std::is_same_v<Op, sdk::ops::LayerNorm>) norm.bias = input(&Named::bias);
    emit_(c, norm, eps_);
  }

  const float eps_;
  const Emit emit_;
};

// CNNL documents no precision: fp16 alone is served, whose squares fp32 holds whatever the numbers are. The call with
// numbers of other dtypes would have to keep rows of any finite size.
template <class Op>
sdk::Refusal decline_norm(const sdk::Call<Op>& described) {
  const auto call = sdk::arguments_of(described);
  if (auto no = sdk::refuse_dtype(call.x, "x", {Dtype::f16})) return no;
  if (call.weight == nullptr || sdk::dtype_of(*call.weight) != sdk::dtype_of(*call.x))
    return Support::no("DTYPE", "the call takes a weight of the dtype of x");
  if (call.rstd != nullptr)
    return Support::no("RSTD", "the dtype in which the call gives the numbers of rows differs between its callers");
  for (uint32_t i = 0; i < Op::kOutputs; ++i) {
    if (described.alias(i) >= 0) return Support::no("ALIAS", "no caller of the call works in place");
  }
  for (const rlk_tensor* tensor : {call.x, call.weight, call.y}) {
    if (auto no = sdk::refuse_gaps(tensor, "a tensor of the call")) return no;
  }
  return refuse_tensors(described.desc());
}

Support yes(const char* name, const rlk_call_desc& desc) {
  Support answer = Support::yes(name, 0);  // nothing is said of the order of its sums
  answer.workspace_bound = std::numeric_limits<uint64_t>::max();
  answer.cost_us = composed::cost_of_call(primitives().speed, desc);
  return answer;
}

}  // namespace

Support LayerNormFused::query(Device&, const sdk::Call<Op>& described) {
  const auto call = sdk::arguments_of(described);
  if (auto no = refuse_missing({RLK_CNNL_NEEDS(cnnlLayerNormForward), RLK_CNNL_NEEDS(cnnlGetLayerNormOpWorkspaceSize)}))
    return *no;
  if (auto no = decline_norm(described)) return *no;
  if (call.bias == nullptr || sdk::dtype_of(*call.bias) != sdk::dtype_of(*call.x))
    return Support::no("DTYPE", "the call takes a bias beside the weight, of the same dtype");
  if (call.mean != nullptr)
    return Support::no("MEAN", "the dtype in which the call gives the numbers of rows differs between its callers");
  return yes(kName, described.desc());
}
std::unique_ptr<sdk::Plan> LayerNormFused::plan(Device& device, const sdk::Call<Op>& call) {
  return std::make_unique<NormPlan<Op>>(device, sdk::arguments_of(call),
                                        [](Calls& c, const NormOperands& t, float eps) { c.layer_norm(t, eps); });
}

Support RmsNormFused::query(Device&, const sdk::Call<Op>& described) {
  if (auto no = refuse_missing({RLK_CNNL_NEEDS(cnnlRmsNormForward), RLK_CNNL_NEEDS(cnnlGetRmsNormOpWorkspaceSize)}))
    return *no;
  if (auto no = decline_norm(described)) return *no;
  return yes(kName, described.desc());
}
std::unique_ptr<sdk::Plan> RmsNormFused::plan(Device& device, const sdk::Call<Op>& call) {
  return std::make_unique<NormPlan<Op>>(device, sdk::arguments_of(call),
                                        [](Calls& c, const NormOperands& t, float eps) { c.rms_norm(t, eps); });
}

}  // namespace rlk::cambricon
