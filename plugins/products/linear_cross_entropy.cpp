// linear_cross_entropy and its gradients: chunks of rows as in linear_logp, which cross_entropy's own implementation
// reads row by row. What is made of all rows, the reduced loss and the divisor of a mean, is made by one block.
#include "columns.hpp"
#include "operators.hpp"
#include "plan.hpp"
#include "scores.hpp"

#include "../simt/host/operators.hpp"
#include "../simt/linear_losses.h"

#include <rlk/formula/cross_entropy.hpp>

namespace rlk::products {

using namespace simt::host;

namespace {

using Forward = sdk::ops::LinearCrossEntropy;
using Backward = sdk::ops::LinearCrossEntropyBackward;
using ForwardArguments = sdk::Arguments<Forward>;
using BackwardArguments = sdk::Arguments<Backward>;

// The implementation of an operator among those that all plugins share.
template <class Op, class Tuple>
struct Serving;
template <class Op, class First, class... Rest>
struct Serving<Op, std::tuple<First, Rest...>> {
  using type = std::conditional_t<std::is_same<typename First::Op, Op>::value, std::tuple<First>,
                                  Serving<Op, std::tuple<Rest...>>>;
};
template <class T>
struct First;
template <class Op, class Tuple>
struct First<Serving<Op, Tuple>> {
  using type = typename First<typename Serving<Op, Tuple>::type>::type;
};
template <class One>
struct First<std::tuple<One>> {
  using type = One;
};
using InnerOp = sdk::ops::CrossEntropy;
using InnerBackwardOp = sdk::ops::CrossEntropyBackward;
using InnerServing = First<Serving<InnerOp, Maps>>::type;
using InnerBackwardServing = First<Serving<InnerBackwardOp, Maps>>::type;
using InnerForward = InnerCall<InnerOp>;
using InnerBackward = InnerCall<InnerBackwardOp>;

// Each row alone: what is made of all rows is made here.
template <class To, class From>
To inner_params(const From& from, To to, double square_scale) {
  to.reduction = RLK_CROSS_ENTROPY_REDUCTION_NONE;
  to.ignore_index = from.ignore_index;
  to.label_smoothing = from.label_smoothing;
  to.lse_square_scale = square_scale;
  to.softcap = from.softcap;
  return to;
}
// The square of lse is added to what is summed: two sums of one reduction have a share each.
rlk_cross_entropy_params inner_params(const ForwardArguments& call) {
  return inner_params(call.params, rlk_cross_entropy_params RLK_CROSS_ENTROPY_PARAMS_INIT, 0);
}
rlk_cross_entropy_backward_params inner_params(const BackwardArguments& call) {
  return inner_params(call.params, rlk_cross_entropy_backward_params RLK_CROSS_ENTROPY_BACKWARD_PARAMS_INIT,
                      call.params.lse_square_scale);
}

template <class Arguments>
simt::LinearLossArgs loss_args(const Arguments& call, const void* class_weight) {
  simt::LinearLossArgs args{};
  const auto terms = formula::cross_entropy_terms(call.params, call.class_weight != nullptr);
  static_assert(sizeof(terms) <= sizeof(args.terms));
  std::memcpy(args.terms, &terms, sizeof(terms));
  args.ids = sdk::data_of(call.ids);
  args.mask = sdk::data_of<const uint8_t>(call.mask);
  args.class_weight = call.class_weight != nullptr ? class_weight : nullptr;
  args.rows = call.N;
  args.vocab = call.V;
  args.ids_are_i64 = sdk::dtype_of(*call.ids) == sdk::Dtype::i64 ? 1 : 0;
  return args;
}

FunctionHandle kernel_of(Device& device, const char* what, sdk::Dtype dtype) {
  return device.kernel("linear_losses", sdk::format("linear_losses_%s_%s", what, sdk::name_of(score_of(dtype))));
}

// A vector of the vocabulary in scores' dtype: as it is, or in the workspace.
void* widened(Arena& arena, const Scores& of, const rlk_tensor* tensor) {
  return tensor != nullptr && of.is_narrow() ? arena.take(of.score_bytes(of.V)) : sdk::data_of(tensor);
}

// What both plans have.
template <class Op>
class LossPlan : public sdk::Plan {
protected:
  LossPlan(Device& device, const sdk::Call<Op>& call, const char* kernel, uint32_t rows)
      : multiplier_(device),
        kernels_(device, sdk::dtype_of(*call.input(0))),
        loss_(kernel_of(device, kernel, sdk::dtype_of(*call.input(0)))),
        place_(device.place()),
        params_(call.params()) {
    flags = RLK_PLAN_SHAREABLE | RLK_PLAN_CAPTURABLE;
    dynamic_symbols = uint64_t{1} << rows;
    workspace_bound = UINT64_MAX;
    numerics = RLK_NUMERICS_DETERMINISTIC;
    variant = "chunks";
  }
  sdk::Arguments<Op> arguments_of(const sdk::Run& run) const { return sdk::arguments_of<Op>(run, params_); }
  // Before the first chunk.
  template <class Arguments, class Parts>
  void begin(const Arguments& call, const Scores& of, const Parts& parts, StreamHandle stream) const {
    if (parts.errors != nullptr) fill(parts.errors, 0, sizeof(rlk_data_error_record), stream);
    if (!of.is_narrow()) return;
    if (call.bias != nullptr) kernels_.widen(sdk::data_of(call.bias), parts.bias, of.V, stream);
    if (call.class_weight != nullptr) {
      kernels_.widen(sdk::data_of(call.class_weight), parts.class_weight, of.V, stream);
    }
  }

  Multiplier multiplier_;
  ChunkKernels kernels_;
  FunctionHandle loss_;
  Place place_;
  std::unique_ptr<sdk::Plan> inner_;
  const typename Op::Params params_;
};

// --- forward ---------------------------------------------------------------------------------------------------------

struct ForwardParts {
  void *scores, *bias, *class_weight, *entropy, *lse, *loss, *algorithm, *inner;
  rlk_data_error_record* errors;
  uint64_t bytes;

  ForwardParts(void* base, const Scores& of, const ForwardArguments& call, uint64_t algorithm_bytes,
               uint64_t inner_bytes) {
    Arena arena(base);
    algorithm = arena.take(algorithm_bytes);
    scores = arena.take(of.score_bytes(of.rows * of.V));
    bias = widened(arena, of, call.bias);
    class_weight = widened(arena, of, call.class_weight);
    entropy = arena.take(of.score_bytes(of.N));
    lse = call.lse != nullptr ? sdk::data_of(call.lse) : arena.take(of.score_bytes(of.N));
    loss = arena.take(of.score_bytes(1));
    errors = arena.take<rlk_data_error_record>(sizeof(rlk_data_error_record));
    inner = arena.take(inner_bytes);
    bytes = arena.bytes();
  }
};

void describe_inner(InnerForward& inner, const ForwardArguments& call, const Scores& of, const ForwardParts& parts,
                    int64_t first, int64_t rows) {
  const auto at = [&](void* numbers) {
    return numbers == nullptr ? nullptr : static_cast<char*>(numbers) + first * sdk::bytes_of(of.score);
  };
  inner.input(RLK_CROSS_ENTROPY_IN_LOGITS, parts.scores, of.score, rows, of.V);
  give(inner, RLK_CROSS_ENTROPY_IN_IDS, call.ids, first, rows);
  if (call.class_weight != nullptr) {
    inner.input(RLK_CROSS_ENTROPY_IN_CLASS_WEIGHT, parts.class_weight, of.score, of.V);
  }
  give(inner, RLK_CROSS_ENTROPY_IN_MASK, call.mask, first, rows);
  inner.output(RLK_CROSS_ENTROPY_OUT_LOSS, parts.loss, of.score, 1);
  inner.output(RLK_CROSS_ENTROPY_OUT_TOKEN_LOSS, at(parts.entropy), of.score, rows);
  inner.output(RLK_CROSS_ENTROPY_OUT_LSE, at(parts.lse), of.score, rows);
  inner.symbol(RLK_CROSS_ENTROPY_SYM_N, rows);
  inner.symbol(RLK_CROSS_ENTROPY_SYM_V, of.V);
}

class LinearCrossEntropyPlan final : public LossPlan<Forward> {
public:
  LinearCrossEntropyPlan(Device& device, const sdk::Call<Forward>& call)
      : LossPlan(device, call, "reduce", RLK_LINEAR_CROSS_ENTROPY_SYM_N) {
    const ForwardArguments arguments = sdk::arguments_of(call);
    const Scores of(arguments);
    InnerForward inner(inner_params(arguments));
    describe_inner(inner, arguments, of, ForwardParts(nullptr, of, arguments, 0, 0), 0, of.rows);
    const rlk_call_desc desc = inner.description();
    inner_ = InnerServing::plan(device, sdk::Call<InnerOp>(desc));
  }
  uint64_t prepare(const sdk::Run& run) override {
    const ForwardArguments call = arguments_of(run);
    const Scores of(call);
    return ForwardParts(nullptr, of, call, algorithm_bytes(call, of), inner_bytes(run, call, of)).bytes;
  }
  void enqueue(sdk::Stream& stream, const sdk::Run& run) override {
    const ForwardArguments call = arguments_of(run);
    const Scores of(call);
    const uint64_t inner_size = inner_bytes(run, call, of);
    ForwardParts parts(run.workspace(), of, call, algorithm_bytes(call, of), inner_size);
    if (run.data_error_record() == nullptr) parts.errors = nullptr;
    const PlaceScope scope(place_);
    const StreamHandle handle = own(stream).handle();
    begin(call, of, parts, handle);
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
      kernels_.report(parts.errors, first, run, handle);
    }
    simt::LinearLossArgs args = loss_args(call, parts.class_weight);
    args.entropy = parts.entropy;
    args.lse = parts.lse;
    args.token_loss = sdk::data_of(call.token_loss);
    args.loss = sdk::data_of(call.loss);
    args.z_loss = sdk::data_of(call.z_loss);
    launch_walking(loss_, 1, simt::kLinearLossThreads, 0, handle, args);
  }

private:
  uint64_t algorithm_bytes(const ForwardArguments& call, const Scores& of) {
    return scores_bytes(multiplier_, call, of, ForwardParts(nullptr, of, call, 0, 0));
  }
  uint64_t inner_bytes(const sdk::Run& run, const ForwardArguments& call, const Scores& of) {
    InnerForward inner(inner_params(call));
    describe_inner(inner, call, of, ForwardParts(nullptr, of, call, 0, 0), 0, of.rows);
    const rlk_run inner_run = inner.run(run, nullptr, nullptr, 0);
    return inner_->prepare(sdk::Run(inner_run));
  }
};

// --- backward --------------------------------------------------------------------------------------------------------

struct BackwardParts {
  void *scores, *rounded, *hidden, *bias, *class_weight, *grads, *grad_bias, *sums, *algorithm, *inner;
  rlk_data_error_record* errors;
  uint64_t bytes;

  BackwardParts(void* base, const Scores& of, const BackwardArguments& call, uint64_t algorithm_bytes,
                uint64_t inner_bytes) {
    Arena arena(base);
    algorithm = arena.take(algorithm_bytes);
    scores = arena.take(of.score_bytes(of.rows * of.V));
    rounded = of.is_narrow() ? arena.take(of.bytes(of.rows * of.V)) : scores;
    hidden = arena.take(of.bytes(of.rows * of.D));
    bias = widened(arena, of, call.bias);
    class_weight = widened(arena, of, call.class_weight);
    grads = arena.take(of.score_bytes(of.N));
    grad_bias = call.grad_bias != nullptr ? arena.take(of.score_bytes(of.V)) : nullptr;
    sums = call.grad_bias != nullptr ? arena.take(ColumnSums::workspace_of(of.rows, of.V, of.score)) : nullptr;
    errors = arena.take<rlk_data_error_record>(sizeof(rlk_data_error_record));
    inner = arena.take(inner_bytes);
    bytes = arena.bytes();
  }
};

void describe_inner(InnerBackward& inner, const BackwardArguments& call, const Scores& of, const BackwardParts& parts,
                    int64_t first, int64_t rows) {
  inner.input(RLK_CROSS_ENTROPY_BACKWARD_IN_LOGITS, parts.scores, of.score, rows, of.V);
  give(inner, RLK_CROSS_ENTROPY_BACKWARD_IN_IDS, call.ids, first, rows);
  give(inner, RLK_CROSS_ENTROPY_BACKWARD_IN_LSE, call.lse, first, rows);
  give(inner, RLK_CROSS_ENTROPY_BACKWARD_IN_GRAD_LOSS, call.grad_loss, 0, 1);  // of which nothing is taken
  void* const grads =
      parts.grads == nullptr ? nullptr : static_cast<char*>(parts.grads) + first * sdk::bytes_of(of.score);
  inner.input(RLK_CROSS_ENTROPY_BACKWARD_IN_GRAD_TOKEN_LOSS, grads, of.score, rows);
  if (call.class_weight != nullptr) {
    inner.input(RLK_CROSS_ENTROPY_BACKWARD_IN_CLASS_WEIGHT, parts.class_weight, of.score, of.V);
  }
  give(inner, RLK_CROSS_ENTROPY_BACKWARD_IN_MASK, call.mask, first, rows);
  inner.output(RLK_CROSS_ENTROPY_BACKWARD_OUT_GRAD_LOGITS, parts.scores, of.score, rows, of.V,
               RLK_CROSS_ENTROPY_BACKWARD_IN_LOGITS);
  inner.symbol(RLK_CROSS_ENTROPY_BACKWARD_SYM_N, rows);
  inner.symbol(RLK_CROSS_ENTROPY_BACKWARD_SYM_V, of.V);
}

class LinearCrossEntropyBackwardPlan final : public LossPlan<Backward> {
public:
  LinearCrossEntropyBackwardPlan(Device& device, const sdk::Call<Backward>& call)
      : LossPlan(device, call, "shares", RLK_LINEAR_CROSS_ENTROPY_BACKWARD_SYM_N),
        sums_(device, score_of(sdk::dtype_of(*call.input(0)))) {
    const BackwardArguments arguments = sdk::arguments_of(call);
    const Scores of(arguments);
    InnerBackward inner(inner_params(arguments));
    describe_inner(inner, arguments, of, BackwardParts(nullptr, of, arguments, 0, 0), 0, of.rows);
    const rlk_call_desc desc = inner.description();
    inner_ = InnerBackwardServing::plan(device, sdk::Call<InnerBackwardOp>(desc));
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
    begin(call, of, parts, handle);
    simt::LinearLossArgs args = loss_args(call, parts.class_weight);
    args.grad_loss = sdk::data_of(call.grad_loss);
    args.grad_token_loss = sdk::data_of(call.grad_token_loss);
    args.token_loss = parts.grads;
    launch_walking(loss_, 1, simt::kLinearLossThreads, 0, handle, args);
    for (int64_t first = 0; first < of.N; first += of.rows) {
      make(stream, run, call, of, parts, inner_size, first);
    }
  }

private:
  void make(sdk::Stream& stream, const sdk::Run& run, const BackwardArguments& call, const Scores& of,
            const BackwardParts& parts, uint64_t inner_size, int64_t first) {
    const StreamHandle handle = own(stream).handle();
    const int64_t rows = std::min(of.rows, of.N - first);
    const ChunkKernels::Active active = {from_row(call.ids, first), sdk::dtype_of(*call.ids) == sdk::Dtype::i64,
                                         call.params.ignore_index, from_row(call.mask, first)};
    kernels_.copy_active(matrix_of(*call.hidden).rows_from(first, rows), dense(parts.hidden, of.dtype, rows, of.D),
                         active, handle);
    const std::vector<Product> products = chunk_products(call, of, parts, first, rows);
    multiplier_.run(products[0], handle, parts.algorithm);
    InnerBackward inner(inner_params(call));
    describe_inner(inner, call, of, parts, first, rows);
    const rlk_run inner_run = inner.run(run, parts.errors, parts.inner, inner_size);
    inner_->enqueue(stream, sdk::Run(inner_run));
    kernels_.report(parts.errors, first, run, handle);
    if (of.is_narrow()) kernels_.narrow(parts.scores, parts.rounded, rows * of.V, handle);
    for (size_t i = 1; i < products.size(); ++i) multiplier_.run(products[i], handle, parts.algorithm);
    kernels_.clear_ignored(matrix_of(*call.grad_hidden).rows_from(first, rows), active, handle);
    if (call.grad_bias == nullptr) return;
    void* const out = sdk::data_of(call.grad_bias);
    sums_.run(dense(parts.scores, of.score, rows, of.V), first == 0 ? out : parts.grad_bias, handle, parts.sums);
    if (first > 0) kernels_.add(parts.grad_bias, out, of.V, handle);
  }
  uint64_t algorithm_bytes(const BackwardArguments& call, const Scores& of) {
    return gradients_bytes(multiplier_, call, of, BackwardParts(nullptr, of, call, 0, 0));
  }
  uint64_t inner_bytes(const sdk::Run& run, const BackwardArguments& call, const Scores& of) {
    InnerBackward inner(inner_params(call));
    describe_inner(inner, call, of, BackwardParts(nullptr, of, call, 0, 0), 0, of.rows);
    const rlk_run inner_run = inner.run(run, nullptr, nullptr, 0);
    return inner_->prepare(sdk::Run(inner_run));
  }

  ColumnSums sums_;
};

sdk::Support chunks_support(double cost, uint64_t workspace) {
  sdk::Support answer = supported(cost, workspace, RLK_NUMERICS_DETERMINISTIC);
  answer.variant = "chunks";
  return answer;
}

}  // namespace

sdk::Support query(Device& device, const sdk::Call<Forward>& call) {
  const ForwardArguments arguments = sdk::arguments_of(call);
  if (auto refused = refuse_scores(device, arguments)) return *refused;
  if (auto refused = sdk::refuse_gaps(arguments.class_weight, "class_weight")) return *refused;
  if (auto refused = sdk::refuse_gaps(arguments.token_loss, "token_loss")) return *refused;
  const Scores of(arguments);
  const ForwardParts parts(nullptr, of, arguments, 0, 0);
  InnerForward inner(inner_params(arguments));
  describe_inner(inner, arguments, of, parts, 0, of.rows);
  const rlk_call_desc desc = inner.description();
  sdk::Support of_inner = InnerServing::query(device, sdk::Call<InnerOp>(desc));
  if (of_inner.level == RLK_SUPPORT_NO) return of_inner;
  return chunks_support(scores_us(device, arguments), parts.bytes + kWorkspaceLimit + of_inner.workspace_bound);
}
std::unique_ptr<sdk::Plan> plan(Device& device, const sdk::Call<Forward>& call) {
  return std::make_unique<LinearCrossEntropyPlan>(device, call);
}

sdk::Support query(Device& device, const sdk::Call<Backward>& call) {
  const BackwardArguments arguments = sdk::arguments_of(call);
  if (auto refused = refuse_scores(device, arguments)) return *refused;
  if (auto refused = sdk::refuse_gaps(arguments.class_weight, "class_weight")) return *refused;
  if (auto refused = sdk::refuse_gaps(arguments.grad_token_loss, "grad_token_loss")) return *refused;
  if (auto refused = sdk::refuse_gaps(arguments.grad_bias, "grad_bias")) return *refused;
  const auto terms = formula::cross_entropy_terms(arguments.params, arguments.class_weight != nullptr);
  if (formula::counts_rows(terms) && terms.is_weighted && terms.square_scale > 0) {
    return sdk::Support::no("REDUCTION",
                            "a mean with class_weight and lse_square_scale divides by two numbers; here "
                            "there is one for each row");
  }
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
  sdk::Support of_inner = InnerBackwardServing::query(device, sdk::Call<InnerBackwardOp>(desc));
  if (of_inner.level == RLK_SUPPORT_NO) return of_inner;
  return chunks_support(3 * scores_us(device, arguments), parts.bytes + kWorkspaceLimit + of_inner.workspace_bound);
}
std::unique_ptr<sdk::Plan> plan(Device& device, const sdk::Call<Backward>& call) {
  return std::make_unique<LinearCrossEntropyBackwardPlan>(device, call);
}

}  // namespace rlk::products
