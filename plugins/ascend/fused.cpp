// What each call takes, as its documentation says (aclnnXxx.md of ops-nn), and how rlk's tensors become its arguments.
#include "fused.hpp"

namespace rlk::ascend {
namespace {

using sdk::Dtype;
using sdk::Support;

// A plan that is one call and what its arguments need.
template <class Op>
class FusedPlan final : public ProgramPlan {
public:
  using Params = typename Op::Params;
  using Add = void (*)(Builder&, const Params&, const typename Op::template Args<Operand>&);

  FusedPlan(Device& device, const Params& params, Add add)
      : ProgramPlan(device, Op::kInputs, Op::kOutputs, Op::kSymbols), params_(params), add_(add) {}

private:
  void build(Builder& b, const sdk::Run& run) override { add_(b, params_, operands_of<Op>(run)); }

  const Params params_;
  const Add add_;
};

template <class Op>
std::unique_ptr<sdk::Plan> fused(Device& device, const sdk::Call<Op>& call, typename FusedPlan<Op>::Add add) {
  return std::make_unique<FusedPlan<Op>>(device, call.params(), add);
}

Support yes(const char* name) {
  Support answer = Support::yes(name, RLK_NUMERICS_DETERMINISTIC);  // documented of each
  answer.workspace_bound = std::numeric_limits<uint64_t>::max();
  return answer;
}

// Nothing is said of an output in an input's memory.
template <class Op>
sdk::Refusal decline_aliases(const sdk::Call<Op>& call) {
  for (uint32_t i = 0; i < Op::kOutputs; ++i) {
    if (call.alias(i) >= 0) return Support::no("ALIAS", "the call is not documented to work in place");
  }
  return std::nullopt;
}

// --- norms -----------------------------------------------------------------------------------------------------------
// The call squares in fp32 what it reads, so that numbers of bf16 and fp32 whose squares are infinite would be lost.
template <class Op>
sdk::Refusal decline_norm(const sdk::Call<Op>& described) {
  const auto call = sdk::arguments_of(described);
  if (auto no = sdk::refuse_dtype(call.x, "x", {Dtype::f16})) return no;
  if (call.weight == nullptr || sdk::dtype_of(*call.weight) != sdk::dtype_of(*call.x))
    return Support::no("DTYPE", "the call takes a weight of the dtype of x");
  if (auto no = decline_aliases(described)) return no;
  return decline_views(described.desc());
}

Operand rstd_column(Builder& b, int64_t rows, const Operand& given) {
  return given.present ? reshaped(given, {rows, 1}) : b.scratch(kAclFloat, {rows, 1});
}

}  // namespace

Support SiluAndMulFused::query(Device&, const sdk::Call<Op>& described) {
  const auto call = sdk::arguments_of(described);
  if (auto no = decline_missing(missing(runtime().SwiGlu))) return *no;
  if (auto no = sdk::refuse_dtype(call.x, "x", {Dtype::f32, Dtype::f16, Dtype::bf16})) return *no;
  if (auto no = decline_views(described.desc())) return *no;
  for (const rlk_tensor* tensor : {call.x, call.y}) {
    if (auto no = sdk::refuse_gaps(tensor, "x and y")) return *no;
  }
  return yes(kName);
}
std::unique_ptr<sdk::Plan> SiluAndMulFused::plan(Device& device, const sdk::Call<Op>& call) {
  return fused<Op>(device, call, [](Builder& b, const auto&, const auto& t) {
    if (element_count(t.y.dims) > 0) b.swi_glu(t.x, 1, t.y);
  });
}

Support RmsNormFused::query(Device&, const sdk::Call<Op>& described) {
  const auto call = sdk::arguments_of(described);
  if (auto no = decline_missing(missing(runtime().RmsNorm))) return *no;
  if (auto no = decline_norm(described)) return *no;
  if (auto no = sdk::refuse_gaps(call.rstd, "rstd")) return *no;
  return yes(kName);
}
std::unique_ptr<sdk::Plan> RmsNormFused::plan(Device& device, const sdk::Call<Op>& call) {
  return fused<Op>(device, call, [](Builder& b, const auto& params, const auto& t) {
    if (element_count(t.x.dims) == 0) return;
    b.rms_norm(t.x, t.weight, params.eps, t.y, rstd_column(b, t.x.dims[0], t.rstd));
  });
}

Support AddRmsNormFused::query(Device&, const sdk::Call<Op>& described) {
  const auto call = sdk::arguments_of(described);
  if (auto no = decline_missing(missing(runtime().AddRmsNorm))) return *no;
  if (auto no = decline_norm(described)) return *no;
  for (const rlk_tensor* tensor : {call.x, call.residual, call.weight, call.y, call.sum}) {
    if (auto no = sdk::refuse_gaps(tensor, "every tensor")) return *no;
  }
  return yes(kName);
}
std::unique_ptr<sdk::Plan> AddRmsNormFused::plan(Device& device, const sdk::Call<Op>& call) {
  return fused<Op>(device, call, [](Builder& b, const auto& params, const auto& t) {
    if (element_count(t.x.dims) == 0) return;
    const Operand rstd = b.scratch(kAclFloat, {t.x.dims[0], 1});
    b.add_rms_norm(t.x, t.residual, t.weight, params.eps, t.y, rstd, t.sum);
  });
}

}  // namespace rlk::ascend
