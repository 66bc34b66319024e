// paged_attention: keys and values are read from their blocks, by ids that only the device knows.
//
// A block of threads serves one key head, one share of the keys, and a few rows; a row is (query, head of the group),
// row = query * group + head, so that a decoded token's group shares one read of K and V. A few lanes hold a key, 16 or
// more bytes each, next to the same elements of every row's query: no shared memory until the end. Each group of lanes
// takes every n-th key of the sequence and has a softmax of its own; at the end the block merges them in their order.
// Shares of keys are merged by a second kernel (paged_merge), in their order too.
//
// Decoding is bound by memory: what counts is how many bytes are asked for before the first is needed, so K and V of a
// step are read together, and the ids of the next one before this one's numbers are used.
#pragma once

#include "element.cuh"
#include "paged_attention.h"
#include "skeleton/map.cuh"
#include "tokens.cuh"

namespace rlk::simt {

__device__ __forceinline__ int64_t paged_cu(const PagedAttentionArgs& args, int64_t b) {
  return read_index(args.cu_q, b * args.cu_stride, args.indices_are_i64 != 0);
}

// What the rows of a block are.
struct PagedWork {
  int64_t sequence, query, queries;  // query: the sequence's first
  int64_t first_row;
  int64_t keys;  // below 2^30 in a sequence whose length is right
};

// Tiles of a sequence: those of each begin where the rows before it end, and one more for each sequence before it, so
// that a sequence's tiles are found without a sum over sequences. Some tiles have no row.
__device__ inline PagedWork paged_work(const PagedAttentionArgs& args, int64_t tile, int rows) {
  PagedWork work{};
  if (args.cu_q == nullptr) {
    const int64_t tiles = (args.group + rows - 1) / rows;
    work.sequence = work.query = tile / tiles;
    work.queries = 1;
    work.first_row = tile % tiles * rows;
  } else {
    const auto first_tile = [&](int64_t b) { return paged_cu(args, b) * args.group / rows + b; };
    int64_t low = 0, high = args.sequences;  // first_tile(low) <= tile
    while (high - low > 1) {
      const int64_t middle = (low + high) / 2;
      if (first_tile(middle) <= tile) {
        low = middle;
      } else {
        high = middle;
      }
    }
    work.sequence = low;
    work.query = paged_cu(args, low);
    work.queries = paged_cu(args, low + 1) - work.query;
    work.first_row = (tile - first_tile(low)) * rows;
  }
  work.keys = read_index(args.context_lens, work.sequence * args.lens_stride, args.indices_are_i64 != 0);
  return work;
}

// Whether cu_seqlens_q is wrong; all threads ask. One block reports it.
__device__ inline bool paged_cu_is_bad(const PagedAttentionArgs& args, unsigned long long& first) {
  if (args.cu_q == nullptr) return false;
  if (threadIdx.x == 0) first = ~0ull;
  __syncthreads();
  for (int64_t p = threadIdx.x; p <= args.sequences; p += kPagedThreads) {
    const int64_t value = paged_cu(args, p);
    const bool is_wrong = (p == 0 && value != 0) || (p > 0 && value < paged_cu(args, p - 1)) ||
                          (p == args.sequences && value != args.queries);
    if (is_wrong) atomicMin(&first, static_cast<unsigned long long>(p));
  }
  __syncthreads();
  const unsigned long long found = first;
  if (found == ~0ull) return false;
  if (threadIdx.x == 0 && args.first_block + blockIdx.x == 0) {
    const int64_t position = static_cast<int64_t>(found);
    report_data_error(args.errors, kDataBadSecondSeqlens, position, paged_cu(args, position));
  }
  return true;
}

// Whether the sequence's length is out of range.
__device__ inline bool paged_length_is_bad(const PagedAttentionArgs& args, const PagedWork& work, bool reports) {
  if (work.keys >= 0 && work.keys <= args.table_blocks * args.block_size) return false;
  if (threadIdx.x == 0 && reports) report_data_error(args.errors, kDataBadSeqlens, work.sequence, work.keys);
  return true;
}
// Sets is_bad if a block of this share of the sequence's table is out of range; all threads look.
__device__ inline void paged_find_bad_block(const PagedAttentionArgs& args, const PagedWork& work, int64_t split,
                                            bool reports, int& is_bad) {
  const int64_t blocks = (work.keys + args.block_size - 1) / args.block_size;
  const int64_t end = blocks * (split + 1) / args.splits;
  for (int64_t m = blocks * split / args.splits + threadIdx.x; m < end; m += kPagedThreads) {
    const int64_t id = read_index(args.block_table, work.sequence * args.table_stride[0] + m * args.table_stride[1],
                                  args.indices_are_i64 != 0);
    if (id >= 0 && id < args.cache_blocks) continue;
    is_bad = 1;
    if (reports) report_data_error(args.errors, kDataIdOutOfRange, work.sequence, id);
  }
}
// Whether the sequence's length or a block of this share of its table is out of range; all threads ask.
__device__ inline bool paged_sequence_is_bad(const PagedAttentionArgs& args, const PagedWork& work, int64_t split,
                                             bool reports, int& is_bad) {
  if (threadIdx.x == 0) is_bad = 0;
  __syncthreads();
  if (paged_length_is_bad(args, work, reports && split == 0)) return true;
  paged_find_bad_block(args, work, split, reports, is_bad);
  __syncthreads();
  return is_bad != 0;
}

// Where a row's answer goes: its share's part, or the result.
template <class T>
__device__ __forceinline__ void paged_put(const PagedAttentionArgs& args, int64_t split, int64_t token, int64_t head,
                                          int d, Accumulator<T> value, Accumulator<T> sum) {
  using A = Accumulator<T>;
  if (args.splits > 1) {
    const int64_t row = (split * args.queries + token) * args.q_heads + head;
    static_cast<A*>(args.parts)[row * args.head_size + d] = value;
    return;
  }
  const A inverse = sum == A(0) ? A(0) : A(1) / sum;
  static_cast<T*>(args.out)[token * args.out_stride[0] + head * args.out_stride[1] + d] =
      Narrow<T>::of(A(value * inverse));
}
template <class A>
__device__ __forceinline__ void paged_put_lse(const PagedAttentionArgs& args, int64_t token, int64_t head, A top,
                                              A sum) {
  if (args.lse == nullptr) return;
  static_cast<A*>(args.lse)[token * args.lse_stride[0] + head * args.lse_stride[1]] =
      sum == A(0) ? -A(INFINITY) : A((double(top) + log2(double(sum))) * 0.69314718055994530942);
}
template <class A>
__device__ __forceinline__ void paged_put_sums(const PagedAttentionArgs& args, int64_t split, int64_t token,
                                               int64_t head, A top, A sum) {
  if (args.splits == 1) return paged_put_lse(args, token, head, top, sum);
  A* const to = static_cast<A*>(args.part_sums) + ((split * args.queries + token) * args.q_heads + head) * 2;
  to[0] = top;
  to[1] = sum;
}

// Rows first, first + step, ... of `rows` from a token on are NaN.
template <class T>
__device__ inline void paged_nan_rows(const PagedAttentionArgs& args, int64_t split, int64_t query, int64_t kv_head,
                                      int64_t first, int64_t rows, int64_t step) {
  using A = Accumulator<T>;
  for (int64_t row = first; row < rows; row += step) {
    const int64_t token = query + row / args.group, head = kv_head * args.group + row % args.group;
    for (int d = static_cast<int>(threadIdx.x); d < args.head_size; d += kPagedThreads) {
      paged_put<T>(args, split, token, head, d, A(NAN), A(1));
    }
    if (threadIdx.x == 0) paged_put_sums<A>(args, split, token, head, A(0), A(NAN));
  }
}

// A pack of a key's or value's head: elements [d, d + size) of it, 0 beyond the head.
template <class T, bool kPacks>
__device__ __forceinline__ Pack<T> paged_pack(const PagedAttentionArgs& args, const PagedCache& cache, const T* token,
                                              int d) {
  Pack<T> pack;
  pack.bits = uint4{0, 0, 0, 0};
  if (kPacks || cache.in_packs != 0) {
    if (d >= args.head_size) return pack;
    const int64_t group = cache.group_stride == 0 ? 0 : d / static_cast<int>(cache.group);
    pack.bits = load_stream(token + group * cache.group_stride + (d - group * cache.group));
    return pack;
  }
  if constexpr (!kPacks) {
    T element[Pack<T>::kSize];
#pragma unroll
    for (int e = 0; e < Pack<T>::kSize; ++e) {
      element[e] = Narrow<T>::of(Accumulator<T>(0));
      if (d + e >= args.head_size) continue;
      const int64_t group = cache.group_stride == 0 ? 0 : (d + e) / static_cast<int>(cache.group);
      element[e] = token[group * cache.group_stride + (d + e - group * cache.group) * cache.element_stride];
    }
    __builtin_memcpy(&pack.bits, element, sizeof(pack.bits));
  }
  return pack;
}

template <class A>
__device__ __forceinline__ void paged_merge_factors(A& top, A other, A& mine, A& theirs) {
  const A highest = fmax(top, other);
  const A base = highest == -A(INFINITY) ? A(0) : highest;
  mine = exp2_fast(A(top - base));
  theirs = exp2_fast(A(other - base));
  top = highest;
}

// fp64 has little room for what long chains of sums gather: a few steps at a time are added to what lies behind them.
template <class A, int kRows>
struct PagedFar {
  static constexpr bool kIsKept = sizeof(A) == 8;
  static constexpr int kSteps = 16;
  A top[kIsKept ? kRows : 1], sum[kIsKept ? kRows : 1], out[kIsKept ? kRows : 1][kPagedElements];
  int steps = 0;

  __device__ __forceinline__ PagedFar() {
    if constexpr (kIsKept) {
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        top[r] = -A(INFINITY);
        sum[r] = A(0);
#pragma unroll
        for (int e = 0; e < kPagedElements; ++e) out[r][e] = A(0);
      }
    }
  }
  __device__ __forceinline__ void step(const A (&near_top)[kRows], A (&near_sum)[kRows], A (&near_lost)[kRows],
                                       A (&near_out)[kRows][kPagedElements]) {
    if constexpr (kIsKept) {
      if (++steps % kSteps == 0) fold(near_top, near_sum, near_lost, near_out);
    }
  }
  __device__ __forceinline__ void finish(const A (&near_top)[kRows], A (&near_sum)[kRows], A (&near_lost)[kRows],
                                         A (&near_out)[kRows][kPagedElements]) {
    if constexpr (kIsKept) {
      fold(near_top, near_sum, near_lost, near_out);
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        near_sum[r] = sum[r];
#pragma unroll
        for (int e = 0; e < kPagedElements; ++e) near_out[r][e] = out[r][e];
      }
    }
  }

private:
  // near_top is the highest of all steps.
  __device__ __forceinline__ void fold(const A (&near_top)[kRows], A (&near_sum)[kRows], A (&near_lost)[kRows],
                                       A (&near_out)[kRows][kPagedElements]) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      A mine, theirs;
      paged_merge_factors(top[r], near_top[r], mine, theirs);
      sum[r] = fma(sum[r], mine, (near_sum[r] + near_lost[r]) * theirs);
      near_sum[r] = near_lost[r] = A(0);
#pragma unroll
      for (int e = 0; e < kPagedElements; ++e) {
        out[r][e] = fma(out[r][e], mine, near_out[r][e] * theirs);
        near_out[r][e] = A(0);
      }
    }
  }
};

template <class T, bool kPacks>
__device__ __forceinline__ void paged_attention(const PagedAttentionArgs& args) {
  using A = Accumulator<T>;
  constexpr int kRows = paged_rows(sizeof(T)), kKeys = paged_keys(sizeof(T)), kSize = Pack<T>::kSize;
  constexpr int kParts = kPagedElements / kSize, kWaves = kPagedThreads / kWave;
  __shared__ unsigned long long first_bad;
  __shared__ int is_bad;
  __shared__ A wave_out[kWaves][kRows][kPagedMaxHead], wave_top[kWaves][kRows], wave_sum[kWaves][kRows];

  const int64_t item = args.first_block + blockIdx.x;
  const int64_t kv_head = item % args.kv_heads, split = item / args.kv_heads % args.splits;
  const int64_t tile = item / args.kv_heads / args.splits;
  if (paged_cu_is_bad(args, first_bad)) {
    // The blocks of a key head and a share fill its rows together.
    return paged_nan_rows<T>(args, split, 0, kv_head, tile, args.queries * args.group, args.tiles);
  }
  if (args.sequences == 0) return;
  const PagedWork work = paged_work(args, tile, kRows);
  const int64_t rows = work.queries * args.group;
  if (work.first_row > 0 && work.first_row >= rows) return;
  const int64_t end_row = work.first_row + kRows < rows ? work.first_row + kRows : rows;
  if (paged_sequence_is_bad(args, work, split, kv_head == 0 && work.first_row == 0, is_bad)) {
    return paged_nan_rows<T>(args, split, work.query, kv_head, work.first_row, end_row, 1);
  }
  if (rows == 0) return;

  const int wave = static_cast<int>(threadIdx.x) / kWave, lane = static_cast<int>(threadIdx.x) % kWave;
  const int of_key = lane % args.lanes;  // which of a key's lanes
  const int slot = static_cast<int>(threadIdx.x) / args.lanes, slots = kPagedThreads / args.lanes;
  const int step = slots * kKeys;

  A query[kRows][kPagedElements], out[kRows][kPagedElements], top[kRows], sum[kRows], lost[kRows];
  PagedFar<A, kRows> far;
  int first_key[kRows], last_key[kRows];
  int first = static_cast<int>(work.keys), last = -1;  // that any of the rows sees
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const int64_t row = work.first_row + r < end_row ? work.first_row + r : end_row - 1;
    const T* from = static_cast<const T*>(args.q) + (work.query + row / args.group) * args.q_stride[0] +
                    (kv_head * args.group + row % args.group) * args.q_stride[1];
#pragma unroll
    for (int e = 0; e < kPagedElements; ++e) {
      const int d = (e / kSize * args.lanes + of_key) * kSize + e % kSize;
      query[r][e] = d < args.head_size ? A(widen(from[d])) : A(0);
      out[r][e] = A(0);
    }
    top[r] = -A(INFINITY);
    sum[r] = lost[r] = A(0);
    const int64_t centre = row / args.group + work.keys - work.queries;
    first_key[r] = args.window_left >= 0 && centre > args.window_left ? static_cast<int>(centre - args.window_left) : 0;
    last_key[r] = static_cast<int>(work.keys - 1);
    if (args.window_right >= 0 && centre + args.window_right < work.keys - 1) {
      last_key[r] = static_cast<int>(centre + args.window_right);
    }
    first = first_key[r] < first ? first_key[r] : first;
    last = last_key[r] > last ? last_key[r] : last;
  }
  // Which lanes take a key depends on its number in the sequence alone, whatever a window hides.
  const int start = first / step * step;
  const int share = ((last - start + args.splits) / args.splits + step - 1) / step * step;
  const int begin = start + static_cast<int>(split) * share;
  const int end = begin + share < last + 1 ? begin + share : last + 1;

  const bool is_i64 = args.indices_are_i64 != 0;
  const int64_t table_row = work.sequence * args.table_stride[0];
  const void* const table = is_i64 ? static_cast<const void*>(static_cast<const int64_t*>(args.block_table) + table_row)
                                   : static_cast<const int32_t*>(args.block_table) + table_row;
  const T* const keys = static_cast<const T*>(args.k.data) + kv_head * args.k.head_stride;
  const T* const values = static_cast<const T*>(args.v.data) + kv_head * args.v.head_stride;
  const A scale = A(args.scale * 1.4426950408889634074);  // scores in powers of 2
  const A cap_inner = args.softcap > 0 ? A(args.scale / args.softcap) : A(0);
  const A cap_outer = A(args.softcap * 1.4426950408889634074);
  // The block of the cache that holds the k-th key of a step, or -1.
  const auto block_of = [&](int at, int k, int& place) -> int {
    const int key = at + k * slots + slot;
    if (key < first || key >= end) return -1;
    const int m = static_cast<int>(map_divide(key, args.block_size, args.block_multiplier, args.block_shift));
    place = key - m * static_cast<int>(args.block_size);
    const int64_t id = read_index(table, m * args.table_stride[1], is_i64);
    return id >= 0 && id < args.cache_blocks ? static_cast<int>(id) : -1;  // another share may find that it is none
  };
  int block[kKeys], place[kKeys];
#pragma unroll
  for (int k = 0; k < kKeys; ++k) block[k] = block_of(begin, k, place[k]);

  for (int at = begin; at < end; at += step) {
    Pack<T> key_pack[kKeys][kParts], value_pack[kKeys][kParts];
    bool is_there[kKeys];
#pragma unroll
    for (int k = 0; k < kKeys; ++k) {
      is_there[k] = block[k] >= 0;
#pragma unroll
      for (int p = 0; p < kParts; ++p) {
        const int d = (p * args.lanes + of_key) * kSize;
        key_pack[k][p].bits = value_pack[k][p].bits = uint4{0, 0, 0, 0};
        if (!is_there[k]) continue;
        key_pack[k][p] = paged_pack<T, kPacks>(
            args, args.k, keys + block[k] * args.k.block_stride + place[k] * args.k.place_stride, d);
        value_pack[k][p] = paged_pack<T, kPacks>(
            args, args.v, values + block[k] * args.v.block_stride + place[k] * args.v.place_stride, d);
      }
    }
#pragma unroll
    for (int k = 0; k < kKeys; ++k) block[k] = block_of(at + step, k, place[k]);

    A score[kRows][kKeys] = {};
#pragma unroll
    for (int k = 0; k < kKeys; ++k) {
#pragma unroll
      for (int p = 0; p < kParts; ++p) {
        A number[kSize];
        key_pack[k][p].unpack(number);
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
#pragma unroll
          for (int e = 0; e < kSize; ++e) score[r][k] = fma(query[r][p * kSize + e], number[e], score[r][k]);
        }
      }
    }
    for (int lanes = args.lanes / 2; lanes > 0; lanes /= 2) {
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
#pragma unroll
        for (int k = 0; k < kKeys; ++k) score[r][k] += wave_xor(score[r][k], lanes);
      }
    }
    A factor[kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      A highest = top[r];
#pragma unroll
      for (int k = 0; k < kKeys; ++k) {
        const int key = at + k * slots + slot;
        const bool sees = is_there[k] && key >= first_key[r] && key <= last_key[r];
        const A s = args.softcap > 0 ? cap_outer * tanh(A(score[r][k] * cap_inner)) : score[r][k] * scale;
        score[r][k] = sees ? s : -A(INFINITY);
        highest = fmax(highest, score[r][k]);
      }
      const A base = highest == -A(INFINITY) ? A(0) : highest;
      factor[r] = exp2_fast(A(top[r] - base));
      top[r] = highest;
      A total = A(0);
#pragma unroll
      for (int k = 0; k < kKeys; ++k) {
        score[r][k] = exp2_fast(A(score[r][k] - base));
        total += score[r][k];
      }
      // With what rounding loses: equal weights would all lose alike.
      const A so_far = formula::Mul(sum[r], factor[r]), next = formula::Add(so_far, total), added = next - so_far;
      lost[r] = formula::Mul(lost[r], factor[r]) + ((so_far - (next - added)) + (total - added));
      sum[r] = next;
    }
    // The keys of a step are summed from 0: long sums of similar terms would gather the rounding of each.
#pragma unroll
    for (int p = 0; p < kParts; ++p) {
      A part[kRows][kSize] = {};
#pragma unroll
      for (int k = 0; k < kKeys; ++k) {
        A number[kSize];
        value_pack[k][p].unpack(number);
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
#pragma unroll
          for (int e = 0; e < kSize; ++e) part[r][e] = fma(score[r][k], number[e], part[r][e]);
        }
      }
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
#pragma unroll
        for (int e = 0; e < kSize; ++e) out[r][p * kSize + e] = fma(out[r][p * kSize + e], factor[r], part[r][e]);
      }
    }
    far.step(top, sum, lost, out);
  }
  far.finish(top, sum, lost, out);

#pragma unroll
  for (int r = 0; r < kRows; ++r) sum[r] += lost[r];
  for (int lanes = args.lanes; lanes < kWave; lanes *= 2) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      A mine, theirs;
      paged_merge_factors(top[r], wave_xor(top[r], lanes), mine, theirs);
      sum[r] = sum[r] * mine + wave_xor(sum[r], lanes) * theirs;
#pragma unroll
      for (int e = 0; e < kPagedElements; ++e) out[r][e] = out[r][e] * mine + wave_xor(out[r][e], lanes) * theirs;
    }
  }
  if (lane < args.lanes) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
#pragma unroll
      for (int e = 0; e < kPagedElements; ++e) {
        const int d = (e / kSize * args.lanes + of_key) * kSize + e % kSize;
        wave_out[wave][r][d] = out[r][e];
      }
      if (of_key == 0) {
        wave_top[wave][r] = top[r];
        wave_sum[wave][r] = sum[r];
      }
    }
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < kRows * args.head_size; i += kPagedThreads) {
    const int r = i / args.head_size, d = i - r * args.head_size;
    const int64_t row = work.first_row + r;
    if (row >= end_row) break;
    A highest = wave_top[0][r], total = wave_sum[0][r], value = wave_out[0][r][d];
#pragma unroll
    for (int w = 1; w < kWaves; ++w) {
      A mine, theirs;
      paged_merge_factors(highest, wave_top[w][r], mine, theirs);
      total = total * mine + wave_sum[w][r] * theirs;
      value = value * mine + wave_out[w][r][d] * theirs;
    }
    const int64_t token = work.query + row / args.group, head = kv_head * args.group + row % args.group;
    paged_put<T>(args, split, token, head, d, value, total);
    if (d == 0) paged_put_sums<A>(args, split, token, head, highest, total);
  }
}

}  // namespace rlk::simt
