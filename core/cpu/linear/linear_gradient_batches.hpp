// The gradients of hidden, weight and bias of losses whose scores are products: which batches, chunks and tasks there
// are, and in which order. No SIMD here.
//
// Cost model: three products of 2 N V D floating-point operations each (scores, grad_hidden, grad_weight; two without
// grad_weight). The gradients of the scores exist for one batch of rows and one chunk of the vocabulary at a time, some
// MiB; the sums of grad_hidden of a batch are kept in fp64. No atomics and no partial sums: every element has one owner
// per chunk and one order of summation, whatever the number of threads. A row of grad_hidden depends on that row alone.
#pragma once

#include <algorithm>
#include <limits>

#include "core/cpu/linear/linear_gradient.hpp"
#include "core/cpu/logp/logp_rows.hpp"
#include "core/cpu/simd/operator.hpp"
#include "core/cpu/simd/scratch.hpp"

namespace rlk::cpu {

// Gradients of scores that are held at a time, roughly. Bits do not depend on it.
constexpr int64_t kChunkElements = int64_t{1} << 20;

constexpr int64_t kMostColumns = 2048;  // of a chunk, when rows are few

inline int64_t chunk_columns(int64_t batch, int64_t vocab) {
  const int64_t wanted = std::clamp<int64_t>(kChunkElements / std::max<int64_t>(batch, 1), 512, kMostColumns);
  return round_up(std::min(wanted, vocab), kLinearBlock);
}

// What a row is before its scores are computed.
enum class RowState : uint8_t { ignored, wrong, active };

struct GradientSpace {
  template <class Call>
  GradientSpace(Carve& carve, const Call& call, bool in_f64) {
    const int64_t batch = std::min(call.N, kLinearBatch), bytes = linear_compute_bytes(in_f64);
    room = chunk_columns(batch, call.V);
    active = carve.take<int64_t>(call.N);
    packed = carve.take_bytes(linear_packed_elements(batch, call.D, in_f64) * bytes);
    dx = carve.take_bytes(linear_chunk_elements(batch, room, in_f64) * bytes);
    grad_hidden = carve.take<double>(linear_sums_elements(batch, call.D, in_f64));
    grad_bias = carve.take<double>(call.grad_bias.given() ? call.V : 0);
  }
  int64_t room;     // columns of a chunk
  int64_t* active;  // rows that have a gradient
  void* packed;
  void* dx;
  double* grad_hidden;
  double* grad_bias;  // [V], with grad_bias
};

// Rows says what is particular to a loss:
//   Rows(Carve& carve, const Call& call)   its part of the workspace
//   RowState state(int64_t n) const
//   void begin(const LinearBatch& batch, const ParallelFor& hook)
//   bool gradients(const LinearChunk& chunk, int64_t first_tile, int64_t last_tile, int64_t column)
//                                          as linear_gradient_scores
//   bool has_scores(int64_t row) const     of the batch, when all chunks are done: else the row is in error
template <class Call, class Rows>
class LinearGradients {
public:
  LinearGradients(const Call& call, const Context& context, FirstBadRow& bad)
      : LinearGradients(call, context.parallel, bad, Carve(context.workspace)) {}
  static int64_t workspace_bytes(const Call& call) {
    Carve carve(nullptr);
    Rows(carve, call);
    GradientSpace(carve, call, operands_of(call).scores.in_f64);
    return carve.bytes();
  }

  // False when there was no memory.
  bool run() {
    const int64_t active = settle();
    if (call_.grad_bias.present()) std::fill(space_.grad_bias, space_.grad_bias + operands_.vocab, 0.0);
    for (int64_t begin = 0; begin < active; begin += kLinearBatch) {
      batch(begin, std::min(kLinearBatch, active - begin));
    }
    if (bad_.any() || active == 0) fill_weight(bad_.any() ? kNan : 0.0);
    for (int64_t v = 0; v < operands_.vocab && call_.grad_bias.present(); ++v) {
      call_.grad_bias.put(v, bad_.any() ? kNan : space_.grad_bias[v]);
    }
    return had_memory_.load();
  }

private:
  static constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

  LinearGradients(const Call& call, const ParallelFor& hook, FirstBadRow& bad, Carve carve)
      : call_(call),
        operands_(operands_of(call)),
        hook_(hook),
        bad_(bad),
        in_f64_(operands_.scores.in_f64),
        rows_(carve, call),
        space_(carve, call, in_f64_) {}

  // Writes rows that have no gradient, and lists the others.
  int64_t settle() const {
    int64_t active = 0;
    for (int64_t n = 0; n < call_.N; ++n) {
      const RowState state = rows_.state(n);
      if (state == RowState::ignored) fill_hidden(n, 0);
      if (state == RowState::wrong) {
        bad_.report(n);
        fill_hidden(n, kNan);
      }
      if (state == RowState::active) space_.active[active++] = n;
    }
    return active;
  }

  void batch(int64_t begin, int64_t count) {
    const LinearBatch batch{space_.active + begin, count, space_.packed};
    const int64_t tile_rows = linear_tile_rows(in_f64_);
    const int64_t tiles = (count + tile_rows - 1) / tile_rows;
    each(tiles, [&](int64_t tile) { return linear_pack_tile(operands_, batch, tile), true; });
    rows_.begin(batch, hook_);
    std::fill(space_.grad_hidden, space_.grad_hidden + linear_sums_elements(count, call_.D, in_f64_), 0.0);

    LinearChunk chunk{operands_, batch, 0, 0, space_.room, space_.dx, space_.grad_hidden};
    for (; chunk.begin < operands_.vocab; chunk.begin = chunk.end) {
      chunk.end = std::min(chunk.begin + space_.room, operands_.vocab);
      add_chunk(chunk, tiles, begin == 0);
    }
    each(count, [&](int64_t row) {
      if (rows_.has_scores(row)) {
        linear_gradient_store(chunk, row, call_.grad_hidden);
      } else {
        bad_.report(batch.rows[row]);
        fill_hidden(batch.rows[row], kNan);
      }
      return true;
    });
  }

  void add_chunk(const LinearChunk& chunk, int64_t tiles, bool is_first) {
    const auto pieces = [](int64_t total, int64_t size) { return (total + size - 1) / size; };
    const int64_t columns = chunk.end - chunk.begin, blocks = pieces(columns, kLinearBlock);
    const int64_t groups = pieces(tiles, kLinearTilesPerTask);
    const auto each_group = [&](int64_t count, auto&& function) {
      each(count * groups, [&](int64_t index) {
        const int64_t tile = index % groups * kLinearTilesPerTask;
        return function(tile, std::min(tile + kLinearTilesPerTask, tiles), index / groups);
      });
    };
    each_group(blocks, [&](int64_t first, int64_t last, int64_t block) {
      return rows_.gradients(chunk, first, last, chunk.begin + block * kLinearBlock);
    });
    each_group(pieces(call_.D, kLinearDepth), [&](int64_t first, int64_t last, int64_t piece) {
      return linear_gradient_hidden(chunk, first, last, piece * kLinearDepth);
    });
    if (bad_.any()) return;  // the other gradients are NaN
    if (call_.grad_weight.present()) {
      const int64_t panel = linear_tile_rows(in_f64_), panels = pieces(call_.D, panel);
      each(pieces(columns, kGradientColumns) * panels, [&](int64_t index) {
        const int64_t column = chunk.begin + index / panels * kGradientColumns;
        return linear_gradient_weight(chunk, column, index % panels * panel, call_.grad_weight, is_first);
      });
    }
    if (call_.grad_bias.present()) {
      each(blocks, [&](int64_t block) {
        return linear_gradient_bias(chunk, chunk.begin + block * kLinearBlock, space_.grad_bias), true;
      });
    }
  }

  // Calls function(index), which says whether it had memory, for every index.
  template <typename Function>
  void each(int64_t count, Function&& function) {
    parallel_for(hook_, count, 1, [&](int64_t first, int64_t last) {
      for (int64_t index = first; index < last; ++index) {
        if (!function(index)) had_memory_.store(false, std::memory_order_relaxed);
      }
    });
  }

  void fill_hidden(int64_t n, double value) const {
    for (int64_t d = 0; d < call_.D; ++d) call_.grad_hidden.put(n, d, value);
  }
  void fill_weight(double value) const {
    for (int64_t v = 0; v < call_.V && call_.grad_weight.present(); ++v) {
      for (int64_t d = 0; d < call_.D; ++d) call_.grad_weight.put(v, d, value);
    }
  }

  const Call& call_;
  const LinearOperands operands_;
  const ParallelFor& hook_;
  FirstBadRow& bad_;
  const bool in_f64_;
  Rows rows_;
  const GradientSpace space_;
  std::atomic<bool> had_memory_{true};
};

// Rows of losses that are functions of log-probabilities and sums of scores. Gradients says a row's:
// Gradients(call)(n).
template <class Call, class Gradients>
class LogpGradientRows {
public:
  LogpGradientRows(Carve& carve, const Call& call) : call_(call) {
    const int64_t batch = std::min(call.N, kLinearBatch);
    gradients_ = carve.take<RowGradient>(batch);
    seen_ = carve.take<uint8_t>(batch);
  }
  RowState state(int64_t n) const {
    if (is_ignored(call_, n)) return RowState::ignored;
    return row_error(call_, n).kind == kNoDataError ? RowState::active : RowState::wrong;
  }
  void begin(const LinearBatch& batch, const ParallelFor& /*hook*/) {
    const Gradients gradient(call_);
    for (int64_t row = 0; row < batch.count; ++row) gradients_[row] = gradient(batch.rows[row]);
    std::fill(seen_, seen_ + batch.count, uint8_t{0});
  }
  bool gradients(const LinearChunk& chunk, int64_t first_tile, int64_t last_tile, int64_t column) const {
    return linear_gradient_scores(chunk, {gradients_, seen_}, first_tile, last_tile, column);
  }
  bool has_scores(int64_t row) const { return seen_[row] != 0 || !has_whole_vocabulary(call_); }

private:
  const Call& call_;
  RowGradient* gradients_;  // [batch]
  uint8_t* seen_;           // [batch]
};

// The grad_hidden of a row in error is NaN, and grad_weight and grad_bias as a whole.
template <class Call, class Gradients>
DataError logp_gradients(const Call& call, const Context& context) {
  FirstBadRow bad;
  if (!LinearGradients<Call, LogpGradientRows<Call, Gradients>>(call, context, bad).run()) throw_no_scratch();
  return first_error(call, bad);
}
template <class Call, class Gradients>
int64_t logp_gradients_workspace_bytes(const Call& call) {
  return LinearGradients<Call, LogpGradientRows<Call, Gradients>>::workspace_bytes(call);
}

template <class Call>
double linear_gradient_operations(const Call& call) {
  const double products = static_cast<double>(call.N) * static_cast<double>(call.V) * static_cast<double>(call.D);
  return (call.grad_weight.given() ? 6 : 4) * products;
}

}  // namespace rlk::cpu
