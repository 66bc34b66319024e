// The scores of some rows against a segment of the vocabulary, and their sums of exponentials; for every instruction
// set. Scores exist for one block of the vocabulary at a time, rows in the lanes of vectors; a block's sums are short
// chains in the compute type, everything above is fp64.
#include "core/cpu/linear/linear_logp_task.hpp"

#include <algorithm>
#include <cmath>

#include "core/cpu/logp/logp_sums.hpp"
#include "core/cpu/simd/long_sum.hpp"
#include "core/cpu/simd/scratch.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/cpu/linear/linear_logp_task.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "core/cpu/linear/linear_product-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace rlk::cpu::HWY_NAMESPACE {

template <typename T>
class Task {
  using D = hn::ScalableTag<T>;
  using V = hn::VFromD<D>;

public:
  explicit Task(const LinearLogpTask& task)
      : task_(task), tiles_{task.operands, task.batch, task.first_tile, task.last_tile} {}

  // Takes its scratch; the bytes of it.
  size_t lay_out(Carve carve) {
    const int64_t tile = tile_rows_of<T>(), tiles = kLinearTilesPerTask;
    rows_ = carve.take<RowSums>(tiles * tile);
    score_sums_ = carve.take<LongSum>(tiles * tile);
    products_ = carve.take<double>(tiles * kLinearBlock * tile);
    weights_ = carve.take<T>(kPackedWeights<T>);
    scores_ = carve.take<T>(kLinearBlock * tile);
    for (T** const of_rows : {&max_, &sum_, &weighted_, &squares_}) *of_rows = carve.take<T>(tile);
    return static_cast<size_t>(carve.bytes());
  }

  void run() {
    const int64_t first_row = tiles_.begin(task_.first_tile), last_row = tiles_.end(task_.last_tile - 1);
    std::fill(rows_, rows_ + (last_row - first_row), RowSums(task_.operands.scores));
    std::fill(score_sums_, score_sums_ + (last_row - first_row), LongSum());
    for (int64_t column = task_.begin; column < task_.end; column += kLinearBlock) {
      const int64_t columns = std::min(kLinearBlock, task_.end - column);
      block_products(tiles_, column, columns, weights_, products_);
      load_bias(task_.operands, column, columns, bias_);
      for (int64_t j = 0; j < columns && task_.score_sums != nullptr; ++j) {
        column_weights_[j] = task_.weights != nullptr ? task_.weights->get(column + j) : 1;
      }
      for (int64_t tile = task_.first_tile; tile < task_.last_tile; ++tile) add_block(tile, column, columns);
    }
    for (int64_t row = first_row; row < last_row; ++row) {
      task_.sums[row * task_.sums_stride] = rows_[row - first_row].total();
      if (task_.score_sums != nullptr) {
        task_.score_sums[row * task_.sums_stride] = score_sums_[row - first_row].value();
      }
    }
  }

private:
  void add_block(int64_t tile, int64_t column, int64_t columns) {
    const int64_t width = tiles_.width(tile), first_row = tiles_.begin(tile), last_row = tiles_.end(tile);
    const double* products = products_ + (tile - task_.first_tile) * kLinearBlock * tile_rows_of<T>();
    for (int64_t t = 0; t < width; t += lanes_of<T>()) scores_of(products + t, columns, width, t);
    if (task_.operands.keep_mask.present()) {
      drop_scores(task_.operands.keep_mask, task_.batch.rows + first_row, last_row - first_row, column, columns, width,
                  scores_);
      for (int64_t t = 0; t < width; t += lanes_of<T>()) largest_of(columns, width, t);
    }
    for (int64_t t = 0; t < width; t += lanes_of<T>()) {
      if (task_.wanted == Sums::plain) sums_of<Sums::plain>(columns, width, t);
      if (task_.wanted == Sums::weighted) sums_of<Sums::weighted>(columns, width, t);
      if (task_.wanted == Sums::weighted_and_squares) sums_of<Sums::weighted_and_squares>(columns, width, t);
    }
    const int64_t first_of_task = first_row - tiles_.begin(task_.first_tile);
    RowSums* const sums = rows_ + first_of_task;
    for (int64_t row = first_row; row < last_row; ++row) {
      const int64_t t = row - first_row;
      sums[t].add(std::isfinite(max_[t])
                      ? BlockSums{static_cast<double>(max_[t]), static_cast<double>(sum_[t]),
                                  static_cast<double>(weighted_[t]), static_cast<double>(squares_[t])}
                      : without_maximum(scores_ + t, columns, width));
      const int64_t target = task_.targets[row] - column;
      if (target >= 0 && target < columns) task_.target_scores[row] = static_cast<double>(scores_[target * width + t]);
      if (task_.score_sums != nullptr) score_sums_[first_of_task + t].add(weighted_scores(scores_ + t, columns, width));
    }
  }

  // Of one row of a block, in fp64: a score may be large, and equal terms round the same way.
  double weighted_scores(const T* scores, int64_t columns, int64_t width) const {
    double sums[4] = {};
    for (int64_t j = 0; j < columns; ++j) {
      const double weight = column_weights_[j], score = static_cast<double>(scores[j * width]);
      sums[j % 4] += weight == 0 ? 0 : weight * score;  // of -inf too; a NaN is in lse
    }
    return (sums[0] + sums[1]) + (sums[2] + sums[3]);
  }

  // Capped scores of one vector of rows, and their maximum (unspecified when a NaN is among them).
  HWY_NOINLINE void scores_of(const double* products, int64_t columns, int64_t width, int64_t t) {
    const double softcap = task_.operands.scores.softcap;
    V max = hn::Set(d_, -std::numeric_limits<T>::infinity()), derivative = max;  // the latter is not needed here
    for (int64_t j = 0; j < columns; ++j) {
      V score = load_sum(d_, products + j * width, bias_[j]);
      if (softcap > 0) score = cap(d_, score, softcap, derivative);
      max = hn::Max(max, score);
      hn::StoreU(score, d_, scores_ + j * width + t);
    }
    hn::StoreU(max, d_, max_ + t);
  }
  // The maximum of what keep_mask has left of them.
  HWY_NOINLINE void largest_of(int64_t columns, int64_t width, int64_t t) {
    V max = hn::Set(d_, -std::numeric_limits<T>::infinity());
    for (int64_t j = 0; j < columns; ++j) max = hn::Max(max, hn::LoadU(d_, scores_ + j * width + t));
    hn::StoreU(max, d_, max_ + t);
  }

  template <Sums kWanted>
  HWY_NOINLINE void sums_of(int64_t columns, int64_t width, int64_t t) {
    constexpr bool kEntropy = kWanted != Sums::plain, kSquares = kWanted == Sums::weighted_and_squares;
    const V slope = hn::Set(d_, static_cast<T>(task_.operands.scores.slope));
    const V max = hn::LoadU(d_, max_ + t);
    V sum0 = hn::Zero(d_), sum1 = sum0, sum2 = sum0, sum3 = sum0;
    V weighted0 = sum0, weighted1 = sum0, weighted2 = sum0, weighted3 = sum0;
    V squares0 = sum0, squares1 = sum0, squares2 = sum0, squares3 = sum0;
    const auto exponent = [&](int64_t j)
                              HWY_ATTR { return hn::Mul(hn::Sub(hn::LoadU(d_, scores_ + j * width + t), max), slope); };
    // Terms of the weighted sum: 0 * -inf is not wanted, and what counts as 0 in one sum is 0 in both.
    const auto weigh = [&](V power, V y, V& weighted)
                           HWY_ATTR { weighted = hn::MulAdd(power, at_least(d_, Exp2<T>::kLowest, y), weighted); };
    int64_t j = 0;
    for (; j + 4 <= columns; j += 4) {
      const V y0 = exponent(j), y1 = exponent(j + 1), y2 = exponent(j + 2), y3 = exponent(j + 3);
      V p0 = y0, p1 = y1, p2 = y2, p3 = y3;
      exp2_four<!kEntropy>(d_, p0, p1, p2, p3);
      sum0 = hn::Add(sum0, p0), sum1 = hn::Add(sum1, p1), sum2 = hn::Add(sum2, p2), sum3 = hn::Add(sum3, p3);
      if (kEntropy) {
        weigh(p0, y0, weighted0), weigh(p1, y1, weighted1);
        weigh(p2, y2, weighted2), weigh(p3, y3, weighted3);
      }
      if (kSquares) {
        squares0 = hn::MulAdd(p0, p0, squares0), squares1 = hn::MulAdd(p1, p1, squares1);
        squares2 = hn::MulAdd(p2, p2, squares2), squares3 = hn::MulAdd(p3, p3, squares3);
      }
    }
    for (; j < columns; ++j) {
      const V y = exponent(j), p = kEntropy ? exp2(d_, y) : exp2_for_sum(d_, y);
      sum0 = hn::Add(sum0, p);
      if (kEntropy) weigh(p, y, weighted0);
      if (kSquares) squares0 = hn::MulAdd(p, p, squares0);
    }
    hn::StoreU(hn::Add(hn::Add(sum0, sum1), hn::Add(sum2, sum3)), d_, sum_ + t);
    hn::StoreU(hn::Add(hn::Add(weighted0, weighted1), hn::Add(weighted2, weighted3)), d_, weighted_ + t);
    hn::StoreU(hn::Add(hn::Add(squares0, squares1), hn::Add(squares2, squares3)), d_, squares_ + t);
  }

  // One row whose maximum is not a number: all -inf, or a NaN or +inf among them.
  static BlockSums without_maximum(const T* scores, int64_t columns, int64_t width) {
    constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
    for (int64_t j = 0; j < columns; ++j) {
      if (scores[j * width] != -std::numeric_limits<T>::infinity()) return {0, kNan, kNan, kNan};
    }
    return {kAllMasked, 0, 0, 0};
  }

  const LinearLogpTask& task_;
  const Tiles<T> tiles_;
  const D d_{};
  RowSums* rows_;        // [row]
  LongSum* score_sums_;  // [row]
  double* products_;     // [tile][column][row]
  T* weights_;           // a block of weights
  T* scores_;            // [column][row] of the tile at hand
  T *max_, *sum_, *weighted_, *squares_;
  double bias_[kLinearBlock], column_weights_[kLinearBlock];
};

template <typename T>
HWY_NOINLINE bool run_task(const LinearLogpTask& task) {
  Task<T> run(task);
  void* const scratch = thread_scratch(run.lay_out(Carve(nullptr)));
  if (scratch == nullptr) return false;
  run.lay_out(Carve(scratch));
  run.run();
  return true;
}

bool linear_task_for(const LinearLogpTask& task) {
  return task.operands.scores.in_f64 ? run_task<double>(task) : run_task<float>(task);
}

int64_t linear_tile_rows_for(bool in_f64) {
  return in_f64 ? tile_rows_of<double>() : tile_rows_of<float>();
}

template <typename T>
HWY_NOINLINE void pack_tile(const LinearOperands& operands, const LinearBatch& batch, int64_t index) {
  const Tiles<T> tiles{operands, batch, index, index + 1};
  const int64_t first = tiles.begin(index), rows = tiles.end(index) - first;
#if HWY_TARGET == HWY_AVX3
  if (by_amx<T>(operands)) {
    for (int64_t g = 0; g < amx_groups(tiles, index); ++g) {
      const int64_t row = g * kAmxRows;
      pack_group(operands, batch.rows + first + row, std::min(kAmxRows, rows - row), amx_room(batch),
                 amx_group(tiles, index, g));
    }
    return;
  }
#endif
  const int64_t width = has_few_rows<T>(batch) ? few_rows(batch.count) : tiles.width(index);
  pack_rows(operands, batch.rows + first, rows, width, const_cast<T*>(tiles.packed(index)));
}

template <typename T>
HWY_NOINLINE void pack_part(const LinearOperands& operands, const LinearBatch& batch, int64_t part, int64_t parts) {
  const int64_t all = (batch.count + tile_rows_of<T>() - 1) / tile_rows_of<T>();
#if HWY_TARGET == HWY_AVX3
  const Tiles<T> tiles{operands, batch, 0, all};
  if (by_amx<T>(operands) && batch.count >= kAmxRows && operands.hidden.strides[0] == 1 &&
      are_neighbours(batch.rows, batch.count)) {
    constexpr int64_t kGroups = kMaxVecs;  // of a tile
    const int64_t steps = round_up(operands.depth, kAmxDepth) / kAmxDepth;
    pack_slice(operands, batch.rows, batch.count, steps * part / parts * kAmxDepth,
               steps * (part + 1) / parts * kAmxDepth,
               [&](int64_t g) { return amx_group(tiles, g / kGroups, g % kGroups); });
    return;
  }
#endif
  for (int64_t tile = part; tile < all; tile += parts) pack_tile<T>(operands, batch, tile);
}

void linear_pack_part_for(const LinearOperands& operands, const LinearBatch& batch, int64_t part, int64_t parts) {
  return operands.scores.in_f64 ? pack_part<double>(operands, batch, part, parts)
                                : pack_part<float>(operands, batch, part, parts);
}
void linear_pack_for(const LinearOperands& operands, const LinearBatch& batch, int64_t index) {
  return operands.scores.in_f64 ? pack_tile<double>(operands, batch, index) : pack_tile<float>(operands, batch, index);
}

}  // namespace rlk::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rlk::cpu {

HWY_EXPORT(linear_task_for);
HWY_EXPORT(linear_tile_rows_for);
HWY_EXPORT(linear_pack_for);
HWY_EXPORT(linear_pack_part_for);

bool linear_logp_task(const LinearLogpTask& task) {
  return HWY_DYNAMIC_DISPATCH(linear_task_for)(task);
}
int64_t linear_tile_rows(bool in_f64) {
  return HWY_DYNAMIC_DISPATCH(linear_tile_rows_for)(in_f64);
}
int64_t linear_packed_elements(int64_t count, int64_t depth, bool in_f64) {
  return round_up(count, linear_tile_rows(in_f64)) * depth;
}
void linear_pack_part(const LinearOperands& operands, const LinearBatch& batch, int64_t part, int64_t parts) {
  return HWY_DYNAMIC_DISPATCH(linear_pack_part_for)(operands, batch, part, parts);
}
void linear_pack_tile(const LinearOperands& operands, const LinearBatch& batch, int64_t index) {
  return HWY_DYNAMIC_DISPATCH(linear_pack_for)(operands, batch, index);
}

}  // namespace rlk::cpu
#endif  // HWY_ONCE
