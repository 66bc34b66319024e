// The host's side of operators that move data (../skeleton/move.cuh): tensors, sizes and launches of a call.
#pragma once

#include <rlk/sdk/ops/moe_align_block_size.hpp>
#include <rlk/sdk/ops/reshape_and_cache.hpp>
#include <rlk/sdk/ops/rotary_embedding.hpp>
#include <rlk/sdk/ops/sample.hpp>

#include "../skeleton/move.h"
#include "declared.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <initializer_list>
#include <type_traits>

namespace rlk::simt::host {

// One launch of a call. kernel: which of the operator's. A block takes block_units of the units.
struct MoveLaunch {
  int kernel = 0;
  int64_t units = 0, block_units = simt::kMoveThreads;
  int threads = simt::kMoveThreads;
  int64_t argument = 0;
};

struct MoveCall {
  void add(const MoveLaunch& launch) { launches[count++] = launch; }

  simt::MoveArgs args{};
  int count = 0;  // of launches
  MoveLaunch launches[simt::kMoveStages];
  uint64_t work_bytes[3] = {};  // of args.work; 0: as the part before
  bool may_work = false;        // another size of the call may need a workspace
  // A call whose workspace would grow with its rows takes part_rows of them at a time, in the same workspace: units and
  // work_bytes are those of one row, and args.size[first_at] tells a launch its first row. 0: everything at once.
  int64_t rows = 0, part_rows = 0;
  int first_at = 0;
  uint32_t numerics = RLK_NUMERICS_ACCURATE | RLK_NUMERICS_DETERMINISTIC | RLK_NUMERICS_BATCH_INVARIANT;
  double bytes = 0;  // through memory
  sdk::Refusal refusal;
};

namespace moves {

simt::MoveTensor tensor_of(const rlk_tensor* tensor);
simt::MoveDivisor divisor_of(int64_t size);

// y[n, k] = x[n, ids[n, k]], or ids[k] for every row.
MoveCall taken_along(const rlk_tensor* y, const rlk_tensor* x, const rlk_tensor* ids);
// y[n] = x[ids[n]]
MoveCall taken_rows(const rlk_tensor* y, const rlk_tensor* x, const rlk_tensor* ids);

// Kernels sort, rank, along: sums[n, d] of terms[n, k] with ids[n, k] = d, or with ids[k] = d.
MoveCall sums_along(const rlk_tensor* sums, const rlk_tensor* terms, const rlk_tensor* ids);
// Kernels sort, rank, across: sums[v] of terms[n] with ids[n] = v, but 0 for v = padding; divided by how many they are.
MoveCall sums_across(const rlk_tensor* sums, const rlk_tensor* terms, const rlk_tensor* ids, int64_t padding,
                     bool by_frequency);

// One kernel, whose threads each do a unit.
MoveCall by_units(int64_t units, std::initializer_list<const rlk_tensor*> tensors,
                  std::initializer_list<int64_t> sizes);
// The same in kernel 0, of blocks that each leave a double in work[0], and kernel 1 of one block, which adds them where
// there is more than one.
MoveCall summed_by_blocks(int64_t units, std::initializer_list<const rlk_tensor*> tensors,
                          std::initializer_list<int64_t> sizes);
// A call in which a unit's answer depends on how many there are.
MoveCall of_batch(MoveCall call);
// Units and work_bytes, which are those of one row, are for parts of so many rows: as many at a time as little
// workspace holds.
MoveCall in_parts(MoveCall call, int64_t rows, int first_at);
// And what formulas take of the call.
template <class Rules>
MoveCall with_rules(MoveCall call, const Rules& rules) {
  static_assert(std::is_trivially_copyable_v<Rules> && sizeof(Rules) <= simt::kMoveRules);
  std::memcpy(call.args.rules, &rules, sizeof(rules));
  return call;
}
// The same, each of a pack of the columns of a row: divisor[0] has the packs of a row, size[0] the columns. The tensors
// end with columns.
MoveCall by_packs(int64_t rows, int64_t columns, std::initializer_list<const rlk_tensor*> tensors,
                  std::initializer_list<int64_t> more_sizes);
// Kernels clear, mark, put: keys and values of tokens in the slots of a cache.
MoveCall cached(const sdk::Arguments<sdk::ops::ReshapeAndCache>& call);
// One kernel: pairs of every head are turned by the cosines and sines of the token's position.
MoveCall turned_by_position(const sdk::Arguments<sdk::ops::RotaryEmbedding>& call);
// Kernels chunks, count, offset, scatter, and, of top_k, peaks, first: the first `count` numbers of each row of x in
// order, and where they were.
MoveCall in_order(const rlk_tensor* y, const rlk_tensor* index, const rlk_tensor* x, int64_t count, bool descending,
                  bool may_select);
// Kernels sort, rank, plan, fill: places of ids by id, with each id's padded to whole blocks.
MoveCall aligned_to_blocks(const sdk::Arguments<sdk::ops::MoeAlignBlockSize>& call);
// Kernels peaks, weigh, draw: a token of each row.
MoveCall sampled(const sdk::Arguments<sdk::ops::Sample>& call);

}  // namespace moves

struct MoveKernels {
  const char* image;
  std::array<const char*, simt::kMoveKernels> names;  // those that there are first
};

class MovesPlan : public KernelPlan {
public:
  static sdk::Support support(const Device& device, const MoveCall& call);
  static uint64_t workspace_of(const MoveCall& call);
  MovesPlan(Device& device, const MoveKernels& kernels, const MoveCall& call);

protected:
  void launch(sdk::Stream& stream, MoveCall call, const sdk::Run& run) const;

private:
  std::array<FunctionHandle, simt::kMoveKernels> kernels_{};
};

// Gives args.work its parts of the workspace.
void place_work(MoveCall& call, void* workspace);
// function(launch), of which the units are all that it has, for all launches of the call, with args as its kernel needs
// them.
template <class Function>
void each_launch(MoveCall& call, const Function& function) {
  const bool is_whole = call.part_rows == 0;
  const int64_t rows = is_whole ? 1 : call.rows, step = is_whole ? 1 : call.part_rows;
  for (int64_t first = 0; first < rows; first += step) {
    if (!is_whole) call.args.size[call.first_at] = first;
    for (int i = 0; i < call.count; ++i) {
      MoveLaunch one = call.launches[i];
      one.units *= std::min(rows - first, step);
      call.args.units = one.units;
      call.args.argument = one.argument;
      function(one);
    }
  }
}

// Declared: what RLK_SIMT_MOVES made of an operator.
template <class Declared>
struct Moves : DeclaredBy<Declared, MovesPlan> {
  static constexpr const char* kName = "moves";
};

}  // namespace rlk::simt::host
