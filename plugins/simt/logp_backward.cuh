// logp_backward: how the gradient of the logits is written in one read and one write.
//
// The rows kernel checks every token, prepares its scalars in fp64 (LogpBackwardRow) and computes the one gradient that
// needs care, the target's; with row_indices it also notes which token owns each logits row. The gradient kernel needs
// no exchange between threads: a thread keeps one pack of columns and walks down the rows of its chunk, the next rows
// under way while it computes on this one, so it can sum grad_bias on the way; a last kernel adds the chunks in order.
// grad_logits may be logits: each thread reads a pack before it writes it, and nobody else reads it. Cost: 2 V
// sizeof(T) bytes a row.
#pragma once

#include <float.h>

#include "element.cuh"
#include "tokens.cuh"

namespace rlk::simt {

constexpr double kLog2e = 1.4426950408889634074;

// The logits row of a token that is not ignored, or -1 when there is none.
__device__ __forceinline__ int64_t existing_row(const TokenRows& tokens, const Token& token) {
  return token.state != kRowZero && token.logits_row >= 0 && token.logits_row < tokens.logits_rows ? token.logits_row
                                                                                                   : -1;
}

// The logits row that the last token before block_first names, or -1. Looks back a block's width at a time, so that a
// long ignored prompt costs one look per block.
__device__ inline int64_t last_row_before(const TokenRows& tokens, int64_t block_first) {
  __shared__ int found;
  __shared__ int64_t found_row;
  for (int64_t end = block_first; end > 0; end -= kBackwardRowsThreads) {
    if (threadIdx.x == 0) found = -1;
    __syncthreads();
    const int64_t n = end - kBackwardRowsThreads + static_cast<int64_t>(threadIdx.x);
    const int64_t row = existing_row(tokens, resolve_token(tokens, n));
    if (row >= 0) atomicMax(&found, static_cast<int>(threadIdx.x));
    __syncthreads();
    if (found == static_cast<int>(threadIdx.x)) found_row = row;
    __syncthreads();
    const bool any = found >= 0;
    const int64_t last = found_row;
    __syncthreads();
    if (any) return last;
  }
  return -1;
}

// For each thread of the block the highest row named before its own token: by the block, or outside. all: also by the
// rest of the block.
__device__ inline int64_t highest_row_before(int64_t row, int64_t outside, int64_t& all) {
  __shared__ int64_t highest[kBackwardRowsThreads];
  const int me = static_cast<int>(threadIdx.x);
  __syncthreads();  // what an earlier call left has been read
  highest[me] = row;
  __syncthreads();
  for (int step = 1; step < kBackwardRowsThreads; step *= 2) {
    const int64_t other = me >= step ? highest[me - step] : -1;
    __syncthreads();
    if (other > highest[me]) highest[me] = other;
    __syncthreads();
  }
  const int64_t inside = me > 0 ? highest[me - 1] : -1, last = highest[kBackwardRowsThreads - 1];
  all = last > outside ? last : outside;
  return inside > outside ? inside : outside;
}

// The larger wins, whatever the order: a data error makes the row NaN, and the sum of all rows.
__device__ __forceinline__ void mark_owner(const LogpBackwardArgs& args, int64_t at, int64_t owner) {
  atomicMax(reinterpret_cast<long long*>(args.owner + at), static_cast<long long>(owner));
}

// Whether this block is the last of all launches to be done, and any block met a data error. One word counts both, so
// that whoever adds to it last knows: blocks below, those with errors in the upper half.
__device__ inline bool is_last_after_errors(const LogpBackwardArgs& args, bool has_error) {
  __shared__ bool answer;
  const bool none = __syncthreads_and(!has_error) != 0;
  if (threadIdx.x == 0) {
    const int64_t blocks = (args.tokens.rows + kBackwardRowsThreads - 1) / kBackwardRowsThreads;
    auto* const word = reinterpret_cast<unsigned long long*>(args.owner + args.tokens.logits_rows + 1);
    const unsigned long long mine = 1 + (none ? 0 : 1ull << 32);
    const unsigned long long done = atomicAdd(word, mine) + 1 + mine;  // it was -1 at first
    answer = static_cast<int64_t>(done & 0xffffffffu) == blocks && done >> 32 != 0;
  }
  __syncthreads();
  return answer;
}

// A block looks no further back than to the last token before it. That finds every list that is not in order, but where
// that token itself stood out of order, rows of later blocks may pass that an earlier token has outrun. So after a data
// error one block goes through all tokens again.
__device__ inline void mark_all_disorder(const LogpBackwardArgs& args) {
  int64_t outside = -1;
  for (int64_t first = 0; first < args.tokens.rows; first += kBackwardRowsThreads) {
    const int64_t n = first + threadIdx.x;
    const int64_t row = n < args.tokens.rows ? existing_row(args.tokens, resolve_token(args.tokens, n)) : -1;
    const int64_t highest = highest_row_before(row, outside, outside);
    if (row >= 0 && row <= highest) mark_owner(args, row, kOwnerNan);
  }
}

// Whether every logit of the row is -inf or dropped. All threads of the block take part. keep: nullptr drops none.
template <class T>
__device__ inline bool all_minus_infinity(const T* row, const uint8_t* keep, int64_t columns) {
  bool mine = true;
  for (int64_t v = threadIdx.x; v < columns; v += kBackwardRowsThreads) {
    if ((keep == nullptr || keep[v] != 0) && widen(row[v]) != -Accumulator<T>(INFINITY)) mine = false;
  }
  return __syncthreads_and(mine) != 0;
}

// What a row's results were and what their gradients are; what is absent is 0.
struct RowGradients {
  double lse, entropy;
  double of_logp, of_lse, of_entropy;
};

// Of an active row: all but the target's gradient.
__device__ __forceinline__ LogpBackwardRow backward_row(const Token& token, const RowGradients& given,
                                                        const LogitTransform& transform) {
  LogpBackwardRow out{0, 0, 0, 0, 0, token.target, token.state, 0};
  // lse -inf: a shard without a finite logit; its gradient is 0, as every gradient of a logit of -inf.
  if (given.lse == -INFINITY) return out;
  const double temperature = transform.temperature, inverse_temperature = 1.0 / temperature;
  out.base = given.lse * temperature;
  out.base_low = isinf(out.base) ? 0 : fma(given.lse, temperature, -out.base);
  out.gain = (given.of_lse - given.of_logp - given.of_entropy * given.entropy) * inverse_temperature;
  out.entropy_gain = given.of_entropy / kLog2e * inverse_temperature;
  return out;
}

// The target's, whose x + bias is y.
__device__ __forceinline__ double target_gradient(double y, const LogpBackwardRow& row, const RowGradients& given,
                                                  const LogitTransform& transform) {
  const double temperature = transform.temperature, inverse_temperature = 1.0 / temperature;
  const bool nothing = y == -INFINITY;
  double factor = inverse_temperature;
  if (transform.softcap > 0) {
    const double t = tanh(y / transform.softcap);
    y = transform.softcap * t;
    factor *= 1 - t * t;
  }
  // 1 - p by expm1: exact also where p is nearly 1.
  const double log_p =
      isinf(row.base) ? y * inverse_temperature - given.lse : ((y - row.base) - row.base_low) / temperature;
  const double rest = given.of_lse - (given.of_entropy != 0 ? given.of_entropy * (log_p + given.entropy) : 0);
  return nothing ? 0 : (rest * exp(log_p) - given.of_logp * expm1(log_p)) * factor;
}

template <class T>
__device__ __forceinline__ void logp_backward_rows(const LogpBackwardArgs& args) {
  using A = Accumulator<T>;
  __shared__ int suspects;
  __shared__ int64_t suspect[kBackwardRowsThreads];
  __shared__ bool hopeless[kBackwardRowsThreads];
  static_assert(kBackwardRowsThreads <= 256, "a suspect's low 8 bits are its thread");
  const TokenRows& tokens = args.tokens;
  const int64_t block_first = (args.first_block + blockIdx.x) * kBackwardRowsThreads;
  const int64_t n = block_first + threadIdx.x;
  const int me = static_cast<int>(threadIdx.x);
  Token token{kRowZero, 0, 0, 0, -1};
  if (n < tokens.rows) token = resolve_token(tokens, n);
  const int64_t existing = existing_row(tokens, token);
  if (tokens.row_indices != nullptr) {
    int64_t all = -1;
    const int64_t highest = highest_row_before(existing, last_row_before(tokens, block_first), all);
    if (token.state == kRowActive && existing <= highest) {
      token.state = kRowNan;
      token.kind = kDataRowOutOfRange;
      token.value = existing;
    }
  }

  // A row of -inf alone has lse -inf or NaN (a shard's may be finite). Rare, so the block looks at such rows together.
  double lse = 0;
  if (token.state == kRowActive) lse = static_cast<const A*>(args.lse)[n];
  const bool doubtful = token.state == kRowActive && tokens.sharded == 0 && !(lse > -INFINITY);
  if (me == 0) suspects = 0;
  hopeless[me] = false;
  __syncthreads();
  if (doubtful) suspect[atomicAdd(&suspects, 1)] = (token.logits_row << 8) | me;
  __syncthreads();
  for (int s = 0; s < suspects; ++s) {
    const T* row = static_cast<const T*>(args.logits) + (suspect[s] >> 8) * args.row_stride;
    const uint8_t* keep = args.keep_mask == nullptr ? nullptr : args.keep_mask + (suspect[s] >> 8) * tokens.vocab;
    const bool empty = all_minus_infinity(row, keep, tokens.vocab);
    if (me == 0) hopeless[suspect[s] & 255] = empty;
  }
  __syncthreads();
  if (hopeless[me]) {
    token.state = kRowNan;
    token.kind = kDataNoFiniteLogit;
    token.value = 0;
  }
  if (token.state == kRowNan) report_data_error(args.errors, token.kind, n, token.value);
  LogpBackwardRow out{0, 0, 0, 0, 0, -1, token.state, 0};
  if (token.state == kRowActive) {
    RowGradients given{};
    given.lse = lse;
    given.of_logp = args.grad_logp_is_accumulator != 0 ? double(static_cast<const A*>(args.grad_logp)[n])
                                                       : double(widen(static_cast<const T*>(args.grad_logp)[n]));
    if (args.grad_lse != nullptr) given.of_lse = static_cast<const A*>(args.grad_lse)[n];
    if (args.grad_entropy != nullptr) {
      given.of_entropy = static_cast<const A*>(args.grad_entropy)[n];
      given.entropy = static_cast<const A*>(args.entropy)[n];
    }
    out = backward_row(token, given, args.transform);
    if (token.target >= 0) {
      const T* row = static_cast<const T*>(args.logits) + token.logits_row * args.row_stride;
      double y = widen(row[token.target]);
      if (args.transform.bias != nullptr) y += widen(static_cast<const T*>(args.transform.bias)[token.target]);
      out.target_gradient = target_gradient(y, out, given, args.transform);
    }
  }
  if (n < tokens.rows) args.row[n] = out;
  if (args.owner == nullptr) return;
  if (existing >= 0) mark_owner(args, existing, token.state == kRowNan ? kOwnerNan : n);
  if (token.state == kRowNan) mark_owner(args, tokens.logits_rows, kOwnerNan);
  if (is_last_after_errors(args, token.state == kRowNan)) mark_all_disorder(args);
}

// The scalars of a row as the gradient kernel uses them.
template <class A>
struct RowScalars {
  A base, base_low_power;  // low_power: what rounding the base lost, times the scale
  A gain, entropy_gain, target_gradient;
  int32_t state;
  int32_t target;  // column within the block's tile, or below 0
};

// Infinities as the largest number, whose difference to them then is infinite. NaN stays NaN.
__device__ __forceinline__ float bounded(float x) {
  return x > FLT_MAX ? FLT_MAX : x < -FLT_MAX ? -FLT_MAX : x;
}
__device__ __forceinline__ double bounded(double x) {
  return x > DBL_MAX ? DBL_MAX : x < -DBL_MAX ? -DBL_MAX : x;
}

// But for the target's column.
template <class A>
__device__ __forceinline__ RowScalars<A> row_scalars(const LogpBackwardRow& row, const LogitTransform& transform) {
  RowScalars<A> s{bounded(A(row.base)), A(0), A(row.gain), A(row.entropy_gain), A(row.target_gradient), row.state, -1};
  s.base_low_power = A(((row.base - double(s.base)) + row.base_low) * (kLog2e / transform.temperature));
  return s;
}

template <class A>
struct Slope {  // of z as a function of x
  A softcap, inverse_softcap, scale;
};

template <class A>
struct Probability {
  A log2;    // log2 p
  A factor;  // d y / d x
};

// The difference to lse comes first: it is exact where p is not small, and the rounding of a large product would make p
// larger than 1.
template <class A, bool kTransform>
__device__ __forceinline__ Probability<A> probability(A x, A bias, const RowScalars<A>& row, const Slope<A>& slope) {
  A y = x, factor = A(1);
  if constexpr (kTransform) {
    y = x + bias;
    if (slope.softcap > A(0)) {
      const A t = tanh(y * slope.inverse_softcap);
      y = slope.softcap * t;
      factor = A(1) - t * t;
    }
  }
  return {fma(y - row.base, slope.scale, -row.base_low_power), factor};
}

// The gradient of x, which is not the target's.
template <class A, bool kTransform, bool kEntropy>
__device__ __forceinline__ A slope_of(A x, A bias, const RowScalars<A>& row, const Slope<A>& slope) {
  const Probability<A> of = probability<A, kTransform>(x, bias, row, slope);
  A g = row.gain;
  if constexpr (kEntropy) g -= row.entropy_gain * fmax(of.log2, A(-1024));  // p is 0 where log p is not finite
  g *= exp2_fast(of.log2);
  if constexpr (kTransform) g = x + bias == -A(INFINITY) ? A(0) : g * of.factor;
  return g;
}

template <class T, bool kTransform, bool kEntropy>
__device__ __forceinline__ void gradient_of_pack(const Pack<T>& pack, const RowScalars<Accumulator<T>>& row,
                                                 const Slope<Accumulator<T>>& slope,
                                                 const Accumulator<T> (&bias)[Pack<T>::kSize], int column,
                                                 Accumulator<T> (&grad)[Pack<T>::kSize]) {
  using A = Accumulator<T>;
  A x[Pack<T>::kSize];
  pack.unpack(x);
#pragma unroll
  for (int i = 0; i < Pack<T>::kSize; ++i) {
    grad[i] = slope_of<A, kTransform, kEntropy>(x[i], bias[i], row, slope);
  }
  const int at = row.target - column;
  if (at >= 0 && at < Pack<T>::kSize) {
#pragma unroll
    for (int i = 0; i < Pack<T>::kSize; ++i) grad[i] = at == i ? row.target_gradient : grad[i];
  }
}

// A pack's gradients, of the logits' dtype or one of half its size.
template <class T, class Out>
__device__ __forceinline__ void store_gradients(Out* to, int64_t left, bool whole,
                                                const Accumulator<T> (&grad)[Pack<T>::kSize]) {
  constexpr int kSize = Pack<T>::kSize;
  if constexpr (sizeof(Out) == sizeof(T)) {
    Pack<T> out;
    out.pack(grad);
    if (whole) {
      store_stream(to, out.bits);
    } else {
      store_pack(to, left, out);
    }
  } else {
    Out element[kSize];
#pragma unroll
    for (int i = 0; i < kSize; ++i) element[i] = Narrow<Out>::of(grad[i]);
    if (whole) {
      uint64_t bits;
      static_assert(sizeof(element) == sizeof(bits), "half a pack");
      __builtin_memcpy(&bits, element, sizeof(bits));
      *reinterpret_cast<uint64_t*>(to) = bits;
    } else {
#pragma unroll
      for (int i = 0; i < kSize; ++i) {
        if (i < left) to[i] = element[i];
      }
    }
  }
}

// kTransform: bias or softcap is present, or grad_bias is wanted. kMasked: keep_mask is present. Out: of the gradients.
template <class T, bool kTransform, bool kEntropy, bool kMasked, class Out = T>
__device__ __forceinline__ void logp_backward_gradient(const LogpBackwardArgs& args) {
  using A = Accumulator<T>;
  constexpr int kSize = Pack<T>::kSize;
  __shared__ RowScalars<A> scalars[kBackwardBatch];
  const int64_t columns = args.tokens.vocab;
  const int64_t tiles = (columns + kBackwardThreads * kSize - 1) / (kBackwardThreads * kSize);
  const int64_t item = args.first_block + blockIdx.x;
  const int64_t chunk = item / tiles, tile = item - chunk * tiles;
  const int in_tile = static_cast<int>(threadIdx.x) * kSize;
  const int64_t tile_column = tile * kBackwardThreads * kSize, column = tile_column + in_tile;
  const int64_t row_begin = chunk * args.rows_per_chunk;
  const int64_t row_end = row_begin + args.rows_per_chunk < args.tokens.logits_rows ? row_begin + args.rows_per_chunk
                                                                                    : args.tokens.logits_rows;
  const bool aligned = args.aligned != 0;
  const bool whole = aligned && column + kSize <= columns;
  const T lowest = Narrow<T>::of(-A(INFINITY));

  Slope<A> slope{A(args.transform.softcap), A(0), A(kLog2e / args.transform.temperature)};
  if (args.transform.softcap > 0) slope.inverse_softcap = A(1.0 / args.transform.softcap);
  if constexpr (sizeof(A) == 4) slope.scale = args.transform.exp2_scale;
  A bias[kSize] = {};
  A total[kSize] = {};
  if constexpr (kTransform) {
    const T* given = static_cast<const T*>(args.transform.bias);
#pragma unroll
    for (int i = 0; i < kSize; ++i) {
      if (given != nullptr && column + i < columns) bias[i] = widen(given[column + i]);
    }
  }

  for (int64_t batch = row_begin; batch < row_end; batch += kBackwardBatch) {
    __syncthreads();
    if (threadIdx.x < kBackwardBatch && batch + threadIdx.x < row_end) {
      const int64_t r = batch + threadIdx.x;
      const int64_t n = args.owner != nullptr ? args.owner[r] : r;
      RowScalars<A> s{A(0), A(0), A(0), A(0), A(0), n < 0 ? kRowZero : kRowNan, -1};
      if (n >= 0 && n < args.tokens.rows) {
        const LogpBackwardRow& row = args.row[n];
        s = row_scalars<A>(row, args.transform);
        const int64_t target = row.target - tile_column;
        if (row.target >= 0 && target >= 0 && target < kBackwardThreads * kSize)
          s.target = static_cast<int32_t>(target);
      }
      scalars[threadIdx.x] = s;
    }
    __syncthreads();
    const int count = static_cast<int>(row_end - batch < kBackwardBatch ? row_end - batch : kBackwardBatch);
    if (column >= columns) continue;
    const T* logits = static_cast<const T*>(args.logits) + batch * args.row_stride;
    Out* gradient = static_cast<Out*>(args.grad_logits) + batch * args.grad_row_stride + column;
    const auto load_row = [&](int row, Pack<T>& pack) {
      if (row >= count || scalars[row].state != kRowActive) return;
      const T* from = logits + row * args.row_stride;
      if (whole) {
        pack.bits = load_stream(from + column);
      } else {
        pack = load_pack(from, column, columns, lowest);
      }
    };
    Pack<T> packs[kBackwardRows];
#pragma unroll
    for (int k = 0; k < kBackwardRows; ++k) load_row(k, packs[k]);
    for (int first = 0; first < count; first += kBackwardRows) {
#pragma unroll
      for (int k = 0; k < kBackwardRows; ++k) {
        if (first + k >= count) break;
        const RowScalars<A> row = scalars[first + k];
        const Pack<T> pack = packs[k];
        load_row(first + k + kBackwardRows, packs[k]);
        A grad[kSize];
        if (row.state == kRowActive) {
          gradient_of_pack<T, kTransform, kEntropy>(pack, row, slope, bias, in_tile, grad);
          if constexpr (kMasked) {  // also the target's
            const uint8_t* keep = args.keep_mask + (batch + first + k) * columns + column;
#pragma unroll
            for (int i = 0; i < kSize; ++i) {
              if (column + i < columns && keep[i] == 0) grad[i] = A(0);
            }
          }
        } else {
#pragma unroll
          for (int i = 0; i < kSize; ++i) grad[i] = row.state == kRowZero ? A(0) : A(NAN);
        }
        if constexpr (kTransform) {
#pragma unroll
          for (int i = 0; i < kSize; ++i) total[i] += grad[i];
        }
        store_gradients<T>(gradient, columns - column, whole, grad);
        gradient += args.grad_row_stride;
      }
    }
  }
  if (kTransform && args.bias_part != nullptr && column < columns) {
    A* part = static_cast<A*>(args.bias_part) + chunk * columns;
#pragma unroll
    for (int i = 0; i < kSize; ++i) {
      if (column + i < columns) part[column + i] = total[i];
    }
  }
}

template <class T>
__device__ __forceinline__ void logp_backward_bias(const LogpBackwardArgs& args) {
  using A = Accumulator<T>;
  const A* part = static_cast<const A*>(args.bias_part);
  for (int64_t v = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x; v < args.tokens.vocab;
       v += static_cast<int64_t>(gridDim.x) * blockDim.x) {
    A sum = args.owner != nullptr && args.owner[args.tokens.logits_rows] == kOwnerNan ? A(NAN) : A(0);
    for (int64_t chunk = 0; chunk < args.chunks; ++chunk) sum += part[chunk * args.tokens.vocab + v];
    static_cast<A*>(args.grad_bias)[v] = sum;
  }
}

}  // namespace rlk::simt
