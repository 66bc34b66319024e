// A paged cache: where a slot is, and which token it keeps. Of each tensor a word of its own width is moved at a time.
//
// Tensors: the caches of keys and of values (block, place in it, head, group of elements, element), the keys and values
// (token, head, element), the slots. A layout without groups has one of all elements.
#pragma once

#include "move.cuh"

#if defined(RLK_SIMT_MOVES_ON_DEVICE)

namespace rlk::simt {

__device__ __forceinline__ int64_t cache_slot(const MoveArgs& args, int64_t token) {
  return move_id(args.tensor[4], token * args.tensor[4].stride[0]);
}
__device__ __forceinline__ bool is_slot(const MoveArgs& args, int64_t slot) {
  return slot >= 0 && slot < args.size[kCacheSlots];
}

__device__ __forceinline__ void cache_clear(const MoveArgs& args, int64_t token) {
  const int64_t slot = cache_slot(args, token);
  if (is_slot(args, slot)) static_cast<int32_t*>(args.work[0])[slot] = -1;
}
__device__ __forceinline__ void cache_mark(const MoveArgs& args, int64_t token) {
  const int64_t slot = cache_slot(args, token);
  if (!is_slot(args, slot)) {
    if (slot != -1) report_data_error(args.errors, kDataIdOutOfRange, token, slot);
  } else if (args.work[0] != nullptr) {
    atomicMax(static_cast<int32_t*>(args.work[0]) + slot, static_cast<int32_t>(token));
  }
}

__device__ __forceinline__ bool is_last_of_slot(const MoveArgs& args, int64_t token, int64_t slot) {
  if (args.work[0] != nullptr) return static_cast<const int32_t*>(args.work[0])[slot] == token;
  for (int64_t other = token + 1; other < args.size[kCacheTokens]; ++other) {
    if (cache_slot(args, other) == slot) return false;
  }
  return true;
}

template <class Word>
__device__ __forceinline__ void cache_move(const MoveTensor& cache, int64_t to, const MoveTensor& from, int64_t at) {
  static_cast<Word*>(cache.data)[to] = static_cast<const Word*>(from.data)[at];
}

// Words of keys come first, then those of values.
__device__ __forceinline__ void cache_put(const MoveArgs& args, int64_t unit) {
  const int which = unit < args.size[kCacheKeyUnits] ? 0 : 1;
  if (which == 1) unit -= args.size[kCacheKeyUnits];
  const MoveDivisor &words = args.divisor[kByKeyWords + which], &group = args.divisor[kByKeyGroup + which];
  const int64_t row = move_divide(words, unit), word = unit - row * words.size;
  const int64_t token = move_divide(args.divisor[kByHeads], row), head = row - token * args.divisor[kByHeads].size;
  const int64_t slot = cache_slot(args, token);
  if (!is_slot(args, slot)) {
    if (slot != -1) report_data_error(args.errors, kDataIdOutOfRange, token, slot);
    return;
  }
  if (!is_last_of_slot(args, token, slot)) return;
  const MoveTensor &cache = args.tensor[which], &from = args.tensor[2 + which];
  const int64_t block = move_divide(args.divisor[kByBlockSize], slot);
  const int64_t place = slot - block * args.divisor[kByBlockSize].size;
  const int64_t of_group = move_divide(group, word);
  const int64_t to = block * cache.stride[0] + place * cache.stride[1] + head * cache.stride[2] +
                     of_group * cache.stride[3] + (word - of_group * group.size) * cache.stride[4];
  const int64_t at = token * from.stride[0] + head * from.stride[1] + word * from.stride[2];
  const int64_t bytes = args.size[kCacheKeyBytes + which];
  if (bytes == 16) return cache_move<uint4>(cache, to, from, at);
  if (bytes == 8) return cache_move<uint64_t>(cache, to, from, at);
  if (bytes == 4) return cache_move<uint32_t>(cache, to, from, at);
  cache_move<uint16_t>(cache, to, from, at);
}

}  // namespace rlk::simt

#endif
