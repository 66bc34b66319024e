// linear_cross_entropy and its gradients: chunks of rows as in linear_logp, which cross_entropy's own implementation
// reads row by row. What is made of all rows, the reduced loss and the divisor of a mean, is made by one block.
#include "chunk_plan.hpp"
#include "operators.hpp"

#include "../simt/host/operators.hpp"
#include "../simt/linear_losses.h"

#include <rlk/formula/cross_entropy.hpp>

namespace rlk::products {

using namespace simt::host;

namespace {

using Forward = sdk::ops::LinearCrossEntropy;
using Backward = sdk::ops::LinearCrossEntropyBackward;
// Each row alone: what is made of all rows is made here.
template <class To, class From>
To params_of(const From& from, To to, double square_scale) {
  to.reduction = RLK_CROSS_ENTROPY_REDUCTION_NONE;
  to.ignore_index = from.ignore_index;
  to.label_smoothing = from.label_smoothing;
  to.lse_square_scale = square_scale;
  to.softcap = from.softcap;
  return to;
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

template <class Chunk>
void widen_class_weight(const ChunkKernels& kernels, const Chunk& chunk) {
  if (chunk.call.class_weight == nullptr || !chunk.of.is_narrow()) return;
  kernels.widen(sdk::data_of(chunk.call.class_weight), chunk.parts.class_weight, chunk.of.V, chunk.handle);
}

FunctionHandle kernel_of(Device& device, const char* what, sdk::Dtype dtype) {
  return device.kernel("linear_losses", sdk::format("linear_losses_%s_%s", what, sdk::name_of(score_of(dtype))));
}

// --- forward ---------------------------------------------------------------------------------------------------------

struct ForwardParts {
  using Op = Forward;
  using Serving = ServingOf<sdk::ops::CrossEntropy, Maps>::type;
  using Arguments = sdk::Arguments<Op>;
  static constexpr int64_t kModels = 1;
  void *scores, *bias, *class_weight, *entropy, *lse, *loss, *algorithm, *inner;
  rlk_data_error_record* errors;
  uint64_t bytes;

  ForwardParts(void* base, const Scores& of, const Arguments& call, uint64_t algorithm_bytes, uint64_t inner_bytes) {
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
  uint64_t algorithm_bytes(Multiplier& multiplier, const Arguments& call, const Scores& of) const {
    return scores_bytes(multiplier, of, *call.hidden, *call.weight, call.bias, bias);
  }
  // The square of lse is added to what is summed: two sums of one reduction have a share each.
  static rlk_cross_entropy_params inner_params(const Arguments& call) {
    return params_of(call.params, rlk_cross_entropy_params RLK_CROSS_ENTROPY_PARAMS_INIT, 0);
  }
  void describe(InnerCall<Serving::Op>& of_rows, const Arguments& call, const Scores& of, int64_t first,
                int64_t rows) const {
    using Named = sdk::Arguments<Serving::Op>;
    const auto at = [&](void* numbers) {
      return numbers == nullptr ? nullptr : static_cast<char*>(numbers) + first * sdk::bytes_of(of.score);
    };
    of_rows.input(&Named::logits, scores, of.score, rows, of.V);
    give(of_rows, &Named::ids, call.ids, first, rows);
    if (call.class_weight != nullptr) {
      of_rows.input(&Named::class_weight, class_weight, of.score, of.V);
    }
    give(of_rows, &Named::mask, call.mask, first, rows);
    of_rows.output(&Named::loss, loss, of.score, 1);
    of_rows.output(&Named::token_loss, at(entropy), of.score, rows);
    of_rows.output(&Named::lse, at(lse), of.score, rows);
    of_rows.symbol(&Named::N, rows);
    of_rows.symbol(&Named::V, of.V);
  }
};

class LinearCrossEntropyPlan final : public ForwardPlan<ForwardParts> {
public:
  LinearCrossEntropyPlan(Device& device, const sdk::Call<Forward>& call)
      : ForwardPlan(device, call), loss_(kernel_of(device, "reduce", sdk::dtype_of(*sdk::arguments_of(call).hidden))) {}

private:
  void begin(const Chunk& chunk) override { widen_class_weight(kernels_, chunk); }
  void end(const Chunk& chunk) override {
    simt::LinearLossArgs args = loss_args(chunk.call, chunk.parts.class_weight);
    args.entropy = chunk.parts.entropy;
    args.lse = chunk.parts.lse;
    args.token_loss = sdk::data_of(chunk.call.token_loss);
    args.loss = sdk::data_of(chunk.call.loss);
    args.z_loss = sdk::data_of(chunk.call.z_loss);
    launch_walking(loss_, 1, simt::kLinearLossThreads, 0, chunk.handle, args);
  }
  FunctionHandle loss_;
};

// --- backward --------------------------------------------------------------------------------------------------------

struct BackwardParts : GradientBuffers {
  using Op = Backward;
  using Serving = ServingOf<sdk::ops::CrossEntropyBackward, Maps>::type;
  using Arguments = sdk::Arguments<Op>;
  static constexpr int64_t kModels = 1;
  void *scores, *bias, *class_weight, *grads, *algorithm, *inner;
  rlk_data_error_record* errors;
  uint64_t bytes;

  BackwardParts(void* base, const Scores& of, const Arguments& call, uint64_t algorithm_bytes, uint64_t inner_bytes) {
    Arena arena(base);
    algorithm = arena.take(algorithm_bytes);
    scores = arena.take(of.score_bytes(of.rows * of.V));
    bias = widened(arena, of, call.bias);
    class_weight = widened(arena, of, call.class_weight);
    take_buffers(arena, of, call, scores);
    grads = arena.take(of.score_bytes(of.N));
    errors = arena.take<rlk_data_error_record>(sizeof(rlk_data_error_record));
    inner = arena.take(inner_bytes);
    bytes = arena.bytes();
  }
  uint64_t algorithm_bytes(Multiplier& multiplier, const Arguments& call, const Scores& of) const {
    return gradients_bytes(multiplier, call, of, *this);
  }
  static ChunkKernels::Active active(const Arguments& call, int64_t first) { return active_by_ids(call, first); }
  static rlk_cross_entropy_backward_params inner_params(const Arguments& call) {
    return params_of(call.params, rlk_cross_entropy_backward_params RLK_CROSS_ENTROPY_BACKWARD_PARAMS_INIT,
                     call.params.lse_square_scale);
  }
  void describe(InnerCall<Serving::Op>& of_rows, const Arguments& call, const Scores& of, int64_t first,
                int64_t rows) const {
    using Named = sdk::Arguments<Serving::Op>;
    of_rows.input(&Named::logits, scores, of.score, rows, of.V);
    give(of_rows, &Named::ids, call.ids, first, rows);
    give(of_rows, &Named::lse, call.lse, first, rows);
    give(of_rows, &Named::grad_loss, call.grad_loss, 0, 1);  // of which nothing is taken
    void* const of_tokens = grads == nullptr ? nullptr : static_cast<char*>(grads) + first * sdk::bytes_of(of.score);
    of_rows.input(&Named::grad_token_loss, of_tokens, of.score, rows);
    if (call.class_weight != nullptr) {
      of_rows.input(&Named::class_weight, class_weight, of.score, of.V);
    }
    give(of_rows, &Named::mask, call.mask, first, rows);
    put_slopes(of_rows, &Named::grad_logits, &Named::logits, of, rows);
    of_rows.symbol(&Named::N, rows);
    of_rows.symbol(&Named::V, of.V);
  }
};

class LinearCrossEntropyBackwardPlan final : public GradientsPlan<BackwardParts> {
public:
  LinearCrossEntropyBackwardPlan(Device& device, const sdk::Call<Backward>& call)
      : GradientsPlan(device, call),
        loss_(kernel_of(device, "shares", sdk::dtype_of(*sdk::arguments_of(call).hidden))) {}

private:
  void begin(const Chunk& chunk) override {
    widen_class_weight(kernels_, chunk);
    simt::LinearLossArgs args = loss_args(chunk.call, chunk.parts.class_weight);
    args.grad_loss = sdk::data_of(chunk.call.grad_loss);
    args.grad_token_loss = sdk::data_of(chunk.call.grad_token_loss);
    args.token_loss = chunk.parts.grads;
    launch_walking(loss_, 1, simt::kLinearLossThreads, 0, chunk.handle, args);
  }
  FunctionHandle loss_;
};

}  // namespace

sdk::Support query(Device& device, const sdk::Call<Forward>& call) {
  const ForwardParts::Arguments arguments = sdk::arguments_of(call);
  if (auto refused = refuse_scores(device, arguments)) return *refused;
  if (auto refused = sdk::refuse_gaps(arguments.ids, "ids")) return *refused;
  if (auto refused = sdk::refuse_gaps(arguments.class_weight, "class_weight")) return *refused;
  if (auto refused = sdk::refuse_gaps(arguments.token_loss, "token_loss")) return *refused;
  return support_of_chunks<ForwardParts>(device, arguments, scores_us(device, arguments));
}
std::unique_ptr<sdk::Plan> plan(Device& device, const sdk::Call<Forward>& call) {
  return std::make_unique<LinearCrossEntropyPlan>(device, call);
}

sdk::Support query(Device& device, const sdk::Call<Backward>& call) {
  const BackwardParts::Arguments arguments = sdk::arguments_of(call);
  if (auto refused = refuse_scores(device, arguments)) return *refused;
  if (auto refused = sdk::refuse_gaps(arguments.ids, "ids")) return *refused;
  if (auto refused = sdk::refuse_gaps(arguments.class_weight, "class_weight")) return *refused;
  if (auto refused = sdk::refuse_gaps(arguments.grad_token_loss, "grad_token_loss")) return *refused;
  if (auto refused = sdk::refuse_gaps(arguments.grad_bias, "grad_bias")) return *refused;
  const auto terms = formula::cross_entropy_terms(arguments.params, arguments.class_weight != nullptr);
  if (formula::counts_rows(terms) && terms.is_weighted && terms.square_scale > 0) {
    return sdk::Support::no("REDUCTION",
                            "a mean with class_weight and lse_square_scale divides by two numbers; here "
                            "there is one for each row");
  }
  if (auto refused = refuse_gradients<BackwardParts>(arguments)) return *refused;
  return support_of_chunks<BackwardParts>(device, arguments, 3 * scores_us(device, arguments));
}
std::unique_ptr<sdk::Plan> plan(Device& device, const sdk::Call<Backward>& call) {
  return std::make_unique<LinearCrossEntropyBackwardPlan>(device, call);
}

}  // namespace rlk::products
