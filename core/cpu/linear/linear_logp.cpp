// Which rows and segments of linear_logp go where, and how segment sums become log-probabilities. No SIMD here.
#include "core/cpu/linear/linear_logp.hpp"

#include <algorithm>
#include <cmath>

#include "core/cpu/linear/linear_logp_task.hpp"
#include "core/cpu/logp/logp_sums.hpp"

namespace rlk::cpu {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Entries of the vocabulary per task: bits depend on it.
constexpr int64_t kSegment = 2048;
static_assert(kSegment % kLinearBlock == 0);

int64_t segments_of(int64_t vocab) {
  return (vocab + kSegment - 1) / kSegment;
}

struct Workspace {
  int64_t* active;        // rows that need scores
  int64_t* targets;       // [batch]
  double* target_scores;  // [batch]
  BlockSums* sums;        // [batch][segment]
  void* packed;
  int64_t bytes;
};
Workspace carve(void* memory, int64_t n, int64_t vocab, int64_t depth, bool in_f64) {
  const int64_t batch = std::min(n, kLinearBatch);
  Carve carve(memory);
  Workspace workspace{};
  workspace.active = carve.take<int64_t>(n);
  workspace.targets = carve.take<int64_t>(batch);
  workspace.target_scores = carve.take<double>(batch);
  workspace.sums = carve.take<BlockSums>(batch * segments_of(vocab));
  workspace.packed = carve.take_bytes(linear_packed_elements(batch, depth, in_f64) * linear_compute_bytes(in_f64));
  workspace.bytes = carve.bytes();
  return workspace;
}

LinearOperands make_operands(const LinearLogpArgs& args) {
  return {args.dtype,  args.hidden,
          args.weight, args.rows.vocab,
          args.depth,  make_scores(args.dtype, args.temperature, args.softcap, 1, args.bias, args.bias_stride)};
}

class Kernel {
public:
  Kernel(const LinearLogpArgs& args, const ParallelFor& hook, FirstBadRow& bad)
      : args_(args),
        operands_(make_operands(args)),
        hook_(hook),
        bad_(bad),
        workspace_(carve(args.workspace, args.rows.n, args.rows.vocab, args.depth, operands_.scores.in_f64)),
        segments_(segments_of(args.rows.vocab)) {}

  // Writes rows that need no scores, and lists the others.
  int64_t settle() const {
    int64_t active = 0;
    for (int64_t n = 0; n < args_.rows.n; ++n) {
      if (args_.rows.ignored(n)) {
        put(n, 0, 0, 0);
      } else if (args_.rows.error(n).kind != kNoDataError) {
        bad_.report(n);
        put(n, kNan, kNan, kNan);
      } else {
        workspace_.active[active++] = n;
      }
    }
    return active;
  }

  // Active rows [begin, begin + count). False when there was no memory.
  bool batch(int64_t begin, int64_t count) const {
    const LinearBatch batch{workspace_.active + begin, count, workspace_.packed};
    const int64_t tile_rows = linear_tile_rows(operands_.scores.in_f64);
    const int64_t tiles = (count + tile_rows - 1) / tile_rows;
    parallel_for(hook_, tiles, 1, [&](int64_t first, int64_t last) {
      for (int64_t tile = first; tile < last; ++tile) linear_pack_tile(operands_, batch, tile);
    });
    for (int64_t row = 0; row < count; ++row) {
      workspace_.targets[row] = args_.rows.id(batch.rows[row]) - args_.rows.vocab_start;
    }
    const int64_t groups = (tiles + kLinearTilesPerTask - 1) / kLinearTilesPerTask;
    std::atomic<bool> had_memory{true};
    parallel_for(hook_, groups * segments_, 1, [&](int64_t first, int64_t last) {
      for (int64_t index = first; index < last; ++index) {
        const int64_t segment = index / groups, tile = index % groups * kLinearTilesPerTask;
        const LinearLogpTask task{operands_,
                                  batch,
                                  tile,
                                  std::min(tile + kLinearTilesPerTask, tiles),
                                  segment * kSegment,
                                  std::min((segment + 1) * kSegment, operands_.vocab),
                                  args_.entropy != nullptr,
                                  workspace_.targets,
                                  workspace_.sums + segment,
                                  segments_,
                                  workspace_.target_scores};
        if (!linear_logp_task(task)) had_memory.store(false, std::memory_order_relaxed);
      }
    });
    for (int64_t row = 0; row < count; ++row) finish(batch.rows[row], row);
    return had_memory.load();
  }

private:
  void put(int64_t n, double logp, double lse, double entropy) const {
    const Dtype wide = accumulator(args_.dtype);
    store_element(args_.logp, args_.logp_dtype, n * args_.logp_stride, logp);
    if (args_.lse != nullptr) store_element(args_.lse, wide, n * args_.lse_stride, lse);
    if (args_.entropy != nullptr) store_element(args_.entropy, wide, n * args_.entropy_stride, entropy);
  }

  void finish(int64_t n, int64_t row) const {
    RowSums sums(operands_.scores);
    for (int64_t segment = 0; segment < segments_; ++segment) sums.add(workspace_.sums[row * segments_ + segment]);
    if (sums.all_masked()) {
      if (!args_.rows.whole_vocabulary()) return put(n, -kInfinity, -kInfinity, 0);
      bad_.report(n);
      return put(n, kNan, kNan, kNan);
    }
    const bool here = workspace_.targets[row] >= 0 && workspace_.targets[row] < operands_.vocab;
    put(n, here ? sums.logp(workspace_.target_scores[row]) : -kInfinity, sums.lse(),
        args_.entropy != nullptr ? sums.entropy() : 0);
  }

  const LinearLogpArgs& args_;
  const LinearOperands operands_;
  const ParallelFor& hook_;
  FirstBadRow& bad_;
  const Workspace workspace_;
  const int64_t segments_;
};

}  // namespace

int64_t linear_logp_workspace_bytes(const LinearSizes& sizes) {
  const bool in_f64 = make_scores(sizes.dtype, sizes.temperature, sizes.softcap, 1, nullptr, 0).in_f64;
  return carve(nullptr, sizes.n, sizes.vocab, sizes.depth, in_f64).bytes;
}

LinearStatus linear_logp(const LinearLogpArgs& args, const ParallelFor& hook, DataError* error) {
  FirstBadRow bad;
  const Kernel kernel(args, hook, bad);
  const int64_t active = kernel.settle();
  for (int64_t begin = 0; begin < active; begin += kLinearBatch) {
    if (!kernel.batch(begin, std::min(kLinearBatch, active - begin))) return LinearStatus::out_of_memory;
  }
  *error = {};
  if (!bad.any()) return LinearStatus::ok;
  *error = args.rows.error(bad.row());
  if (error->kind == kNoDataError) *error = {kNoFiniteLogit, bad.row(), 0};
  return LinearStatus::ok;
}

}  // namespace rlk::cpu
