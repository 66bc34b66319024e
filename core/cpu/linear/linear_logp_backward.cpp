// Which batches, chunks and tasks there are in the backward of linear_logp, and in which order. No SIMD here.
#include "core/cpu/linear/linear_logp_backward.hpp"

#include <algorithm>
#include <cmath>

namespace rlk::cpu {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// Gradients of scores that are held at a time, roughly. Bits do not depend on it.
constexpr int64_t kChunkElements = int64_t{1} << 20;

int64_t chunk_columns(int64_t batch, int64_t vocab) {
  const int64_t wanted = std::clamp<int64_t>(kChunkElements / std::max<int64_t>(batch, 1), 512, 2048);
  return round_up(std::min(wanted, vocab), kLinearBlock);
}

struct Workspace {
  int64_t* active;    // rows that have a gradient
  RowGradient* rows;  // [batch]
  uint8_t* seen;      // [batch]
  void* packed;
  void* dx;
  double* grad_hidden;
  double* grad_bias;  // [V], with grad_bias
  int64_t room;       // columns of a chunk
  int64_t bytes;
};
Workspace carve(void* memory, int64_t n, int64_t vocab, int64_t depth, bool in_f64, bool has_grad_bias) {
  const int64_t batch = std::min(n, kLinearBatch);
  Carve carve(memory);
  Workspace workspace{};
  workspace.room = chunk_columns(batch, vocab);
  workspace.active = carve.take<int64_t>(n);
  workspace.rows = carve.take<RowGradient>(batch);
  workspace.seen = carve.take<uint8_t>(batch);
  const int64_t bytes = linear_compute_bytes(in_f64);
  workspace.packed = carve.take_bytes(linear_packed_elements(batch, depth, in_f64) * bytes);
  workspace.dx = carve.take_bytes(linear_chunk_elements(batch, workspace.room, in_f64) * bytes);
  workspace.grad_hidden = carve.take<double>(linear_sums_elements(batch, depth, in_f64));
  workspace.grad_bias = carve.take<double>(has_grad_bias ? vocab : 0);
  workspace.bytes = carve.bytes();
  return workspace;
}

class Kernel {
public:
  Kernel(const LinearLogpBackwardArgs& args, const ParallelFor& hook, FirstBadRow& bad)
      : args_(args),
        operands_{args.dtype,  args.hidden,
                  args.weight, args.rows.vocab,
                  args.depth,  make_scores(args.dtype, args.temperature, args.softcap, 1, args.bias, args.bias_stride)},
        hook_(hook),
        bad_(bad),
        in_f64_(operands_.scores.in_f64),
        workspace_(
            carve(args.workspace, args.rows.n, args.rows.vocab, args.depth, in_f64_, args.grad_bias != nullptr)) {}

  bool run() {
    const int64_t active = settle();
    if (args_.grad_bias != nullptr) std::fill(workspace_.grad_bias, workspace_.grad_bias + operands_.vocab, 0.0);
    for (int64_t begin = 0; begin < active; begin += kLinearBatch) {
      batch(begin, std::min(kLinearBatch, active - begin));
    }
    if (bad_.any() || active == 0) fill_weight(bad_.any() ? kNan : 0.0);
    for (int64_t v = 0; v < operands_.vocab && args_.grad_bias != nullptr; ++v) {
      store_element(args_.grad_bias, accumulator(args_.dtype), v * args_.grad_bias_stride,
                    bad_.any() ? kNan : workspace_.grad_bias[v]);
    }
    return had_memory_.load();
  }

private:
  // Writes rows that have no gradient, and lists the others.
  int64_t settle() const {
    int64_t active = 0;
    for (int64_t n = 0; n < args_.rows.n; ++n) {
      if (args_.rows.ignored(n)) {
        fill_hidden(n, 0);
      } else if (args_.rows.error(n).kind != kNoDataError) {
        bad_.report(n);
        fill_hidden(n, kNan);
      } else {
        workspace_.active[active++] = n;
      }
    }
    return active;
  }

  void batch(int64_t begin, int64_t count) {
    const LinearBatch batch{workspace_.active + begin, count, workspace_.packed};
    const int64_t tile_rows = linear_tile_rows(in_f64_);
    const int64_t tiles = (count + tile_rows - 1) / tile_rows;
    each(tiles, [&](int64_t tile) { return linear_pack_tile(operands_, batch, tile), true; });
    for (int64_t row = 0; row < count; ++row) workspace_.rows[row] = gradient(batch.rows[row]);
    std::fill(workspace_.seen, workspace_.seen + count, uint8_t{0});
    std::fill(workspace_.grad_hidden, workspace_.grad_hidden + linear_sums_elements(count, args_.depth, in_f64_), 0.0);

    LinearChunk chunk{
        operands_,      batch, workspace_.rows, 0, 0, workspace_.room, workspace_.dx, workspace_.grad_hidden,
        workspace_.seen};
    for (; chunk.begin < operands_.vocab; chunk.begin = chunk.end) {
      chunk.end = std::min(chunk.begin + workspace_.room, operands_.vocab);
      add_chunk(chunk, tiles, begin == 0);
    }
    each(count, [&](int64_t row) {
      if (workspace_.seen[row] == 0 && args_.rows.whole_vocabulary()) {
        bad_.report(batch.rows[row]);
        fill_hidden(batch.rows[row], kNan);
      } else {
        linear_gradient_store(chunk, row, args_.grad_hidden);
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
      return linear_gradient_scores(chunk, first, last, chunk.begin + block * kLinearBlock);
    });
    each_group(pieces(args_.depth, kLinearDepth), [&](int64_t first, int64_t last, int64_t piece) {
      return linear_gradient_hidden(chunk, first, last, piece * kLinearDepth);
    });
    if (bad_.any()) return;  // the other gradients are NaN
    if (args_.grad_weight.data != nullptr) {
      const int64_t panel = linear_tile_rows(in_f64_), panels = pieces(args_.depth, panel);
      each(pieces(columns, kGradientColumns) * panels, [&](int64_t index) {
        const int64_t column = chunk.begin + index / panels * kGradientColumns;
        return linear_gradient_weight(chunk, column, index % panels * panel, args_.grad_weight, is_first);
      });
    }
    if (args_.grad_bias != nullptr) {
      each(blocks, [&](int64_t block) {
        return linear_gradient_bias(chunk, chunk.begin + block * kLinearBlock, workspace_.grad_bias), true;
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

  RowGradient gradient(int64_t n) const {
    const auto load = [n](const LinearRowInput& input) {
      return input.data != nullptr ? load_element(input.data, input.dtype, n * input.stride) : 0.0;
    };
    return {load(args_.lse),          load(args_.grad_logp), load(args_.grad_lse),
            load(args_.grad_entropy), load(args_.entropy),   args_.rows.id(n) - args_.rows.vocab_start};
  }

  void fill_hidden(int64_t n, double value) const {
    const LinearGradMatrix& grad = args_.grad_hidden;
    for (int64_t d = 0; d < args_.depth; ++d) {
      store_element(grad.data, grad.dtype, n * grad.row_stride + d * grad.col_stride, value);
    }
  }
  void fill_weight(double value) const {
    const LinearGradMatrix& grad = args_.grad_weight;
    for (int64_t v = 0; v < operands_.vocab && grad.data != nullptr; ++v) {
      for (int64_t d = 0; d < args_.depth; ++d) {
        store_element(grad.data, grad.dtype, v * grad.row_stride + d * grad.col_stride, value);
      }
    }
  }

  const LinearLogpBackwardArgs& args_;
  const LinearOperands operands_;
  const ParallelFor& hook_;
  FirstBadRow& bad_;
  const bool in_f64_;
  const Workspace workspace_;
  std::atomic<bool> had_memory_{true};
};

}  // namespace

int64_t linear_logp_backward_workspace_bytes(const LinearSizes& sizes, bool has_grad_bias) {
  const bool in_f64 = make_scores(sizes.dtype, sizes.temperature, sizes.softcap, 1, nullptr, 0).in_f64;
  return carve(nullptr, sizes.n, sizes.vocab, sizes.depth, in_f64, has_grad_bias).bytes;
}

LinearStatus linear_logp_backward(const LinearLogpBackwardArgs& args, const ParallelFor& hook, DataError* error) {
  FirstBadRow bad;
  if (!Kernel(args, hook, bad).run()) return LinearStatus::out_of_memory;
  *error = {};
  if (!bad.any()) return LinearStatus::ok;
  *error = args.rows.error(bad.row());
  if (error->kind == kNoDataError) *error = {kNoFiniteLogit, bad.row(), 0};
  return LinearStatus::ok;
}

}  // namespace rlk::cpu
