// linear_cross_entropy and its gradients, apart and in one: chunks of rows as in linear_logp, which cross_entropy's own
// implementation reads row by row. What is made of all rows, the reduced loss and the divisor of a mean, is made by one
// block. fused_linear_cross_entropy's chunks are those of the gradients, whose rows' losses are found before their
// slopes: three products where the two others have four.
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
using Fused = sdk::ops::FusedLinearCrossEntropy;
using RowLosses = ServingOf<sdk::ops::CrossEntropy, Maps>::type;
using RowSlopes = ServingOf<sdk::ops::CrossEntropyBackward, Maps>::type;

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

// From a row on.
void* row_of(const Scores& of, void* numbers, int64_t row) {
  return numbers == nullptr ? nullptr : static_cast<char*>(numbers) + row * sdk::bytes_of(of.score);
}

// What losses have in a workspace, of all rows.
struct LossBuffers {
  void *entropy, *lse, *loss;

  template <class Arguments>
  LossBuffers(Arena& arena, const Scores& of, const Arguments& call)
      : entropy(arena.take(of.score_bytes(of.N))),
        lse(call.lse != nullptr ? sdk::data_of(call.lse) : arena.take(of.score_bytes(of.N))),
        loss(arena.take(of.score_bytes(1))) {}
};

// The rows' losses of a chunk. The square of lse is added to what is summed: two sums of one reduction have a share
// each.
template <class Arguments>
rlk_cross_entropy_params loss_params(const Arguments& call) {
  return params_of(call.params, rlk_cross_entropy_params RLK_CROSS_ENTROPY_PARAMS_INIT, 0);
}
template <class Parts, class Arguments>
void describe_losses(InnerCall<RowLosses::Op>& of_rows, const Parts& parts, const Arguments& call, const Scores& of,
                     int64_t first, int64_t rows) {
  using Named = sdk::Arguments<RowLosses::Op>;
  of_rows.input(&Named::logits, parts.scores, of.score, rows, of.V);
  give(of_rows, &Named::ids, call.ids, first, rows);
  if (call.class_weight != nullptr) of_rows.input(&Named::class_weight, parts.class_weight, of.score, of.V);
  give(of_rows, &Named::mask, call.mask, first, rows);
  of_rows.output(&Named::loss, parts.losses.loss, of.score, 1);
  of_rows.output(&Named::token_loss, row_of(of, parts.losses.entropy, first), of.score, rows);
  of_rows.output(&Named::lse, row_of(of, parts.losses.lse, first), of.score, rows);
  of_rows.symbol(&Named::N, rows);
  of_rows.symbol(&Named::V, of.V);
}

// Their slopes, of what reaches each row's loss; lse is given.
template <class Arguments>
rlk_cross_entropy_backward_params slope_params(const Arguments& call) {
  return params_of(call.params, rlk_cross_entropy_backward_params RLK_CROSS_ENTROPY_BACKWARD_PARAMS_INIT,
                   call.params.lse_square_scale);
}
template <class Parts, class Arguments>
void describe_slopes(InnerCall<RowSlopes::Op>& of_rows, const Parts& parts, const Arguments& call, const Scores& of,
                     int64_t first, int64_t rows) {
  using Named = sdk::Arguments<RowSlopes::Op>;
  of_rows.input(&Named::logits, parts.scores, of.score, rows, of.V);
  give(of_rows, &Named::ids, call.ids, first, rows);
  of_rows.input(&Named::grad_token_loss, row_of(of, parts.grads, first), of.score, rows);
  if (call.class_weight != nullptr) of_rows.input(&Named::class_weight, parts.class_weight, of.score, of.V);
  give(of_rows, &Named::mask, call.mask, first, rows);
  parts.put_slopes(of_rows, &Named::grad_logits, &Named::logits, of, rows);
  of_rows.symbol(&Named::N, rows);
  of_rows.symbol(&Named::V, of.V);
}

// What is reduced of all rows.
template <class Chunk>
void reduce_losses(const Chunk& chunk, FunctionHandle kernel) {
  simt::LinearLossArgs args = loss_args(chunk.call, chunk.parts.class_weight);
  args.entropy = chunk.parts.losses.entropy;
  args.lse = chunk.parts.losses.lse;
  args.token_loss = sdk::data_of(chunk.call.token_loss);
  args.loss = sdk::data_of(chunk.call.loss);
  args.z_loss = sdk::data_of(chunk.call.z_loss);
  launch_walking(kernel, 1, simt::kLinearLossThreads, 0, chunk.handle, args);
}
// What reaches each row. Without grad_loss that is 1.
template <class Chunk>
void share_gradient(const Chunk& chunk, FunctionHandle kernel, const rlk_tensor* grad_loss,
                    const rlk_tensor* grad_token_loss) {
  simt::LinearLossArgs args = loss_args(chunk.call, chunk.parts.class_weight);
  args.grad_loss = sdk::data_of(grad_loss);
  args.grad_token_loss = sdk::data_of(grad_token_loss);
  args.token_loss = chunk.parts.grads;
  launch_walking(kernel, 1, simt::kLinearLossThreads, 0, chunk.handle, args);
}

FunctionHandle kernel_of(Device& device, const char* what, sdk::Dtype dtype) {
  return device.kernel("linear_losses", sdk::format("linear_losses_%s_%s", what, sdk::name_of(score_of(dtype))));
}

// --- forward ---------------------------------------------------------------------------------------------------------

struct ForwardParts : ForwardBuffers {
  using Op = Forward;
  using Serving = RowLosses;
  using Arguments = sdk::Arguments<Op>;
  void* class_weight;
  LossBuffers losses;

  ForwardParts(void* base, const Scores& of, const Arguments& call, uint64_t algorithm_bytes, uint64_t inner_bytes)
      : ForwardBuffers(base, of, call, algorithm_bytes, inner_bytes),
        class_weight(widened(arena, of, call.class_weight)),
        losses(arena, of, call) {}
  static auto inner_params(const Arguments& call) { return loss_params(call); }
  void describe(InnerCall<Serving::Op>& of_rows, const Arguments& call, const Scores& of, int64_t first,
                int64_t rows) const {
    describe_losses(of_rows, *this, call, of, first, rows);
  }
};

class LinearCrossEntropyPlan final : public ForwardPlan<ForwardParts> {
public:
  LinearCrossEntropyPlan(Device& device, const sdk::Call<Forward>& call)
      : ForwardPlan(device, call), loss_(kernel_of(device, "reduce", sdk::dtype_of(*sdk::arguments_of(call).hidden))) {}

private:
  void begin(const Chunk& chunk) override { widen_class_weight(kernels_, chunk); }
  void end(const Chunk& chunk) override { reduce_losses(chunk, loss_); }
  FunctionHandle loss_;
};

// --- backward --------------------------------------------------------------------------------------------------------

// Also of both in one.
template <class Operator>
struct SlopeParts : GradientBuffers {
  using Op = Operator;
  using Serving = RowSlopes;
  using Arguments = sdk::Arguments<Op>;
  void *class_weight, *grads;

  SlopeParts(void* base, const Scores& of, const Arguments& call, uint64_t algorithm_bytes, uint64_t inner_bytes)
      : GradientBuffers(base, of, call, algorithm_bytes, inner_bytes),
        class_weight(widened(arena, of, call.class_weight)),
        grads(arena.take(of.score_bytes(of.N))) {}
  static auto inner_params(const Arguments& call) { return slope_params(call); }
};

struct BackwardParts : SlopeParts<Backward> {
  using SlopeParts::SlopeParts;
  void describe(InnerCall<Serving::Op>& of_rows, const Arguments& call, const Scores& of, int64_t first,
                int64_t rows) const {
    using Named = sdk::Arguments<Serving::Op>;
    describe_slopes(of_rows, *this, call, of, first, rows);
    give(of_rows, &Named::lse, call.lse, first, rows);
    give(of_rows, &Named::grad_loss, call.grad_loss, 0, 1);  // of which nothing is taken
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
    share_gradient(chunk, loss_, chunk.call.grad_loss, chunk.call.grad_token_loss);
  }
  FunctionHandle loss_;
};

// --- both in one -----------------------------------------------------------------------------------------------------

struct FusedParts : SlopeParts<Fused> {
  LossBuffers losses;

  FusedParts(void* base, const Scores& of, const Arguments& call, uint64_t algorithm_bytes, uint64_t inner_bytes)
      : SlopeParts(base, of, call, algorithm_bytes, inner_bytes), losses(arena, of, call) {}
  void describe(InnerCall<Serving::Op>& of_rows, const Arguments& call, const Scores& of, int64_t first,
                int64_t rows) const {
    using Named = sdk::Arguments<Serving::Op>;
    describe_slopes(of_rows, *this, call, of, first, rows);
    of_rows.input(&Named::lse, row_of(of, losses.lse, first), of.score, rows);
    of_rows.input(&Named::grad_loss, losses.loss, of.score, 1);  // of which nothing is taken
  }

  // The losses of the same chunk.
  struct Losses {
    using Serving = RowLosses;
    const FusedParts& parts;
    static auto inner_params(const Arguments& call) { return loss_params(call); }
    void describe(InnerCall<Serving::Op>& of_rows, const Arguments& call, const Scores& of, int64_t first,
                  int64_t rows) const {
      describe_losses(of_rows, parts, call, of, first, rows);
    }
  };
};

class FusedPlan final : public GradientsPlan<FusedParts> {
public:
  FusedPlan(Device& device, const sdk::Call<Fused>& call)
      : GradientsPlan(device, call),
        reduce_(kernel_of(device, "reduce", sdk::dtype_of(*sdk::arguments_of(call).hidden))),
        share_(kernel_of(device, "shares", sdk::dtype_of(*sdk::arguments_of(call).hidden))),
        losses_(device, {FusedParts(nullptr, scores_of(call), sdk::arguments_of(call), 0, 0)}, sdk::arguments_of(call),
                scores_of(call)) {}

private:
  uint64_t other_inner_bytes(const sdk::Run& run, const Arguments& call, const Scores& of) override {
    const FusedParts parts(nullptr, of, call, 0, 0);
    return losses_.bytes(run, {parts}, call, of);
  }
  void begin(const Chunk& chunk) override {
    widen_class_weight(kernels_, chunk);
    share_gradient(chunk, share_, nullptr, nullptr);
  }
  void before_inner(const Chunk& chunk) override { losses_.enqueue({chunk.parts}, chunk); }
  void end(const Chunk& chunk) override { reduce_losses(chunk, reduce_); }

  FunctionHandle reduce_, share_;
  const InnerPlan<FusedParts::Losses, FusedParts::Arguments> losses_;
};

// The share of a row's loss in the reduced one has a part for its square.
template <class Arguments>
sdk::Refusal refuse_two_shares(const Arguments& call) {
  const auto terms = formula::cross_entropy_terms(call.params, call.class_weight != nullptr);
  if (!formula::counts_rows(terms) || !terms.is_weighted || terms.square_scale <= 0) return std::nullopt;
  return sdk::Support::no("REDUCTION",
                          "a mean with class_weight and lse_square_scale divides by two numbers; here there is one for "
                          "each row");
}

// What all three ask, but for their own arguments.
template <class Arguments>
sdk::Refusal refuse_losses(const Device& device, const Arguments& call) {
  if (auto refused = refuse_scores(device, call)) return refused;
  if (auto refused = sdk::refuse_gaps(call.ids, "ids")) return refused;
  return sdk::refuse_gaps(call.class_weight, "class_weight");
}
template <class Parts>
sdk::Support support_of_slopes(Device& device, const typename Parts::Arguments& call) {
  if (auto refused = sdk::refuse_gaps(call.grad_bias, "grad_bias")) return *refused;
  if (auto refused = refuse_two_shares(call)) return *refused;
  if (auto refused = refuse_gradients<Parts>(call)) return *refused;
  return support_of_chunks<Parts>(device, call, 3 * scores_us(device, call));
}

}  // namespace

sdk::Support query(Device& device, const sdk::Call<Forward>& described) {
  const ForwardParts::Arguments call = sdk::arguments_of(described);
  if (auto refused = refuse_losses(device, call)) return *refused;
  if (auto refused = sdk::refuse_gaps(call.token_loss, "token_loss")) return *refused;
  return support_of_chunks<ForwardParts>(device, call, scores_us(device, call));
}
std::unique_ptr<sdk::Plan> plan(Device& device, const sdk::Call<Forward>& call) {
  return std::make_unique<LinearCrossEntropyPlan>(device, call);
}

sdk::Support query(Device& device, const sdk::Call<Backward>& described) {
  const BackwardParts::Arguments call = sdk::arguments_of(described);
  if (auto refused = refuse_losses(device, call)) return *refused;
  if (auto refused = sdk::refuse_gaps(call.grad_token_loss, "grad_token_loss")) return *refused;
  return support_of_slopes<BackwardParts>(device, call);
}
std::unique_ptr<sdk::Plan> plan(Device& device, const sdk::Call<Backward>& call) {
  return std::make_unique<LinearCrossEntropyBackwardPlan>(device, call);
}

sdk::Support query(Device& device, const sdk::Call<Fused>& described) {
  const FusedParts::Arguments call = sdk::arguments_of(described);
  if (auto refused = refuse_losses(device, call)) return *refused;
  if (auto refused = sdk::refuse_gaps(call.token_loss, "token_loss")) return *refused;
  return support_of_slopes<FusedParts>(device, call);
}
std::unique_ptr<sdk::Plan> plan(Device& device, const sdk::Call<Fused>& call) {
  return std::make_unique<FusedPlan>(device, call);
}

}  // namespace rlk::products
