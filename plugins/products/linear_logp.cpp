// linear_logp and its gradients: chunks of rows, whose scores are products of the library in fp32 (fp64 of fp64), and
// which logp's own implementation reads. For the gradients the scores are made anew, logp_backward turns them into
// theirs in place, and those, rounded to the tensors' dtype, are the operand of two products.
#include "operators.hpp"
#include "plan.hpp"
#include "scores.hpp"

#include "../simt/host/operators.hpp"

namespace rlk::products {

using namespace simt::host;

namespace {

using Forward = sdk::ops::LinearLogp;
using Backward = sdk::ops::LinearLogpBackward;
using InnerForward = InnerCall<sdk::ops::Logp>;
using InnerBackward = InnerCall<sdk::ops::LogpBackward>;

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

using ForwardArguments = sdk::Arguments<Forward>;

struct ForwardParts {
  void *scores, *bias, *logp, *algorithm, *inner;
  rlk_data_error_record* errors;
  uint64_t bytes;

  ForwardParts(void* base, const Scores& of, const ForwardArguments& call, uint64_t algorithm_bytes,
               uint64_t inner_bytes) {
    Arena arena(base);
    algorithm = arena.take(algorithm_bytes);
    scores = arena.take(of.score_bytes(of.rows * of.V));
    bias = call.bias != nullptr && of.is_narrow() ? arena.take(of.score_bytes(of.V)) : sdk::data_of(call.bias);
    logp = sdk::dtype_of(*call.logp) != of.score ? arena.take(of.score_bytes(of.rows)) : nullptr;
    errors = arena.take<rlk_data_error_record>(sizeof(rlk_data_error_record));
    inner = arena.take(inner_bytes);
    bytes = arena.bytes();
  }
};

// logp of the rows from `first` on.
void describe_inner(InnerForward& inner, const ForwardArguments& call, const Scores& of, const ForwardParts& parts,
                    int64_t first, int64_t rows) {
  inner.input(RLK_LOGP_IN_LOGITS, parts.scores, of.score, rows, of.V);
  give(inner, RLK_LOGP_IN_IDS, call.ids, first, rows);
  give(inner, RLK_LOGP_IN_MASK, call.mask, first, rows);
  const auto out = [&](uint32_t i, const rlk_tensor* tensor) {
    if (tensor != nullptr) inner.output(i, const_cast<void*>(from_row(tensor, first)), of.score, rows);
  };
  if (sdk::dtype_of(*call.logp) != of.score) {
    inner.output(RLK_LOGP_OUT_LOGP, parts.logp, of.score, rows);
  } else {
    out(RLK_LOGP_OUT_LOGP, call.logp);
  }
  out(RLK_LOGP_OUT_LSE, call.lse);
  out(RLK_LOGP_OUT_ENTROPY, call.entropy);
  inner.symbol(RLK_LOGP_SYM_N, rows);
  inner.symbol(RLK_LOGP_SYM_R, rows);
  inner.symbol(RLK_LOGP_SYM_V, of.V);
}

rlk_logp_params inner_params(const ForwardArguments& call) {
  return params_of(call.params, rlk_logp_params RLK_LOGP_PARAMS_INIT);
}

class LinearLogpPlan final : public sdk::Plan {
public:
  LinearLogpPlan(Device& device, const sdk::Call<Forward>& call)
      : multiplier_(device),
        kernels_(device, sdk::dtype_of(*call.input(RLK_LINEAR_LOGP_IN_HIDDEN))),
        place_(device.place()),
        params_(call.params()) {
    const ForwardArguments arguments = sdk::arguments_of(call);
    const Scores of(arguments);
    InnerForward inner(inner_params(arguments));
    describe_inner(inner, arguments, of, ForwardParts(nullptr, of, arguments, 0, 0), 0, of.rows);
    const rlk_call_desc desc = inner.description();
    inner_ = Logp::plan(device, sdk::Call<sdk::ops::Logp>(desc));
    flags = RLK_PLAN_SHAREABLE | RLK_PLAN_CAPTURABLE;
    dynamic_symbols = uint64_t{1} << RLK_LINEAR_LOGP_SYM_N;
    workspace_bound = UINT64_MAX;
    numerics = RLK_NUMERICS_DETERMINISTIC;
    variant = "chunks";
  }
  uint64_t prepare(const sdk::Run& run) override {
    const ForwardArguments call = arguments_of(run);
    const Scores of(call);
    return ForwardParts(nullptr, of, call, algorithm_bytes(call, of), inner_bytes(run, call, of)).bytes;
  }
  void enqueue(sdk::Stream& stream, const sdk::Run& run) override {
    const ForwardArguments call = arguments_of(run);
    const Scores of(call);
    if (of.N == 0) return;
    const uint64_t inner_size = inner_bytes(run, call, of);
    ForwardParts parts(run.workspace(), of, call, algorithm_bytes(call, of), inner_size);
    if (run.data_error_record() == nullptr) parts.errors = nullptr;
    const PlaceScope scope(place_);
    const StreamHandle handle = own(stream).handle();
    if (parts.errors != nullptr) fill(parts.errors, 0, sizeof(rlk_data_error_record), handle);
    if (call.bias != nullptr && of.is_narrow()) kernels_.widen(sdk::data_of(call.bias), parts.bias, of.V, handle);
    const Matrix hidden = matrix_of(*call.hidden), weight = matrix_of(*call.weight);
    for (int64_t first = 0; first < of.N; first += of.rows) {
      const int64_t rows = std::min(of.rows, of.N - first);
      multiplier_.run(scores_product(hidden.rows_from(first, rows), weight, dense(parts.scores, of.score, rows, of.V),
                                     call.bias, parts.bias),
                      handle, parts.algorithm);
      InnerForward inner(inner_params(call));
      describe_inner(inner, call, of, parts, first, rows);
      const rlk_run inner_run = inner.run(run, parts.errors, parts.inner, inner_size);
      inner_->enqueue(stream, sdk::Run(inner_run));
      if (parts.logp != nullptr) {
        kernels_.narrow(parts.logp, const_cast<void*>(from_row(call.logp, first)), rows, handle);
      }
      kernels_.report(parts.errors, first, run, handle);
    }
  }

private:
  ForwardArguments arguments_of(const sdk::Run& run) const { return sdk::arguments_of<Forward>(run, params_); }
  uint64_t algorithm_bytes(const ForwardArguments& call, const Scores& of) {
    return scores_bytes(multiplier_, call, of, ForwardParts(nullptr, of, call, 0, 0));
  }
  uint64_t inner_bytes(const sdk::Run& run, const ForwardArguments& call, const Scores& of) {
    InnerForward inner(inner_params(call));
    describe_inner(inner, call, of, ForwardParts(nullptr, of, call, 0, 0), 0, of.rows);
    const rlk_run inner_run = inner.run(run, nullptr, nullptr, 0);
    return inner_->prepare(sdk::Run(inner_run));
  }

  Multiplier multiplier_;
  ChunkKernels kernels_;
  Place place_;
  std::unique_ptr<sdk::Plan> inner_;
  const rlk_linear_logp_params params_;
};

// --- backward --------------------------------------------------------------------------------------------------------

using BackwardArguments = sdk::Arguments<Backward>;

struct BackwardParts {
  void *scores, *rounded, *hidden, *bias, *grad_logp, *grad_bias, *algorithm, *inner;
  rlk_data_error_record* errors;
  uint64_t bytes;

  BackwardParts(void* base, const Scores& of, const BackwardArguments& call, uint64_t algorithm_bytes,
                uint64_t inner_bytes) {
    Arena arena(base);
    algorithm = arena.take(algorithm_bytes);
    scores = arena.take(of.score_bytes(of.rows * of.V));
    rounded = of.is_narrow() ? arena.take(of.bytes(of.rows * of.V)) : scores;
    hidden = arena.take(of.bytes(of.rows * of.D));
    bias = call.bias != nullptr && of.is_narrow() ? arena.take(of.score_bytes(of.V)) : sdk::data_of(call.bias);
    grad_logp = sdk::dtype_of(*call.grad_logp) != of.score ? arena.take(of.score_bytes(of.rows)) : nullptr;
    grad_bias = call.grad_bias != nullptr ? arena.take(of.score_bytes(of.V)) : nullptr;
    errors = arena.take<rlk_data_error_record>(sizeof(rlk_data_error_record));
    inner = arena.take(inner_bytes);
    bytes = arena.bytes();
  }
};

void describe_inner(InnerBackward& inner, const BackwardArguments& call, const Scores& of, const BackwardParts& parts,
                    int64_t first, int64_t rows) {
  inner.input(RLK_LOGP_BACKWARD_IN_LOGITS, parts.scores, of.score, rows, of.V);
  give(inner, RLK_LOGP_BACKWARD_IN_IDS, call.ids, first, rows);
  give(inner, RLK_LOGP_BACKWARD_IN_LSE, call.lse, first, rows);
  if (sdk::dtype_of(*call.grad_logp) != of.score) {
    inner.input(RLK_LOGP_BACKWARD_IN_GRAD_LOGP, parts.grad_logp, of.score, rows);
  } else {
    give(inner, RLK_LOGP_BACKWARD_IN_GRAD_LOGP, call.grad_logp, first, rows);
  }
  give(inner, RLK_LOGP_BACKWARD_IN_GRAD_LSE, call.grad_lse, first, rows);
  give(inner, RLK_LOGP_BACKWARD_IN_GRAD_ENTROPY, call.grad_entropy, first, rows);
  give(inner, RLK_LOGP_BACKWARD_IN_ENTROPY, call.entropy, first, rows);
  give(inner, RLK_LOGP_BACKWARD_IN_MASK, call.mask, first, rows);
  inner.output(RLK_LOGP_BACKWARD_OUT_GRAD_LOGITS, parts.scores, of.score, rows, of.V, RLK_LOGP_BACKWARD_IN_LOGITS);
  if (call.grad_bias != nullptr) {
    void* const out = first == 0 ? sdk::data_of(call.grad_bias) : parts.grad_bias;
    inner.output(RLK_LOGP_BACKWARD_OUT_GRAD_BIAS, out, of.score, of.V);
  }
  inner.symbol(RLK_LOGP_BACKWARD_SYM_N, rows);
  inner.symbol(RLK_LOGP_BACKWARD_SYM_R, rows);
  inner.symbol(RLK_LOGP_BACKWARD_SYM_V, of.V);
}

rlk_logp_backward_params inner_params(const BackwardArguments& call) {
  return params_of(call.params, rlk_logp_backward_params RLK_LOGP_BACKWARD_PARAMS_INIT);
}

class LinearLogpBackwardPlan final : public sdk::Plan {
public:
  LinearLogpBackwardPlan(Device& device, const sdk::Call<Backward>& call)
      : multiplier_(device),
        kernels_(device, sdk::dtype_of(*call.input(RLK_LINEAR_LOGP_BACKWARD_IN_HIDDEN))),
        place_(device.place()),
        params_(call.params()) {
    const BackwardArguments arguments = sdk::arguments_of(call);
    const Scores of(arguments);
    InnerBackward inner(inner_params(arguments));
    describe_inner(inner, arguments, of, BackwardParts(nullptr, of, arguments, 0, 0), 0, of.rows);
    const rlk_call_desc desc = inner.description();
    inner_ = LogpBackward::plan(device, sdk::Call<sdk::ops::LogpBackward>(desc));
    flags = RLK_PLAN_SHAREABLE | RLK_PLAN_CAPTURABLE;
    dynamic_symbols = uint64_t{1} << RLK_LINEAR_LOGP_BACKWARD_SYM_N;
    workspace_bound = UINT64_MAX;
    numerics = RLK_NUMERICS_DETERMINISTIC;
    variant = "chunks";
  }
  uint64_t prepare(const sdk::Run& run) override {
    const BackwardArguments call = arguments_of(run);
    const Scores of(call);
    return BackwardParts(nullptr, of, call, algorithm_bytes(call, of), inner_bytes(run, call, of)).bytes;
  }
  void enqueue(sdk::Stream& stream, const sdk::Run& run) override {
    const BackwardArguments call = arguments_of(run);
    const Scores of(call);
    const PlaceScope scope(place_);
    const StreamHandle handle = own(stream).handle();
    if (of.N == 0) return clear_sums(multiplier_, call, handle);
    const uint64_t inner_size = inner_bytes(run, call, of);
    BackwardParts parts(run.workspace(), of, call, algorithm_bytes(call, of), inner_size);
    if (run.data_error_record() == nullptr) parts.errors = nullptr;
    if (parts.errors != nullptr) fill(parts.errors, 0, sizeof(rlk_data_error_record), handle);
    if (call.bias != nullptr && of.is_narrow()) kernels_.widen(sdk::data_of(call.bias), parts.bias, of.V, handle);
    const Matrix hidden = matrix_of(*call.hidden);
    const bool ids_are_i64 = sdk::dtype_of(*call.ids) == sdk::Dtype::i64;
    for (int64_t first = 0; first < of.N; first += of.rows) {
      const int64_t rows = std::min(of.rows, of.N - first);
      const ChunkKernels::Active active = {from_row(call.ids, first), ids_are_i64, call.params.ignore_index,
                                           from_row(call.mask, first)};
      kernels_.copy_active(hidden.rows_from(first, rows), dense(parts.hidden, of.dtype, rows, of.D), active, handle);
      const std::vector<Product> products = chunk_products(call, of, parts, first, rows);
      multiplier_.run(products[0], handle, parts.algorithm);
      if (parts.grad_logp != nullptr) {
        kernels_.widen(from_row(call.grad_logp, first), parts.grad_logp, rows, handle);
      }
      InnerBackward inner(inner_params(call));
      describe_inner(inner, call, of, parts, first, rows);
      const rlk_run inner_run = inner.run(run, parts.errors, parts.inner, inner_size);
      inner_->enqueue(stream, sdk::Run(inner_run));
      kernels_.report(parts.errors, first, run, handle);
      if (of.is_narrow()) kernels_.narrow(parts.scores, parts.rounded, rows * of.V, handle);
      for (size_t i = 1; i < products.size(); ++i) multiplier_.run(products[i], handle, parts.algorithm);
      kernels_.clear_ignored(matrix_of(*call.grad_hidden).rows_from(first, rows), active, handle);
      if (call.grad_bias != nullptr && first > 0) {
        kernels_.add(parts.grad_bias, sdk::data_of(call.grad_bias), of.V, handle);
      }
    }
  }

private:
  BackwardArguments arguments_of(const sdk::Run& run) const { return sdk::arguments_of<Backward>(run, params_); }
  uint64_t algorithm_bytes(const BackwardArguments& call, const Scores& of) {
    return gradients_bytes(multiplier_, call, of, BackwardParts(nullptr, of, call, 0, 0));
  }
  uint64_t inner_bytes(const sdk::Run& run, const BackwardArguments& call, const Scores& of) {
    uint64_t bytes = 0;
    for (const int64_t rows : {of.rows, (of.N - 1) % of.rows + 1}) {
      if (rows <= 0) continue;
      InnerBackward inner(inner_params(call));
      describe_inner(inner, call, of, BackwardParts(nullptr, of, call, 0, 0), 0, rows);
      const rlk_run inner_run = inner.run(run, nullptr, nullptr, 0);
      bytes = std::max(bytes, inner_->prepare(sdk::Run(inner_run)));
    }
    return bytes;
  }

  Multiplier multiplier_;
  ChunkKernels kernels_;
  Place place_;
  std::unique_ptr<sdk::Plan> inner_;
  const rlk_linear_logp_backward_params params_;
};

}  // namespace

sdk::Support query(Device& device, const sdk::Call<Forward>& call) {
  const ForwardArguments arguments = sdk::arguments_of(call);
  if (auto refused = refuse_scores(device, arguments)) return *refused;
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
  InnerForward inner(inner_params(arguments));
  const ForwardParts parts(nullptr, of, arguments, 0, 0);
  describe_inner(inner, arguments, of, parts, 0, of.rows);
  const rlk_call_desc desc = inner.description();
  sdk::Support of_inner = Logp::query(device, sdk::Call<sdk::ops::Logp>(desc));
  if (of_inner.level == RLK_SUPPORT_NO) return of_inner;
  sdk::Support answer = supported(scores_us(device, arguments),
                                  parts.bytes + kWorkspaceLimit + of_inner.workspace_bound, RLK_NUMERICS_DETERMINISTIC);
  answer.variant = "chunks";
  return answer;
}
std::unique_ptr<sdk::Plan> plan(Device& device, const sdk::Call<Forward>& call) {
  return std::make_unique<LinearLogpPlan>(device, call);
}

sdk::Support query(Device& device, const sdk::Call<Backward>& call) {
  const BackwardArguments arguments = sdk::arguments_of(call);
  if (auto refused = refuse_scores(device, arguments)) return *refused;
  if (auto refused = sdk::refuse_input(arguments.keep_mask, "keep_mask")) return *refused;
  if (auto refused = sdk::refuse_gaps(arguments.entropy, "entropy")) return *refused;
  if (auto refused = sdk::refuse_gaps(arguments.grad_logp, "grad_logp")) return *refused;
  if (auto refused = sdk::refuse_gaps(arguments.grad_lse, "grad_lse")) return *refused;
  if (auto refused = sdk::refuse_gaps(arguments.grad_entropy, "grad_entropy")) return *refused;
  if (auto refused = sdk::refuse_gaps(arguments.grad_bias, "grad_bias")) return *refused;
  const Scores of(arguments);
  const BackwardParts parts(nullptr, of, arguments, 0, 0);
  const std::vector<Product> products = chunk_products(arguments, of, parts, 0, of.rows);
  if (auto refused = refuse_layout(products[1], "scores", "weight", "", "grad_hidden")) return *refused;
  if (arguments.grad_weight != nullptr) {
    if (auto refused = refuse_layout(products.back(), "scores", "hidden", "", "grad_weight")) return *refused;
  }
  InnerBackward inner(inner_params(arguments));
  describe_inner(inner, arguments, of, parts, 0, of.rows);
  const rlk_call_desc desc = inner.description();
  sdk::Support of_inner = LogpBackward::query(device, sdk::Call<sdk::ops::LogpBackward>(desc));
  if (of_inner.level == RLK_SUPPORT_NO) return of_inner;
  sdk::Support answer = supported(3 * scores_us(device, arguments),
                                  parts.bytes + kWorkspaceLimit + of_inner.workspace_bound, RLK_NUMERICS_DETERMINISTIC);
  answer.variant = "chunks";
  return answer;
}
std::unique_ptr<sdk::Plan> plan(Device& device, const sdk::Call<Backward>& call) {
  return std::make_unique<LinearLogpBackwardPlan>(device, call);
}

}  // namespace rlk::products
