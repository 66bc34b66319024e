// What a plan over chunks of scores has in its workspace (chunk_plan.hpp).
#pragma once

#include "columns.hpp"
#include "inner.hpp"
#include "scores.hpp"

namespace rlk::products {

// A vector of the vocabulary in scores' dtype: as it is, or in the workspace.
inline void* widened(Arena& arena, const Scores& of, const rlk_tensor* tensor) {
  return tensor != nullptr && of.is_narrow() ? arena.take(of.score_bytes(of.V)) : sdk::data_of(tensor);
}

// An operator takes what else it has from the arena. Without a base only the bytes count.
struct ForwardBuffers {
  static constexpr int64_t kModels = 1;  // matrices of scores

  template <class Arguments>
  ForwardBuffers(void* base, const Scores& of, const Arguments& call, uint64_t algorithm_bytes, uint64_t inner_bytes)
      : arena(base) {
    algorithm = arena.take(algorithm_bytes);
    scores = arena.take(of.score_bytes(of.piece * of.V));
    bias = widened(arena, of, call.bias);
    errors = arena.take<rlk_data_error_record>(sizeof(rlk_data_error_record));
    inner = arena.take(inner_bytes);
  }
  uint64_t bytes() const { return arena.bytes(); }
  template <class Arguments>
  uint64_t algorithm_bytes(Multiplier& multiplier, const Arguments& call, const Scores& of) const {
    return scores_bytes(multiplier, of, *call.hidden, *call.weight, call.bias, bias);
  }

  Arena arena;
  void *algorithm, *scores, *bias, *inner;
  rlk_data_error_record* errors;
};

struct GradientBuffers : ForwardBuffers {
  // inner_sums_bias: the inner call makes grad_bias, too.
  template <class Arguments>
  GradientBuffers(void* base, const Scores& of, const Arguments& call, uint64_t algorithm_bytes, uint64_t inner_bytes,
                  bool inner_sums_bias = false)
      : ForwardBuffers(base, of, call, algorithm_bytes, inner_bytes) {
    rounds_slopes = of.dtype == sdk::Dtype::bf16 && (call.grad_bias == nullptr || inner_sums_bias);
    rounded = of.is_narrow() ? arena.take(of.bytes(of.rows * of.V)) : scores;
    scale = of.scales_slopes() ? arena.take<simt::ProductsScale>(sizeof(simt::ProductsScale)) : nullptr;
    const bool takes_alphas = of.scales_slopes() && library().numbers.takes_alphas();
    alphas = takes_alphas ? arena.take<float>(static_cast<uint64_t>(alphas_of(of)) * sizeof(float)) : nullptr;
    hidden = arena.take(of.bytes(of.rows * of.D));
    grad_bias = call.grad_bias != nullptr ? arena.take(of.score_bytes(of.V)) : nullptr;
    sums = call.grad_bias != nullptr ? arena.take(ColumnSums::workspace_of(of.piece, of.V, of.score)) : nullptr;
  }
  template <class Arguments>
  uint64_t algorithm_bytes(Multiplier& multiplier, const Arguments& call, const Scores& of) const {
    return gradients_bytes(multiplier, call, of, *this);
  }
  Matrix slopes(const Scores& of, int64_t rows) const { return dense(rounded, of.dtype, rows, of.V); }
  // What belongs to a piece alone, which begins at this row of the chunk.
  void move_to_piece(const Scores& of, int64_t at) {
    if (at > 0) rounded = static_cast<char*>(rounded) + of.bytes(at * of.V);
  }
  // A product's result has as many rows, or its transpose.
  static int64_t alphas_of(const Scores& of) { return std::max({of.rows, of.V, of.D}); }
  // Rows by their ids.
  template <class Arguments>
  static ChunkKernels::Active active(const Arguments& call, int64_t first) {
    return {from_row(call.ids, first), sdk::dtype_of(*call.ids) == sdk::Dtype::i64, call.params.ignore_index,
            from_row(call.mask, first)};
  }
  // The inner call's result, and the scores that it is made of.
  template <class Inner>
  void put_slopes(Inner& inner_call, typename Inner::Argument slopes, typename Inner::Argument logits, const Scores& of,
                  int64_t rows) const {
    if (!rounds_slopes) return inner_call.output_in_place(slopes, logits);
    inner_call.output(slopes, rounded, of.dtype, rows, of.V);
  }

  void *rounded, *hidden, *grad_bias, *sums;
  simt::ProductsScale* scale;  // of the rounded slopes
  float* alphas;               // the scale's inverse, for each row of a result, where the library takes it so
  bool rounds_slopes;          // the inner call writes the slopes as they are multiplied: nothing else reads them
};

}  // namespace rlk::products
