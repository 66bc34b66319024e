// What every attention kernel shares: the blocks of a packed batch, and which keys a query sees.
//
// A block serves one key head and block_rows rows; a row is (query, head of the group), row = query * group + head, so
// that a decoded token's whole group shares one read of K and V. Key tiles start at multiples of the tile from the
// sequence's first key, whatever the block: a row's bits then depend on its own keys alone.
#pragma once

#include "element.cuh"
#include "tokens.cuh"

namespace rlk::simt {

// The first position at which cu_seqlens is wrong, or sequences + 1.
__device__ inline int64_t first_bad_position(const void* cu, bool is_i64, int64_t sequences, int64_t total) {
  __shared__ unsigned long long bad;
  if (threadIdx.x == 0) bad = static_cast<unsigned long long>(sequences + 1);
  __syncthreads();
  for (int64_t p = threadIdx.x; p <= sequences; p += kPlanThreads) {
    const int64_t value = read_index(cu, p, is_i64);
    const bool wrong = (p == 0 && value != 0) || (p > 0 && value < read_index(cu, p - 1, is_i64)) ||
                       (p == sequences && value != total);
    if (wrong) atomicMin(&bad, static_cast<unsigned long long>(p));
  }
  __syncthreads();
  const int64_t found = static_cast<int64_t>(bad);
  __syncthreads();
  return found;
}

// One block: checks both cu_seqlens and gives every sequence its range of blocks.
__device__ inline void attention_plan(const AttentionArgs& args) {
  __shared__ int64_t count[kPlanThreads];
  __shared__ int64_t carry;
  const bool is_i64 = args.cu_are_i64 != 0;
  const int64_t bad_q = first_bad_position(args.cu_q, is_i64, args.sequences, args.queries);
  const int64_t bad_k = first_bad_position(args.cu_k, is_i64, args.sequences, args.keys);
  const bool bad = bad_q <= args.sequences || bad_k <= args.sequences;
  const int me = static_cast<int>(threadIdx.x);
  if (me == 0) {
    carry = 0;
    args.plan[args.sequences + 1] = bad ? 1 : 0;
    if (bad_q <= args.sequences) {
      report_data_error(args.errors, kDataBadSeqlens, bad_q, read_index(args.cu_q, bad_q, is_i64));
    } else if (bad_k <= args.sequences) {
      report_data_error(args.errors, kDataBadSecondSeqlens, bad_k, read_index(args.cu_k, bad_k, is_i64));
    }
  }
  __syncthreads();
  for (int64_t first = 0; first < args.sequences; first += kPlanThreads) {
    const int64_t b = first + me;
    int64_t blocks = 0;
    if (b < args.sequences && !bad) {
      const int64_t queries = read_index(args.cu_q, b + 1, is_i64) - read_index(args.cu_q, b, is_i64);
      blocks = (queries * args.group + args.block_rows - 1) / args.block_rows;
    }
    count[me] = blocks;
    __syncthreads();
    for (int step = 1; step < kPlanThreads; step *= 2) {
      const int64_t other = me >= step ? count[me - step] : 0;
      __syncthreads();
      count[me] += other;
      __syncthreads();
    }
    if (b < args.sequences) args.plan[b] = carry + count[me] - blocks;
    __syncthreads();
    if (me == 0) carry += count[kPlanThreads - 1];
    __syncthreads();
  }
  if (me == 0) args.plan[args.sequences] = carry;
}

// What one block computes.
struct AttentionWork {
  int64_t q_token, k_token;  // first of the sequence, within its batch entry
  int64_t batch;             // dense: index of the sequence, 0 when packed
  int64_t lse_token;         // first token of the sequence in lse
  int64_t queries, keys;     // of the sequence
  int64_t first_row;         // of the block
  int32_t kv_head;
  int32_t valid;
};

// Blocks per key head: exact when dense, a bound when packed.
__device__ __forceinline__ int64_t attention_blocks(const AttentionArgs& args) {
  const int64_t rows = args.queries * args.group;
  const int64_t blocks = (rows + args.block_rows - 1) / args.block_rows;
  return args.packed != 0 ? blocks + args.sequences : blocks;
}

// item: the block, counted over all launches. Late queries first: under a causal mask they see the most keys.
__device__ __forceinline__ AttentionWork find_work(const AttentionArgs& args, int64_t item) {
  AttentionWork work{};
  const int64_t blocks = attention_blocks(args);
  const int64_t head = item / blocks;
  int64_t block = item - head * blocks;
  if (args.packed == 0) {
    work.batch = head / args.kv_heads;
    work.kv_head = static_cast<int32_t>(head - work.batch * args.kv_heads);
    work.queries = args.queries;
    work.keys = args.keys;
    work.lse_token = work.batch * args.queries;
    work.first_row = (blocks - 1 - block) * args.block_rows;
    work.valid = 1;
    return work;
  }
  work.kv_head = static_cast<int32_t>(head);
  if (block >= args.plan[args.sequences]) return work;
  int64_t low = 0, high = args.sequences;  // plan[low] <= block < plan[high]
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    if (args.plan[middle] <= block) {
      low = middle;
    } else {
      high = middle;
    }
  }
  const bool is_i64 = args.cu_are_i64 != 0;
  work.q_token = work.lse_token = read_index(args.cu_q, low, is_i64);
  work.queries = read_index(args.cu_q, low + 1, is_i64) - work.q_token;
  work.k_token = read_index(args.cu_k, low, is_i64);
  work.keys = read_index(args.cu_k, low + 1, is_i64) - work.k_token;
  work.first_row = (args.plan[low + 1] - 1 - block) * args.block_rows;
  work.valid = 1;
  return work;
}

// A packed layout with bad cu_seqlens: the blocks of the grid together fill the whole output with NaN.
template <class T>
__device__ inline bool fill_nan_if_bad(const AttentionArgs& args) {
  if (args.packed == 0 || args.plan[args.sequences + 1] == 0) return false;
  const int64_t width = static_cast<int64_t>(args.q_heads) * args.head_size;
  for (int64_t token = blockIdx.x; token < args.queries; token += gridDim.x) {
    T* out = static_cast<T*>(args.out.data) + token * args.out.token_stride;
    for (int64_t i = threadIdx.x; i < width; i += blockDim.x) {
      out[i / args.head_size * args.out.head_stride + i % args.head_size] = Narrow<T>::of(Accumulator<T>(NAN));
    }
    if (args.lse == nullptr) continue;
    for (int64_t h = threadIdx.x; h < args.q_heads; h += blockDim.x) {
      static_cast<Accumulator<T>*>(args.lse)[token * args.q_heads + h] = Accumulator<T>(NAN);
    }
  }
  return true;
}

// Query i stands at key i + diagonal.
__device__ __forceinline__ int64_t diagonal_of(const AttentionArgs& args, const AttentionWork& work) {
  return args.top_left != 0 ? 0 : work.keys - work.queries;
}

// Keys first..last that a query sees; none when last < first.
struct KeyRange {
  int64_t first, last;
};
// Of `keys` keys, by a query that stands at key `centre`. A window of -1 is all.
__device__ __forceinline__ KeyRange keys_in_window(int64_t left, int64_t right, int64_t keys, int64_t centre) {
  KeyRange range{0, keys - 1};
  if (left >= 0 && centre - left > 0) range.first = centre - left;
  if (right >= 0 && centre + right < range.last) range.last = centre + right;
  return range;
}
// Of query i of the sequence.
__device__ __forceinline__ KeyRange visible_keys(const AttentionArgs& args, const AttentionWork& work, int64_t i) {
  return keys_in_window(args.window_left, args.window_right, work.keys, i + diagonal_of(args, work));
}

// Which of some keys padding hides; data is nullptr where it hides none.
struct KeyMask {
  const uint8_t* data;
  int64_t stride;
};
__device__ __forceinline__ KeyMask key_mask_of(const AttentionArgs& args, const AttentionWork& work) {
  if (args.key_mask == nullptr) return KeyMask{};
  return KeyMask{args.key_mask + work.batch * args.mask_batch_stride, args.mask_key_stride};
}

// Keys [first, first + kCount) of so many as bits, kCount <= 64: 1 where no padding hides the key. All lanes of a wave
// ask for the same keys.
template <int kCount>
__device__ __forceinline__ uint64_t unmasked_keys(const KeyMask& mask, int64_t count, int64_t first) {
  if (mask.data == nullptr) return ~uint64_t{0};
  static_assert(kCount % kWave == 0, "a ballot fills the bits of a whole wave");
  const int lane = static_cast<int>(threadIdx.x) % kWave;
  uint64_t keys = 0;
#pragma unroll
  for (int part = 0; part < kCount; part += kWave) {
    const int64_t key = first + part + lane;
    keys |= wave_ballot(key < count && mask.data[key * mask.stride] != 0) << part;
  }
  return keys;
}
template <int kCount>
__device__ __forceinline__ uint64_t unmasked_keys(const AttentionArgs& args, const AttentionWork& work, int64_t first) {
  return unmasked_keys<kCount>(key_mask_of(args, work), work.keys, first);
}

// The softcap of a product of query and key, as a score in powers of 2.
template <class A>
struct Softcap {
  A inner, outer;
  template <class Args>
  __device__ __forceinline__ explicit Softcap(const Args& args)
      : inner(A(args.scale / args.softcap)), outer(A(args.softcap * 1.4426950408889634074)) {}
  __device__ __forceinline__ A operator()(A product) const { return outer * tanh(product * inner); }
};

// A key's number within its tile, or something far outside.
__device__ __forceinline__ int clamp_to_tile(int64_t x) {
  return static_cast<int>(x < -(1 << 20) ? -(1 << 20) : x > (1 << 20) ? (1 << 20) : x);
}

template <class T>
__device__ __forceinline__ T* tensor_row(const AttentionTensor& tensor, int64_t batch, int64_t token, int64_t head) {
  return static_cast<T*>(tensor.data) + batch * tensor.batch_stride + token * tensor.token_stride +
         head * tensor.head_stride;
}

}  // namespace rlk::simt
