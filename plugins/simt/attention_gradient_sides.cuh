// The sides of a tile of attention's gradients, whatever multiplies them: which rows and keys a block works on, where
// their numbers lie, what each row sees, and what its weights are. A row is (query, head of the group); see
// attention_gradients.cuh.
#pragma once

#include <float.h>

#include "attention_samples.cuh"

namespace rlk::simt {

// The tile of a block, and the sample whose rows or keys stream past.
struct GradientWork {
  int64_t batch, sample;
  int64_t q_token, k_token;  // packed: the first of the sequence
  int64_t queries, keys;     // of the sample; keys: its own
  int64_t first;             // row or key of the tile, counted in the sample or in the prefix
  int64_t part;              // of the rows that stream past a tile of the prefix
  int32_t kv_head;
  int32_t column;  // of the head size, the first of kColumns
  int32_t valid;
};

// item: the block, counted over all launches. count: rows or keys of a dense sample; all there are in a packed layout.
__device__ __forceinline__ GradientWork find_gradient_work(const AttentionGradientArgs& args, int64_t item, int tile,
                                                           int columns, bool of_rows) {
  GradientWork work{};
  const int64_t chunks = (args.head_size + columns - 1) / columns;
  int64_t unit = item / chunks;
  work.column = static_cast<int32_t>(item - unit * chunks) * columns;
  if (args.of_prefix != 0 && args.parts > 1) {
    work.part = unit % args.parts;
    unit /= args.parts;
  }
  const int64_t count = of_rows ? args.queries * args.group : args.of_prefix != 0 ? args.prefix_keys : args.keys;
  int64_t tiles = (count + tile - 1) / tile;
  if (args.packed == 0) {
    const int64_t head = unit / tiles, sequence = head / args.kv_heads;
    // Late queries first, early keys first: under a causal mask they have the most to sum.
    work.first = (of_rows ? tiles - 1 - unit % tiles : unit % tiles) * tile;
    work.kv_head = static_cast<int32_t>(head - sequence * args.kv_heads);
    work.batch = args.of_prefix != 0 ? sequence : sequence / args.samples;
    work.sample = args.of_prefix != 0 ? 0 : sequence - work.batch * args.samples;
    work.queries = args.queries;
    work.keys = args.keys;
    work.valid = 1;
    return work;
  }
  tiles += args.batches;  // a bound: every sequence may have a short tile
  const int64_t* const plan = of_rows ? args.row_plan : args.key_plan;
  const int64_t block = unit % tiles;
  work.kv_head = static_cast<int32_t>(unit / tiles);
  if (block >= plan[args.batches]) return work;
  int64_t low = 0, high = args.batches;  // plan[low] <= block < plan[high]
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    if (plan[middle] <= block) {
      low = middle;
    } else {
      high = middle;
    }
  }
  const bool is_i64 = args.cu_are_i64 != 0;
  work.q_token = read_index(args.cu_q, low, is_i64);
  work.queries = read_index(args.cu_q, low + 1, is_i64) - work.q_token;
  work.k_token = read_index(args.cu_k, low, is_i64);
  work.keys = read_index(args.cu_k, low + 1, is_i64) - work.k_token;
  work.first = (of_rows ? plan[low + 1] - 1 - block : block - plan[low]) * tile;
  work.valid = 1;
  return work;
}

// Bad cu_seqlens: the blocks of the grid together fill a gradient with NaN.
template <class T>
__device__ inline void fill_gradient_nan(const SampleTensor& grad, int64_t tokens, int64_t heads, int64_t head_size) {
  for (int64_t token = blockIdx.x; token < tokens; token += gridDim.x) {
    for (int64_t i = threadIdx.x; i < heads * head_size; i += kGradientThreads) {
      sample_row<T>(grad, 0, 0, token, i / head_size)[i % head_size] = Narrow<T>::of(Accumulator<T>(NAN));
    }
  }
}

// The gradients of rows, or of keys.
template <class T>
__device__ inline bool fill_nan_if_bad(const AttentionGradientArgs& args, bool of_rows) {
  if (args.packed == 0 || args.row_plan[args.batches + 1] == 0) return false;
  if (of_rows) {
    fill_gradient_nan<T>(args.grad_q, args.queries, args.q_heads, args.head_size);
  } else {
    fill_gradient_nan<T>(args.grad_k, args.keys, args.kv_heads, args.head_size);
    fill_gradient_nan<T>(args.grad_v, args.keys, args.kv_heads, args.head_size);
  }
  return true;
}

__device__ __forceinline__ int64_t diagonal_of(const AttentionGradientArgs& args, const GradientWork& work) {
  return args.top_left != 0 ? 0 : args.prefix_keys + work.keys - work.queries;
}
// Of prefix and sample.
__device__ __forceinline__ KeyRange visible_keys(const AttentionGradientArgs& args, const GradientWork& work,
                                                 int64_t query) {
  return keys_in_window(args.window_left, args.window_right, args.prefix_keys + work.keys,
                        query + diagonal_of(args, work));
}

// Rows or keys [first, end) that stream past a tile; none when end <= first.
struct StreamedRange {
  int64_t first, end;
};
// The keys that any of the tile's rows sees: bounds grow with the query.
__device__ __forceinline__ StreamedRange streamed_keys(const AttentionGradientArgs& args, const GradientWork& work,
                                                       int tile) {
  const int64_t rows = work.queries * args.group;
  const int64_t last_row = work.first + tile < rows ? work.first + tile - 1 : rows - 1;
  return {visible_keys(args, work, work.first / args.group).first,
          visible_keys(args, work, last_row / args.group).last + 1};
}
// The rows that see any of these keys of prefix and sample.
__device__ __forceinline__ StreamedRange streamed_rows(const AttentionGradientArgs& args, const GradientWork& work,
                                                       int64_t first_key, int64_t last_key) {
  const int64_t diagonal = diagonal_of(args, work);
  int64_t first = 0, last = work.queries - 1;
  if (args.window_right >= 0 && first_key - diagonal - args.window_right > 0) {
    first = first_key - diagonal - args.window_right;
  }
  if (args.window_left >= 0 && last_key - diagonal + args.window_left < last) {
    last = last_key - diagonal + args.window_left;
  }
  return {first * args.group, (last + 1) * args.group};
}

// What streams past a tile of keys, of which those rows see any. Of a sample they are its own, from a multiple of the
// tile on. Of a prefix they are those of all samples, behind each other and without gaps, so that the rows of several
// samples fill a tile; a block has a part of them.
__device__ __forceinline__ StreamedRange streamed_part(const AttentionGradientArgs& args, const GradientWork& work,
                                                       const StreamedRange& rows, int tile) {
  if (args.of_prefix == 0) return {rows.first / tile * tile, rows.end};
  const int64_t all = rows.end > rows.first ? args.samples * (rows.end - rows.first) : 0;
  if (args.parts <= 1) return {0, all};
  const int64_t first = work.part * args.part_rows, end = first + args.part_rows;
  return {first, end < all ? end : all};
}

// The block's tile of keys: the first of them, in prefix and sample, and how many there are from there on.
__device__ __forceinline__ int64_t first_key_of(const AttentionGradientArgs& args, const GradientWork& work) {
  return args.of_prefix != 0 ? work.first : args.prefix_keys + work.first;
}
__device__ __forceinline__ int64_t keys_from(const AttentionGradientArgs& args, const GradientWork& work) {
  return (args.of_prefix != 0 ? args.prefix_keys : work.keys) - work.first;
}

// Where a gradient of row or key `at` of the block's tile begins; nullptr where there is none.
template <class T>
__device__ __forceinline__ T* row_gradient(const AttentionGradientArgs& args, const GradientWork& work, int at) {
  const int64_t row = work.first + at, query = row / args.group;
  if (query >= work.queries) return nullptr;
  return sample_row<T>(args.grad_q, work.batch, work.sample, work.q_token + query,
                       work.kv_head * args.group + (row - query * args.group));
}
template <class T>
__device__ __forceinline__ T* key_gradient(const AttentionGradientArgs& args, const GradientWork& work,
                                           const SampleTensor& own, const SampleTensor& of_prefix, int at) {
  if (at >= keys_from(args, work)) return nullptr;
  const int64_t key = work.first + at;
  return args.of_prefix != 0 ? sample_row<T>(of_prefix, work.batch, 0, key, work.kv_head)
                             : sample_row<T>(own, work.batch, work.sample, work.k_token + key, work.kv_head);
}

// Where the sums of key `at` of the block's tile begin in its part; nullptr where there is no key.
template <class A>
__device__ __forceinline__ A* key_part(const AttentionGradientArgs& args, const GradientWork& work, bool of_values,
                                       int at) {
  if (at >= keys_from(args, work)) return nullptr;
  const int64_t list = ((work.batch * args.kv_heads + work.kv_head) * args.parts + work.part) * 2 + (of_values ? 1 : 0);
  return static_cast<A*>(args.part_sums) + (list * args.prefix_keys + work.first + at) * args.head_size;
}

// In shared memory.
template <class T, int kTile>
struct GradientSides {
  using A = Accumulator<T>;
  const T* rows[2][kTile];                    // q and grad_out; nullptr where there is no row
  const T* keys[2][kTile];                    // k and v; nullptr where there is no key, and where it is hidden
  int64_t first_key[kTile], last_key[kTile];  // that a row sees
  GradientTerms<A> terms[kTile];              // of a row

  // Rows from `first` on of the sample.
  __device__ __forceinline__ void set_rows(const AttentionGradientArgs& args, const GradientWork& work, int64_t first) {
    if (static_cast<int>(threadIdx.x) < kTile) set_row(args, work, work.sample, first + threadIdx.x);
  }
  // Rows from `first` on as streamed_part counts them; `rows` are those of a sample.
  __device__ __forceinline__ void set_streamed_rows(const AttentionGradientArgs& args, const GradientWork& work,
                                                    const StreamedRange& rows, int64_t first) {
    if (args.of_prefix == 0) return set_rows(args, work, first);
    if (static_cast<int>(threadIdx.x) >= kTile) return;
    const int64_t at = first + threadIdx.x, sample = at / (rows.end - rows.first);
    set_row(args, work, sample, rows.first + at - sample * (rows.end - rows.first));
  }
  __device__ __forceinline__ void set_row(const AttentionGradientArgs& args, const GradientWork& work, int64_t sample,
                                          int64_t row) {
    const int me = static_cast<int>(threadIdx.x);
    const int64_t query = row / args.group;
    const bool is_there = query < work.queries && sample < args.samples;
    KeyRange range{0, -1};
    GradientTerms<A> of_row{A(INFINITY), A(0)};
    const T *q = nullptr, *grad_out = nullptr;
    if (is_there) {
      const int64_t head = work.kv_head * args.group + (row - query * args.group), token = work.q_token + query;
      q = sample_row<const T>(args.q, work.batch, sample, token, head);
      grad_out = sample_row<const T>(args.grad_out, work.batch, sample, token, head);
      const int64_t sequence = work.batch * args.samples + sample;
      const int64_t of_terms = args.packed != 0 ? token : sequence * args.queries + token;
      of_row = static_cast<const GradientTerms<A>*>(args.terms)[of_terms * args.q_heads + head];
      range = visible_keys(args, work, query);
    }
    rows[0][me] = q;
    rows[1][me] = grad_out;
    first_key[me] = range.first;
    last_key[me] = range.last;
    terms[me] = of_row;
  }

  // Keys from `first` on of prefix and sample; where the tile is one of the prefix, none but the prefix's: there may be
  // no sample.
  __device__ __forceinline__ void set_keys(const AttentionGradientArgs& args, const GradientWork& work, int64_t first) {
    const int me = static_cast<int>(threadIdx.x);
    if (me >= kTile) return;
    const int64_t key = first + me, own = key - args.prefix_keys;
    const T *k = nullptr, *v = nullptr;
    if (own < 0) {
      if (keeps_key(key_mask_of(args.prefix_mask, work.batch, 0), key)) {
        k = sample_row<const T>(args.prefix_k, work.batch, 0, key, work.kv_head);
        v = sample_row<const T>(args.prefix_v, work.batch, 0, key, work.kv_head);
      }
    } else if (args.of_prefix == 0 && own < work.keys &&
               keeps_key(key_mask_of(args.key_mask, work.batch, work.sample), own)) {
      k = sample_row<const T>(args.k, work.batch, work.sample, work.k_token + own, work.kv_head);
      v = sample_row<const T>(args.v, work.batch, work.sample, work.k_token + own, work.kv_head);
    }
    keys[0][me] = k;
    keys[1][me] = v;
  }

  __device__ __forceinline__ bool sees(int row, int64_t first_of_keys, int key) const {
    return keys[0][key] != nullptr && first_of_keys + key >= first_key[row] && first_of_keys + key <= last_key[row];
  }
};

__device__ __forceinline__ float largest(float) {
  return FLT_MAX;
}
__device__ __forceinline__ double largest(double) {
  return DBL_MAX;
}

// What scores and their gradients become.
template <class A>
struct GradientScores {
  A high, low;  // what a score is multiplied by, in two parts, for its difference to lse
  A inner;      // of the softcap, or 0 where none bends

  __device__ __forceinline__ explicit GradientScores(const AttentionGradientArgs& args) {
    // A softcap so far above the scores that A cannot hold their ratio bends none.
    inner = args.softcap > 0 ? A(args.scale / args.softcap) : A(0);
    const double factor = inner > A(0) ? args.softcap : args.scale;
    high = A(factor);
    low = A(factor - double(high));
  }
  // The product of query and key becomes the weight p, dp becomes ds times the softcap's slope.
  __device__ __forceinline__ void weigh(const GradientTerms<A>& terms, A& score, A& dp) const {
    A x = score, slope = A(1);
    if (inner > A(0)) {
      x = tanh(x * inner);
      slope = fma(-x, x, A(1));
    }
    x = x > largest(A()) ? largest(A()) : x < -largest(A()) ? -largest(A()) : x;  // no inf - inf; a NaN stays
    // Rounded once beside the factor's lower part. No weight is above 1, also where lse has no digits left.
    A away = fma(x, high, -terms.lse) + x * low;
    away = away > A(0) ? A(0) : away;
    score = exp2_fast(away * A(1.4426950408889634074));
    dp = score * (dp + terms.offset) * slope;
  }
};

}  // namespace rlk::simt
