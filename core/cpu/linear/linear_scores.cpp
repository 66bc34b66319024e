// The scores of a block of the vocabulary, row by row, for every instruction set.
#include "core/cpu/linear/linear_scores.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/cpu/linear/linear_scores.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "core/cpu/linear/linear_product-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace rlk::cpu::HWY_NAMESPACE {

template <typename T>
size_t lay_out(Carve carve, double** products, T** weights) {
  *products = carve.take<double>(kLinearTilesPerTask * kLinearBlock * tile_rows_of<T>());
  *weights = carve.take<T>(kPackedWeights<T>);
  return static_cast<size_t>(carve.bytes());
}

template <typename T>
HWY_NOINLINE void score_rows(const LinearScoreBlock& block, void* scratch, double* scores) {
  const Tiles<T> tiles{block.operands, block.batch, block.first_tile, block.last_tile};
  double *products = nullptr, bias[kLinearBlock];
  T* weights = nullptr;
  lay_out(Carve(scratch), &products, &weights);
  const int64_t columns = block.columns();
  block_products(tiles, block.column, columns, weights, products);
  load_bias(block.operands, block.column, columns, bias);
  for (int64_t tile = block.first_tile; tile < block.last_tile; ++tile) {
    const double* const of_tile = products + (tile - block.first_tile) * kLinearBlock * tile_rows_of<T>();
    double* const to = scores + (tiles.begin(tile) - tiles.begin(block.first_tile)) * kLinearBlock;
    const int64_t width = tiles.width(tile), rows = tiles.end(tile) - tiles.begin(tile);
    for (int64_t j = 0; j < columns; ++j) {
      for (int64_t t = 0; t < rows; ++t) to[t * kLinearBlock + j] = of_tile[j * width + t] + bias[j];
    }
  }
}

void scores_for(const LinearScoreBlock& block, void* scratch, double* scores) {
  return block.operands.scores.in_f64 ? score_rows<double>(block, scratch, scores)
                                      : score_rows<float>(block, scratch, scores);
}

size_t scratch_for(bool in_f64) {
  double* products = nullptr;
  float* weights = nullptr;
  double* wide = nullptr;
  return in_f64 ? lay_out(Carve(nullptr), &products, &wide) : lay_out(Carve(nullptr), &products, &weights);
}

}  // namespace rlk::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rlk::cpu {

HWY_EXPORT(scores_for);
HWY_EXPORT(scratch_for);

void linear_scores(const LinearScoreBlock& block, void* scratch, double* scores) {
  HWY_DYNAMIC_DISPATCH(scores_for)(block, scratch, scores);
}
size_t linear_scores_scratch(bool in_f64) {
  return HWY_DYNAMIC_DISPATCH(scratch_for)(in_f64);
}

}  // namespace rlk::cpu
#endif  // HWY_ONCE
