// linear_logp and its gradients: chunks of rows, whose scores are products of the library in fp32 (fp64 of fp64), and
// which logp's own implementation reads. For the gradients the scores are made anew, logp_backward turns them into
// theirs, and those, rounded to the tensors' dtype, are the operand of two products.
#include "chunk_plan.hpp"
#include "operators.hpp"

#include "../simt/host/operators.hpp"

namespace rlk::products {

using namespace simt::host;

namespace {

using Forward = sdk::ops::LinearLogp;
using Backward = sdk::ops::LinearLogpBackward;

// The parameters that logp has under the same names.
template <class To, class From>
To params_of(const From& from, To to) {
  to.temperature = from.temperature;
  to.softcap = from.softcap;
  to.ignore_index = from.ignore_index;
  to.vocab_start = from.vocab_start;
  to.global_vocab = from.global_vocab;
  return to;
}

// --- forward ---------------------------------------------------------------------------------------------------------

struct ForwardParts : ForwardBuffers {
  using Op = Forward;
  using Serving = Logp;
  using Arguments = sdk::Arguments<Op>;
  void* logp;

  ForwardParts(void* base, const Scores& of, const Arguments& call, uint64_t algorithm_bytes, uint64_t inner_bytes)
      : ForwardBuffers(base, of, call, algorithm_bytes, inner_bytes) {
    logp = sdk::dtype_of(*call.logp) != of.score ? arena.take(of.score_bytes(of.piece)) : nullptr;
  }
  static rlk_logp_params inner_params(const Arguments& call) {
    return params_of(call.params, rlk_logp_params RLK_LOGP_PARAMS_INIT);
  }
  void describe(InnerCall<Logp::Op>& logp_of, const Arguments& call, const Scores& of, int64_t first,
                int64_t rows) const {
    using Named = sdk::Arguments<Logp::Op>;
    logp_of.input(&Named::logits, scores, of.score, rows, of.V);
    give(logp_of, &Named::ids, call.ids, first, rows);
    give(logp_of, &Named::mask, call.mask, first, rows);
    if (sdk::dtype_of(*call.logp) != of.score) {
      logp_of.output(&Named::logp, logp, of.score, rows);
    } else {
      take(logp_of, &Named::logp, call.logp, first, rows);
    }
    take(logp_of, &Named::lse, call.lse, first, rows);
    take(logp_of, &Named::entropy, call.entropy, first, rows);
    logp_of.symbol(&Named::N, rows);
    logp_of.symbol(&Named::R, rows);
    logp_of.symbol(&Named::V, of.V);
  }
};

class LinearLogpPlan final : public ForwardPlan<ForwardParts> {
public:
  using ForwardPlan::ForwardPlan;

private:
  void make(const Chunk& chunk) override {
    ForwardPlan::make(chunk);
    if (chunk.parts.logp == nullptr) return;
    kernels_.narrow(chunk.parts.logp, const_cast<void*>(from_row(chunk.call.logp, chunk.first)), chunk.rows,
                    chunk.handle);
  }
};

// --- backward --------------------------------------------------------------------------------------------------------

struct BackwardParts : GradientBuffers {
  using Op = Backward;
  using Serving = LogpBackward;
  using Arguments = sdk::Arguments<Op>;
  void* grad_logp;

  BackwardParts(void* base, const Scores& of, const Arguments& call, uint64_t algorithm_bytes, uint64_t inner_bytes)
      : GradientBuffers(base, of, call, algorithm_bytes, inner_bytes, true) {
    grad_logp = sdk::dtype_of(*call.grad_logp) != of.score ? arena.take(of.score_bytes(of.piece)) : nullptr;
  }
  static rlk_logp_backward_params inner_params(const Arguments& call) {
    return params_of(call.params, rlk_logp_backward_params RLK_LOGP_BACKWARD_PARAMS_INIT);
  }
  void describe(InnerCall<LogpBackward::Op>& logp_of, const Arguments& call, const Scores& of, int64_t first,
                int64_t rows) const {
    using Named = sdk::Arguments<LogpBackward::Op>;
    logp_of.input(&Named::logits, scores, of.score, rows, of.V);
    give(logp_of, &Named::ids, call.ids, first, rows);
    give(logp_of, &Named::lse, call.lse, first, rows);
    if (sdk::dtype_of(*call.grad_logp) != of.score) {
      logp_of.input(&Named::grad_logp, grad_logp, of.score, rows);
    } else {
      give(logp_of, &Named::grad_logp, call.grad_logp, first, rows);
    }
    give(logp_of, &Named::grad_lse, call.grad_lse, first, rows);
    give(logp_of, &Named::grad_entropy, call.grad_entropy, first, rows);
    give(logp_of, &Named::entropy, call.entropy, first, rows);
    give(logp_of, &Named::mask, call.mask, first, rows);
    put_slopes(logp_of, &Named::grad_logits, &Named::logits, of, rows);
    if (call.grad_bias != nullptr) {
      logp_of.output(&Named::grad_bias, first == 0 ? sdk::data_of(call.grad_bias) : grad_bias, of.score, of.V);
    }
    logp_of.symbol(&Named::N, rows);
    logp_of.symbol(&Named::R, rows);
    logp_of.symbol(&Named::V, of.V);
  }
};

class LinearLogpBackwardPlan final : public GradientsPlan<BackwardParts> {
public:
  using GradientsPlan::GradientsPlan;

private:
  void before_inner(const Chunk& chunk) override {
    if (chunk.parts.grad_logp == nullptr) return;
    kernels_.widen(from_row(chunk.call.grad_logp, chunk.first), chunk.parts.grad_logp, chunk.rows, chunk.handle);
  }
  void sum_slopes(const Chunk&, void*) override {}  // logp_backward has made it
};

}  // namespace

sdk::Support query(Device& device, const sdk::Call<Forward>& call) {
  const ForwardParts::Arguments arguments = sdk::arguments_of(call);
  if (auto refused = refuse_scores(device, arguments)) return *refused;
  if (auto refused = sdk::refuse_gaps(arguments.ids, "ids")) return *refused;
  if (auto refused = sdk::refuse_input(arguments.keep_mask, "keep_mask")) return *refused;
  if (auto refused = sdk::refuse_gaps(arguments.entropy, "entropy")) return *refused;
  if (auto refused = sdk::refuse_output(arguments.sum_p2, "sum_p2")) return *refused;
  if (auto refused = sdk::refuse_gaps(arguments.logp, "logp")) return *refused;
  const Scores of(arguments);
  // Seen on an H200: matrix units cut the sums of f16 products, which have 22 bits, at every step; a logp of fp32 may
  // be off by 2e-5 and was off by more than twice that. Products of bf16 have 16 bits and stay within it.
  if (of.dtype == sdk::Dtype::f16 && sdk::dtype_of(*arguments.logp) == sdk::Dtype::f32) {
    return sdk::Support::no("PRECISION",
                            "matrix units' sums of f16 products are not exact enough for a logp of f32; "
                            "ask for it in f16, or pass bf16");
  }
  return support_of_chunks<ForwardParts>(device, arguments, scores_us(device, arguments));
}
std::unique_ptr<sdk::Plan> plan(Device& device, const sdk::Call<Forward>& call) {
  return std::make_unique<LinearLogpPlan>(device, call);
}

sdk::Support query(Device& device, const sdk::Call<Backward>& call) {
  const BackwardParts::Arguments arguments = sdk::arguments_of(call);
  if (auto refused = refuse_scores(device, arguments)) return *refused;
  if (auto refused = sdk::refuse_gaps(arguments.ids, "ids")) return *refused;
  if (auto refused = sdk::refuse_input(arguments.keep_mask, "keep_mask")) return *refused;
  if (auto refused = sdk::refuse_gaps(arguments.entropy, "entropy")) return *refused;
  if (auto refused = sdk::refuse_gaps(arguments.grad_logp, "grad_logp")) return *refused;
  if (auto refused = sdk::refuse_gaps(arguments.grad_lse, "grad_lse")) return *refused;
  if (auto refused = sdk::refuse_gaps(arguments.grad_entropy, "grad_entropy")) return *refused;
  if (auto refused = sdk::refuse_gaps(arguments.grad_bias, "grad_bias")) return *refused;
  if (auto refused = refuse_gradients<BackwardParts>(arguments)) return *refused;
  return support_of_chunks<BackwardParts>(device, arguments, 3 * scores_us(device, arguments));
}
std::unique_ptr<sdk::Plan> plan(Device& device, const sdk::Call<Backward>& call) {
  return std::make_unique<LinearLogpBackwardPlan>(device, call);
}

}  // namespace rlk::products
