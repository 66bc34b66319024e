// The three products of linear_logp_backward and its kin, for every instruction set: the scores anew, their gradients
// times the weights, and times the hidden states. Sums over the vocabulary run in chains of rows in lanes, so that a
// row's bits do not depend on the other rows; sums over rows run in the order of the batch.
#include "core/cpu/linear/linear_gradient.hpp"

#include <algorithm>
#include <cmath>

#include "core/cpu/simd/scratch.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/cpu/linear/linear_gradient.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "core/cpu/linear/linear_product-inl.hpp"
#include "core/cpu/simd/lines-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace rlk::cpu::HWY_NAMESPACE {

// A chunk's arrays by tile.
template <typename T>
struct ChunkTiles : Tiles<T> {
  explicit ChunkTiles(const LinearChunk& c, int64_t first_tile = 0, int64_t last_tile = 0)
      : Tiles<T>{c.operands, c.batch, first_tile, last_tile}, chunk(c) {}

  const LinearChunk& chunk;
  int64_t all() const { return (chunk.batch.count + tile_rows_of<T>() - 1) / tile_rows_of<T>(); }
  T* dx(int64_t tile, int64_t column) const {
    return static_cast<T*>(chunk.dx) + this->begin(tile) * chunk.room + (column - chunk.begin) * this->width(tile);
  }
  double* grad_hidden(int64_t tile, int64_t depth) const {
    return chunk.grad_hidden + this->begin(tile) * round_up(chunk.operands.depth, kBroadcasts) +
           depth * this->width(tile);
  }
  int64_t columns_of_block(int64_t column) const { return std::min(kLinearBlock, chunk.end - column); }
};

// dx of one element in fp64.
double gradient_of(const Scores& scores, double x, const RowGradient& g, int64_t column) {
  if (x == -std::numeric_limits<double>::infinity()) return 0;
  const double t = scores.softcap > 0 ? std::tanh(x / scores.softcap) : 0;
  const double capped = scores.softcap > 0 ? scores.softcap * t : x;
  const double log_p = std::min(log_probability(scores, capped, g.lse), 1.0 / 64);  // as below
  const double rest = g.grad_lse - (g.grad_entropy != 0 ? g.grad_entropy * (log_p + g.entropy) : 0);
  const double p = std::exp(log_p);
  const double of_logp = -g.grad_logp * (column == g.target ? std::expm1(log_p) : p);
  const double dz = rest * p + of_logp + g.grad_score(column);
  return dz * (1 - t * t) / scores.temperature;
}

// Whether keep_mask keeps something of a block of columns of row n.
bool keeps_any(const Array& keep_mask, int64_t n, int64_t column, int64_t columns) {
  bool any = false;
  for (int64_t j = 0; j < columns && !any; ++j) any = keep_mask.keeps(n, column + j);
  return any;
}

// One tile and one block of columns: from products to dx.
template <typename T>
class BlockGradient {
  using D = hn::ScalableTag<T>;
  using V = hn::VFromD<D>;

public:
  static constexpr int64_t kRoom = 6;
  // room: kRoom * tile_rows
  BlockGradient(const ChunkTiles<T>& tiles, const LogpRows& rows, int64_t tile, T* room)
      : tiles_(tiles),
        rows_(rows),
        scores_(tiles.chunk.operands.scores),
        tile_(tile),
        width_(tiles.width(tile)),
        base_(room) {
    base_low_ = base_ + width_;
    weight_ = base_low_ + width_;
    weight_log_ = weight_ + width_;
    of_score_ = weight_log_ + width_;
    seen_ = of_score_ + width_;
    std::fill(room, room + kRoom * width_, T{0});
    for (int64_t t = 0; t < tiles.end(tile) - tiles.begin(tile); ++t) {
      const RowGradient& g = row(t);
      const Base<T> base(scores_, g.lse);
      base_[t] = base.high;
      base_low_[t] = base.low_power;
      weight_[t] = static_cast<T>((g.grad_lse - g.grad_logp - g.grad_entropy * g.entropy) * scores_.slope * kLn2);
      weight_log_[t] = static_cast<T>(-g.grad_entropy * kLn2 * scores_.slope * kLn2);
      of_score_[t] = static_cast<T>(g.grad_scores * scores_.slope * kLn2);
      has_score_gradient_ |= g.grad_scores != 0;
    }
  }

  // With keep_mask the products get their bias here: what it drops becomes -inf, also beside a NaN.
  void run(int64_t column, double* products, const double* bias) {
    const int64_t columns = tiles_.columns_of_block(column);
    const int64_t first = tiles_.begin(tile_), rows = tiles_.end(tile_) - first;
    const int64_t* const n = tiles_.chunk.batch.rows + first;
    const Array& keep_mask = tiles_.chunk.operands.keep_mask;
    constexpr double kNoBias[kLinearBlock] = {};
    if (keep_mask.present()) {
      for (int64_t j = 0; j < columns; ++j) {
        for (int64_t t = 0; t < width_; ++t) products[j * width_ + t] += bias[j];
      }
      drop_scores(keep_mask, n, rows, column, columns, width_, products);
      bias = static_cast<const double*>(kNoBias);
    }
    T* const dx = tiles_.dx(tile_, column);
    if (has_score_gradient_) load_weights(column, columns);
    for (int64_t t = 0; t < width_; t += lanes_of<T>()) {
      if (scores_.softcap > 0) {
        gradients_of<true>(products + t, bias, columns, t, dx + t);
      } else {
        gradients_of<false>(products + t, bias, columns, t, dx + t);
      }
    }
    std::fill(dx + columns * width_, dx + round_up(columns, kBroadcasts) * width_, T{0});
    for (int64_t t = 0; t < rows; ++t) {
      const auto put_in_f64 = [&](int64_t j) {
        const double x = products[j * width_ + t] + bias[j];
        dx[j * width_ + t] = static_cast<T>(gradient_of(scores_, x, row(t), column + j));
      };
      const int64_t target = row(t).target - column;
      if (sizeof(T) < 8 && !row(t).fits_f32(scores_.slope)) {
        for (int64_t j = 0; j < columns; ++j) put_in_f64(j);
      } else if (target >= 0 && target < columns) {
        put_in_f64(target);
      }
      if (keep_mask.present() && scores_.softcap > 0 && !keeps_any(keep_mask, n[t], column, columns)) continue;
      std::atomic_ref<uint8_t> seen(rows_.seen[first + t]);
      if (seen_[t] > 0 && seen.load(std::memory_order_relaxed) == 0) seen.store(1, std::memory_order_relaxed);
    }
  }

private:
  const RowGradient& row(int64_t t) const { return rows_.gradients[tiles_.begin(tile_) + t]; }

  // Of the scores' own sum.
  void load_weights(int64_t column, int64_t columns) {
    const Array* const weights = row(0).weights;
    for (int64_t j = 0; j < columns; ++j) {
      column_weights_[j] = weights != nullptr ? static_cast<T>(weights->get(column + j)) : T{1};
    }
  }

  template <bool kCap>
  void gradients_of(const double* products, const double* bias, int64_t columns, int64_t t, T* dx) {
    return has_score_gradient_ ? gradients<kCap, true>(products, bias, columns, t, dx)
                               : gradients<kCap, false>(products, bias, columns, t, dx);
  }
  template <bool kCap, bool kScores>
  HWY_NOINLINE void gradients(const double* products, const double* bias, int64_t columns, int64_t t, T* dx) {
    const V slope = hn::Set(d_, static_cast<T>(scores_.slope));
    const V base = hn::LoadU(d_, base_ + t), base_low = hn::LoadU(d_, base_low_ + t);
    const V weight = hn::LoadU(d_, weight_ + t), weight_log = hn::LoadU(d_, weight_log_ + t);
    const V of_score = hn::LoadU(d_, of_score_ + t);
    const V minus_inf = hn::Set(d_, -std::numeric_limits<T>::infinity()), one = hn::Set(d_, T{1});
    V any = hn::Zero(d_);
    for (int64_t j = 0; j < columns; ++j) {
      const V x = load_sum(d_, products + j * width_, bias[j]);
      const auto masked = hn::Eq(x, minus_inf);
      V derivative = one;
      const V capped = kCap ? cap(d_, x, scores_.softcap, derivative) : x;
      // log2 p, at most what rounds to little above 1 where lse has no digits behind the point.
      const V y = at_most(d_, T{1} / 64, hn::MulSub(hn::Sub(capped, base), slope, base_low));
      const V weight_of = hn::MulAdd(at_least(d_, T{-2000}, y), weight_log, weight);  // 0 * -inf is not wanted
      V gradient = hn::Mul(exp2(d_, y), weight_of);
      if (kScores) gradient = hn::MulAdd(of_score, hn::Set(d_, column_weights_[j]), gradient);
      if (kCap) gradient = hn::Mul(gradient, derivative);
      hn::StoreU(hn::IfThenZeroElse(masked, gradient), d_, dx + j * width_);
      any = kCap ? one : hn::Max(any, hn::IfThenZeroElse(masked, one));  // a capped score is finite
    }
    hn::StoreU(any, d_, seen_ + t);
  }

  const ChunkTiles<T>& tiles_;
  const LogpRows& rows_;
  const Scores& scores_;
  const int64_t tile_, width_;
  const D d_{};
  T *base_, *base_low_;      // [row] as struct Base
  T *weight_, *weight_log_;  // [row] in base 2, with everything that a row's elements share
  T* of_score_;              // [row], times the weight of a column
  T* seen_;                  // [row]
  bool has_score_gradient_ = false;
  T column_weights_[kLinearBlock];
};

template <typename T>
HWY_NOINLINE bool scores_task(const LinearChunk& chunk, const LogpRows& rows, int64_t first_tile, int64_t last_tile,
                              int64_t column) {
  const ChunkTiles<T> tiles(chunk, first_tile, last_tile);
  const int64_t per_tile = kLinearBlock * tile_rows_of<T>();
  const auto lay_out = [&](Carve carve, double** products, T** weights, T** room) {
    *products = carve.take<double>((last_tile - first_tile) * per_tile);
    *weights = carve.take<T>(kPackedWeights<T>);
    *room = carve.take<T>(BlockGradient<T>::kRoom * tile_rows_of<T>());
    return static_cast<size_t>(carve.bytes());
  };
  double *products = nullptr, bias[kLinearBlock];
  T *weights = nullptr, *room = nullptr;
  void* scratch = thread_scratch(lay_out(Carve(nullptr), &products, &weights, &room));
  if (scratch == nullptr) return false;
  lay_out(Carve(scratch), &products, &weights, &room);
  const int64_t columns = tiles.columns_of_block(column);
  block_products(tiles, column, columns, weights, products);
  load_bias(chunk.operands, column, columns, bias);
  for (int64_t tile = first_tile; tile < last_tile; ++tile) {
    BlockGradient<T>(tiles, rows, tile, room).run(column, products + (tile - first_tile) * per_tile, bias);
  }
  return true;
}

template <typename T>
HWY_NOINLINE void put_row(const LinearChunk& chunk, int64_t row, int64_t column, const double* values) {
  const ChunkTiles<T> tiles(chunk);
  const int64_t tile = row / tile_rows_of<T>(), width = tiles.width(tile), columns = tiles.columns_of_block(column);
  T* const dx = tiles.dx(tile, column) + (row - tiles.begin(tile));
  for (int64_t j = 0; j < columns; ++j) dx[j * width] = static_cast<T>(values[j]);
  for (int64_t j = columns; j < round_up(columns, kBroadcasts); ++j) dx[j * width] = 0;
}

template <typename T>
HWY_NOINLINE bool hidden_task(const LinearChunk& chunk, int64_t first_tile, int64_t last_tile, int64_t depth) {
  const ChunkTiles<T> tiles(chunk, first_tile, last_tile);
  auto* const weights = static_cast<T*>(thread_scratch(kPackedWeights<T> * sizeof(T)));
  if (weights == nullptr) return false;
  const int64_t depths = std::min(kLinearDepth, chunk.operands.depth - depth);
  for (int64_t column = chunk.begin; column < chunk.end; column += kLinearBlock) {
    const int64_t columns = tiles.columns_of_block(column);
    pack_weights(chunk.operands, column, columns, depth, depths, weights);
    for (int64_t tile = first_tile; tile < last_tile; ++tile) {
      add_product(static_cast<const T*>(weights), depths, 1, kLinearDepth,
                  static_cast<const T*>(tiles.dx(tile, column)), tiles.width(tile), columns,
                  tiles.grad_hidden(tile, depth));
    }
  }
  return true;
}

template <typename T>
HWY_NOINLINE bool weight_task(const LinearChunk& chunk, int64_t column, int64_t depth, const Array& grad,
                              bool is_first) {
  const ChunkTiles<T> tiles(chunk);
  const LinearOperands& operands = chunk.operands;
  const int64_t most = tile_rows_of<T>();
  const int64_t columns = std::min(kGradientColumns, chunk.end - column);
  const int64_t depths = std::min(most, operands.depth - depth), width = round_up(depths, lanes_of<T>());
  const size_t n_sums = static_cast<size_t>(kGradientColumns * most);
  void* const scratch = thread_scratch(n_sums * sizeof(double) + static_cast<size_t>(most * most) * sizeof(T));
  if (scratch == nullptr) return false;
  auto* const sums = static_cast<double*>(scratch);
  T* const hidden = reinterpret_cast<T*>(sums + n_sums);
  std::fill(sums, sums + n_sums, 0.0);
  for (int64_t tile = 0; tile < tiles.all(); ++tile) {
    const int64_t rows = tiles.end(tile) - tiles.begin(tile);
    for (int64_t row = 0; row < rows; ++row) {
      const Array& from = operands.hidden;
      const int64_t first = chunk.batch.rows[tiles.begin(tile) + row] * from.strides[0] + depth * from.strides[1];
      T* const to = hidden + row * width;
      widen(element(from.data, first, from.dtype), from.dtype, from.strides[1], depths, to);
      std::fill(to + depths, to + width, T{0});
    }
    add_product(static_cast<const T*>(tiles.dx(tile, column)), columns, tiles.width(tile), 1,
                static_cast<const T*>(hidden), width, rows, sums);
  }
  double before[kMaxVecs * hn::MaxLanes(hn::ScalableTag<T>())];
  for (int64_t j = 0; j < columns; ++j) {
    double* const row = sums + j * width;
    const int64_t first = (column + j) * grad.strides[0] + depth * grad.strides[1];
    const Line line{element(grad.data, first, grad.dtype), grad.dtype, grad.strides[1]};
    if (!is_first) {
      read_line(line, depths, static_cast<double*>(before));
      for (int64_t i = 0; i < depths; ++i) row[i] += before[i];
    }
    write_line(static_cast<const double*>(row), depths, line);
  }
  return true;
}

template <typename T>
HWY_NOINLINE void bias_task(const LinearChunk& chunk, int64_t column, double* sums) {
  const ChunkTiles<T> tiles(chunk);
  for (int64_t tile = 0; tile < tiles.all(); ++tile) {
    const T* dx = tiles.dx(tile, column);
    for (int64_t j = 0; j < tiles.columns_of_block(column); ++j) {
      for (int64_t t = 0; t < tiles.end(tile) - tiles.begin(tile); ++t) {
        sums[column + j] += static_cast<double>(dx[j * tiles.width(tile) + t]);
      }
    }
  }
}

template <typename T>
HWY_NOINLINE void store_row(const LinearChunk& chunk, int64_t row, const Array& grad) {
  const ChunkTiles<T> tiles(chunk);
  const int64_t tile = row / tile_rows_of<T>();
  for (int64_t d = 0; d < chunk.operands.depth; ++d) {
    grad.put(chunk.batch.rows[row], d, tiles.grad_hidden(tile, d)[row - tiles.begin(tile)]);
  }
}

bool gradient_scores_for(const LinearChunk& c, const LogpRows& rows, int64_t first_tile, int64_t last_tile,
                         int64_t column) {
  return c.operands.scores.in_f64 ? scores_task<double>(c, rows, first_tile, last_tile, column)
                                  : scores_task<float>(c, rows, first_tile, last_tile, column);
}
void gradient_put_for(const LinearChunk& c, int64_t row, int64_t column, const double* values) {
  return c.operands.scores.in_f64 ? put_row<double>(c, row, column, values) : put_row<float>(c, row, column, values);
}
bool gradient_hidden_for(const LinearChunk& c, int64_t first_tile, int64_t last_tile, int64_t depth) {
  return c.operands.scores.in_f64 ? hidden_task<double>(c, first_tile, last_tile, depth)
                                  : hidden_task<float>(c, first_tile, last_tile, depth);
}
bool gradient_weight_for(const LinearChunk& c, int64_t column, int64_t depth, const Array& grad, bool is_first) {
  return c.operands.scores.in_f64 ? weight_task<double>(c, column, depth, grad, is_first)
                                  : weight_task<float>(c, column, depth, grad, is_first);
}
void gradient_bias_for(const LinearChunk& c, int64_t column, double* sums) {
  return c.operands.scores.in_f64 ? bias_task<double>(c, column, sums) : bias_task<float>(c, column, sums);
}
void gradient_store_for(const LinearChunk& c, int64_t row, const Array& grad) {
  return c.operands.scores.in_f64 ? store_row<double>(c, row, grad) : store_row<float>(c, row, grad);
}
// The rows of grad_hidden's sums are rounded up to what a product writes.
int64_t padded_depth(int64_t depth) {
  return round_up(depth, kBroadcasts);
}

}  // namespace rlk::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rlk::cpu {

HWY_EXPORT(gradient_scores_for);
HWY_EXPORT(gradient_put_for);
HWY_EXPORT(gradient_hidden_for);
HWY_EXPORT(gradient_weight_for);
HWY_EXPORT(gradient_bias_for);
HWY_EXPORT(gradient_store_for);
HWY_EXPORT(padded_depth);

int64_t linear_chunk_elements(int64_t count, int64_t room, bool in_f64) {
  return round_up(count, linear_tile_rows(in_f64)) * room;
}
int64_t linear_sums_elements(int64_t count, int64_t depth, bool in_f64) {
  return round_up(count, linear_tile_rows(in_f64)) * HWY_DYNAMIC_DISPATCH(padded_depth)(depth);
}
bool linear_gradient_scores(const LinearChunk& chunk, const LogpRows& rows, int64_t first_tile, int64_t last_tile,
                            int64_t column) {
  return HWY_DYNAMIC_DISPATCH(gradient_scores_for)(chunk, rows, first_tile, last_tile, column);
}
void linear_gradient_put(const LinearChunk& chunk, int64_t row, int64_t column, const double* values) {
  return HWY_DYNAMIC_DISPATCH(gradient_put_for)(chunk, row, column, values);
}
bool linear_gradient_hidden(const LinearChunk& chunk, int64_t first_tile, int64_t last_tile, int64_t depth) {
  return HWY_DYNAMIC_DISPATCH(gradient_hidden_for)(chunk, first_tile, last_tile, depth);
}
bool linear_gradient_weight(const LinearChunk& chunk, int64_t column, int64_t depth, const Array& grad, bool is_first) {
  return HWY_DYNAMIC_DISPATCH(gradient_weight_for)(chunk, column, depth, grad, is_first);
}
void linear_gradient_bias(const LinearChunk& chunk, int64_t column, double* sums) {
  return HWY_DYNAMIC_DISPATCH(gradient_bias_for)(chunk, column, sums);
}
void linear_gradient_store(const LinearChunk& chunk, int64_t row, const Array& grad) {
  return HWY_DYNAMIC_DISPATCH(gradient_store_for)(chunk, row, grad);
}

}  // namespace rlk::cpu
#endif  // HWY_ONCE
