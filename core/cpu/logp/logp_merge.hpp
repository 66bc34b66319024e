// One answer of logp from the answers of vocabulary shards. One number per shard and row, hence plain fp64.
#pragma once

#include "core/cpu/simd/kernel.hpp"

namespace rlk::cpu {

// [shard, row]
struct ShardNumbers {
  const void* data = nullptr;
  int64_t shard_stride = 0, row_stride = 1;
};
struct RowNumbers {
  void* data = nullptr;
  int64_t stride = 1;
};

struct LogpMergeArgs {
  Dtype dtype = Dtype::f32;  // of every tensor
  int64_t rows = 0, shards = 1;
  ShardNumbers shard_logp, shard_lse;
  ShardNumbers shard_entropy;  // optional, together with entropy
  RowNumbers logp;
  RowNumbers lse, entropy;  // optional
};

// Returns the data error of the lowest row without any finite score.
DataError logp_merge(const LogpMergeArgs& args, const ParallelFor& hook);

}  // namespace rlk::cpu
