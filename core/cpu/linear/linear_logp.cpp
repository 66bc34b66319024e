// The log-probability of one chosen token per row from hidden states, without the logits ever being stored: which rows
// and segments of the vocabulary go where. No SIMD here.
//
// Cost model: 2 N V D floating-point operations, done as outer products of register tiles; the weights are read once
// for every kLinearBatch rows, and are what a few rows wait for. Ignored rows cost nothing. The vocabulary is cut into
// segments whose partial sums are combined in order, so a row's bits are a function of the row, its options, V and D
// alone: batch_invariant and deterministic. Tasks are tiles of rows times segments, so that one row keeps several
// threads busy. Scratch: below 512 KiB per thread.
#include "core/cpu/linear/linear_logp.hpp"

#include <algorithm>
#include <cmath>

#include "core/cpu/linear/linear_logp_task.hpp"
#include "core/cpu/logp/logp_rows.hpp"
#include "core/cpu/simd/long_sum.hpp"
#include "core/cpu/simd/registration.hpp"
#include "core/cpu/simd/scratch.hpp"

namespace rlk::cpu {
namespace {

using Call = CallOf<sdk::ops::LinearLogp>;

static_assert(kLinearSegment % kLinearBlock == 0);

int64_t segments_of(int64_t vocab) {
  return (vocab + kLinearSegment - 1) / kLinearSegment;
}

struct Workspace {
  int64_t* active;        // rows that need scores
  int64_t* targets;       // [batch]
  double* target_scores;  // [batch]
  BlockSums* sums;        // [batch][segment]
  double* score_sums;     // the same, if they are wanted
  void* packed;
  int64_t bytes;
};
Workspace carve(void* memory, const Call& call, bool in_f64, bool with_score_sums) {
  const int64_t batch = std::min(call.N, kLinearBatch);
  Carve carve(memory);
  Workspace workspace{};
  workspace.active = carve.take<int64_t>(call.N);
  workspace.targets = carve.take<int64_t>(batch);
  workspace.target_scores = carve.take<double>(batch);
  workspace.sums = carve.take<BlockSums>(batch * segments_of(call.V));
  if (with_score_sums) workspace.score_sums = carve.take<double>(batch * segments_of(call.V));
  workspace.packed = carve.take_bytes(linear_packed_elements(batch, call.D, in_f64) * linear_compute_bytes(in_f64));
  workspace.bytes = carve.bytes();
  return workspace;
}

class Batches {
public:
  Batches(const Call& call, const Context& context, FirstBadRow& bad, const ScoreSums& score_sums)
      : call_(call),
        operands_(operands_of(call)),
        hook_(context.parallel),
        bad_(bad),
        score_sums_(score_sums),
        workspace_(carve(context.workspace, call, operands_.scores.in_f64, score_sums.sums != nullptr)),
        segments_(segments_of(call.V)) {}

  // Writes rows that need no scores, and lists the others.
  int64_t settle() const {
    int64_t active = 0;
    for (int64_t n = 0; n < call_.N; ++n) {
      if (!settled(call_, n, bad_)) workspace_.active[active++] = n;
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
      workspace_.targets[row] = target_column(call_, batch.rows[row]);
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
                                  segment * kLinearSegment,
                                  std::min((segment + 1) * kLinearSegment, operands_.vocab),
                                  sums_for(call_.entropy.present(), call_.sum_p2.present()),
                                  workspace_.targets,
                                  workspace_.sums + segment,
                                  segments_,
                                  workspace_.target_scores,
                                  score_sums_.sums != nullptr ? workspace_.score_sums + segment : nullptr,
                                  score_sums_.weights};
        if (!linear_logp_task(task)) had_memory.store(false, std::memory_order_relaxed);
      }
    });
    for (int64_t row = 0; row < count; ++row) finish(batch.rows[row], row);
    return had_memory.load();
  }

private:
  void finish(int64_t n, int64_t row) const {
    RowSums sums(operands_.scores);
    for (int64_t segment = 0; segment < segments_; ++segment) sums.add(workspace_.sums[row * segments_ + segment]);
    finish_row(call_, n, sums, bad_, [&](int64_t) { return workspace_.target_scores[row]; });
    if (score_sums_.sums == nullptr) return;
    LongSum scores;
    for (int64_t segment = 0; segment < segments_; ++segment) {
      scores.add(workspace_.score_sums[row * segments_ + segment]);
    }
    score_sums_.sums[n] = scores.value();
  }

  const Call& call_;
  const LinearOperands operands_;
  const ParallelFor& hook_;
  FirstBadRow& bad_;
  const ScoreSums score_sums_;
  const Workspace workspace_;
  const int64_t segments_;
};

DataError run(const Call& call, const Context& context) {
  return linear_logp(call, context);
}

int64_t workspace_bytes(const Call& call) {
  return linear_logp_workspace_bytes(call);
}

double operations(const Call& call) {
  return 2 * static_cast<double>(call.N) * static_cast<double>(call.V) * static_cast<double>(call.D);
}

}  // namespace

DataError linear_logp(const Call& call, const Context& context, const ScoreSums& score_sums) {
  FirstBadRow bad;
  const Batches batches(call, context, bad, score_sums);
  const int64_t active = batches.settle();
  for (int64_t begin = 0; begin < active; begin += kLinearBatch) {
    if (!batches.batch(begin, std::min(kLinearBatch, active - begin))) throw_no_scratch();
  }
  return first_error(call, bad);
}

int64_t linear_logp_workspace_bytes(const Call& call, bool with_score_sums) {
  return carve(nullptr, call, operands_of(call).scores.in_f64, with_score_sums).bytes;
}

RLK_CPU_KERNEL(LinearLogp, .run = run, .operations = operations, .workspace_bytes = workspace_bytes,
               .switches = kLinearSwitches<kLinearSegment>);

}  // namespace rlk::cpu
