// What each call takes, as its documentation says (aclnnXxx.md of ops-nn and ops-transformer), and how rlk's tensors
// become its arguments.
#include "fused.hpp"

#include "plugins/composed/operator.hpp"
#include "primitives.hpp"

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

Support yes(const char* name, const rlk_call_desc& desc) {
  Support answer = Support::yes(name, RLK_NUMERICS_DETERMINISTIC);  // documented of each
  answer.workspace_bound = std::numeric_limits<uint64_t>::max();
  answer.cost_us = composed::cost_of_call(primitives().speed, desc);
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

// The call divides by 1 + exp(-x) in fp32, which is infinite below -88: results of bf16 and fp32 would be lost there.
Support SiluAndMulFused::query(Device&, const sdk::Call<Op>& described) {
  const auto call = sdk::arguments_of(described);
  if (auto no = decline_missing(missing(runtime().SwiGlu))) return *no;
  if (auto no = sdk::refuse_dtype(call.x, "x", {Dtype::f16})) return *no;
  if (auto no = decline_views(described.desc())) return *no;
  for (const rlk_tensor* tensor : {call.x, call.y}) {
    if (auto no = sdk::refuse_gaps(tensor, "x and y")) return *no;
  }
  return yes(kName, described.desc());
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
  return yes(kName, described.desc());
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
  return yes(kName, described.desc());
}
std::unique_ptr<sdk::Plan> AddRmsNormFused::plan(Device& device, const sdk::Call<Op>& call) {
  return fused<Op>(device, call, [](Builder& b, const auto& params, const auto& t) {
    if (element_count(t.x.dims) == 0) return;
    const Operand rstd = b.scratch(kAclFloat, {t.x.dims[0], 1});
    b.add_rms_norm(t.x, t.residual, t.weight, params.eps, t.y, rstd, t.sum);
  });
}

// --- softmax ---------------------------------------------------------------------------------------------------------
namespace {

// The call subtracts the maximum, as its documentation says, and takes gaps.
template <class Op, class Vendor>
Support softmax_support(const sdk::Call<Op>& described, const Vendor& vendor, const rlk_tensor* first,
                        const char* name) {
  if (auto no = decline_missing(missing(vendor))) return *no;
  if (auto no = sdk::refuse_dtype(first, "the input", {Dtype::f32, Dtype::f16, Dtype::bf16})) return *no;
  if (auto no = decline_aliases(described)) return *no;
  if (auto no = decline_views(described.desc())) return *no;
  return yes(name, described.desc());
}

}  // namespace

#define RLK_ASCEND_SOFTMAX(OP)                                                                                 \
  Support OP##Fused::query(Device&, const sdk::Call<Op>& call) {                                               \
    return softmax_support(call, runtime().OP, sdk::arguments_of(call).x, kName);                              \
  }                                                                                                            \
  std::unique_ptr<sdk::Plan> OP##Fused::plan(Device& device, const sdk::Call<Op>& call) {                      \
    return fused<Op>(device, call, [](Builder& b, const auto&, const auto& t) {                                \
      if (element_count(t.y.dims) > 0) b.softmax(runtime().OP, t.x, 1, t.y);                                   \
    });                                                                                                        \
  }                                                                                                            \
  Support OP##BackwardFused::query(Device&, const sdk::Call<Op>& call) {                                       \
    return softmax_support(call, runtime().OP##Backward, sdk::arguments_of(call).grad_y, kName);               \
  }                                                                                                            \
  std::unique_ptr<sdk::Plan> OP##BackwardFused::plan(Device& device, const sdk::Call<Op>& call) {              \
    return fused<Op>(device, call, [](Builder& b, const auto&, const auto& t) {                                \
      if (element_count(t.y.dims) > 0) b.softmax_backward(runtime().OP##Backward, t.grad_y, t.y, 1, t.grad_x); \
    });                                                                                                        \
  }
RLK_ASCEND_SOFTMAX(Softmax)
RLK_ASCEND_SOFTMAX(LogSoftmax)
#undef RLK_ASCEND_SOFTMAX

// --- rotary embedding ------------------------------------------------------------------------------------------------
// The kernels of both modes compute in fp32, two products and their sum, and round once: the bits of the program.
Support ApplyRotaryPosEmbFused::query(Device& device, const sdk::Call<Op>& described) {
  const auto call = sdk::arguments_of(described);
  if (auto no = decline_missing(missing(runtime().RotaryPositionEmbedding, runtime().Muls))) return *no;
  if (auto no = decline_other_devices(device, "the fused rotary embedding")) return *no;
  if (auto no = sdk::refuse_dtype(call.query, "query", {Dtype::f32, Dtype::f16, Dtype::bf16})) return *no;
  if (sdk::dtype_of(*call.cos) != sdk::dtype_of(*call.query))
    return Support::no("DTYPE", "the call takes cosines and sines of the dtype of query");
  constexpr int64_t kMostHeads = 999, kLargestHead = 894;
  if (call.Hq > kMostHeads || call.Hk > kMostHeads || 2 * call.F > kLargestHead)
    return Support::no("SIZE", "the call takes fewer than 1000 heads, each smaller than 896");
  if (auto no = decline_aliases(described)) return *no;
  if (auto no = decline_views(described.desc())) return *no;
  for (const rlk_tensor* tensor : {call.query_out, call.key_out}) {
    if (auto no = sdk::refuse_gaps(tensor, "query_out and key_out")) return *no;
  }
  return yes(kName, described.desc());
}
std::unique_ptr<sdk::Plan> ApplyRotaryPosEmbFused::plan(Device& device, const sdk::Call<Op>& call) {
  return fused<Op>(device, call, [](Builder& b, const Op::Params& params, const auto& t) {
    constexpr int64_t kHalves = 0, kNeighbours = 1;
    const int64_t mode = params.style == RLK_APPLY_ROTARY_POS_EMB_STYLE_NEOX ? kHalves : kNeighbours;
    const auto of_every_head = [](Operand angles) {
      angles.dims = {1, angles.dims[0], 1, angles.dims[1]};
      angles.strides = {angles.strides[0] * angles.dims[1], angles.strides[0], angles.strides[0], angles.strides[1]};
      return angles;
    };
    const auto of_one_batch = [](Operand heads) {
      heads.dims.insert(heads.dims.begin(), 1);
      heads.strides.insert(heads.strides.begin(), heads.dims[1] * heads.strides[0]);
      return heads;
    };
    if (t.query.dims[0] == 0) return;
    Operand sin = t.sin;
    if (params.inverse == RLK_APPLY_ROTARY_POS_EMB_INVERSE_ON) {
      sin = b.scratch(t.sin.dtype, t.sin.dims);
      b.multiply_scalar(t.sin, -1.0F, sin);
    }
    for (const auto& [from, to] : {std::pair{t.query, t.query_out}, {t.key, t.key_out}}) {
      if (!to.present || element_count(to.dims) == 0) continue;
      b.rotate(of_one_batch(from), of_every_head(t.cos), of_every_head(sin), mode, of_one_batch(to));
    }
  });
}

}  // namespace rlk::ascend
