// One answer of logp from the answers of vocabulary shards: a row is a thread's, in fp64.
//
// Tensors: logp, lse and entropy (row), the shards' logp, lse and entropy (shard, row). size[0]: shards.
#pragma once

#include "move.cuh"

#if defined(RLK_SIMT_MOVES_ON_DEVICE)

namespace rlk::simt {

struct ShardsRow {
  bool is_ignored, is_undefined;
  int64_t owner;  // -1: the target's score is -inf, or no shard owns the id
  double largest;

  // No shard has a finite score: a data error.
  __device__ __forceinline__ bool is_hopeless() const {
    return !is_ignored && !is_undefined && largest == -static_cast<double>(INFINITY);
  }
};

__device__ __forceinline__ double of_shard(const MoveTensor& tensor, int64_t shard, int64_t row) {
  return move_number(tensor, shard * tensor.stride[0] + row * tensor.stride[1]);
}

__device__ __forceinline__ ShardsRow read_shards(const MoveArgs& args, int64_t row) {
  constexpr double kInfinity = INFINITY;
  const int64_t shards = args.size[0];
  ShardsRow out{shards > 1, false, -1, -kInfinity};
  for (int64_t s = 0; s < shards; ++s) {
    const double logp = of_shard(args.tensor[3], s, row), lse = of_shard(args.tensor[4], s, row);
    out.is_ignored = out.is_ignored && logp == 0;
    out.is_undefined = out.is_undefined || logp != logp || lse != lse || lse == kInfinity;
    out.largest = lse > out.largest ? lse : out.largest;
    if (logp == -kInfinity) continue;
    out.is_undefined = out.is_undefined || out.owner >= 0;  // two shards claim the id
    out.owner = s;
  }
  return out;
}

__device__ __forceinline__ void put_merged(const MoveArgs& args, int64_t row, double logp, double lse, double entropy) {
  const double numbers[] = {logp, lse, entropy};
#pragma unroll
  for (int i = 0; i < 3; ++i) move_put(args.tensor[i], row * args.tensor[i].stride[0], numbers[i]);
}

// Shares are taken relative to the largest lse: where scores are large, lse has lost the digits that matter.
__device__ __forceinline__ void merge_shards(const MoveArgs& args, int64_t row) {
  constexpr double kInfinity = INFINITY, kNan = NAN;
  const MoveTensor &logps = args.tensor[3], &lses = args.tensor[4], &entropies = args.tensor[5];
  const int64_t shards = args.size[0];
  const ShardsRow read = read_shards(args, row);
  if (read.is_ignored) return put_merged(args, row, 0, 0, 0);
  if (read.is_undefined || read.is_hopeless()) {
    put_merged(args, row, kNan, kNan, kNan);
    if (!read.is_hopeless()) return;
    // The first such row is told, whichever thread is first.
    for (int64_t before = 0; before < row; ++before) {
      if (read_shards(args, before).is_hopeless()) return;
    }
    return report_data_error(args.errors, kDataNoFiniteLogit, row, 0);
  }
  double sum = 0;
  for (int64_t s = 0; s < shards; ++s) sum += ::exp(of_shard(lses, s, row) - read.largest);
  const double log_sum = ::log(sum);
  double logp = -kInfinity, entropy = 0;
  if (read.owner >= 0) {
    logp = of_shard(logps, read.owner, row) + (of_shard(lses, read.owner, row) - read.largest - log_sum);
  }
  for (int64_t s = 0; entropies.data != nullptr && s < shards; ++s) {
    const double below = of_shard(lses, s, row) - read.largest;
    if (below == -kInfinity) continue;
    entropy += ::exp(below) / sum * (of_shard(entropies, s, row) - (below - log_sum));
  }
  put_merged(args, row, logp, read.largest + log_sum, entropy);
}

}  // namespace rlk::simt

#endif
