// logp: how one read of the logits gives log-probability, lse and entropy.
//
// A row is cut into segments whose length depends on the dtype alone. A block reads a few neighbouring segments of one
// row once, the next packs under way while it computes on these, and leaves {max, sum, weighted} of each segment; a
// second, tiny kernel adds the segments of a row in order and finishes it. A row's bits depend on that row only: how
// many segments a block takes changes nothing, so a few rows fill a device as well as thousands do. Cost: V * sizeof(T)
// bytes a row. Each thread keeps a running maximum and rescales its sums once per tile, not once per element.
#pragma once

#include "element.cuh"
#include "tokens.cuh"

namespace rlk::simt {

template <class A>
struct LogpState {
  A max, sum, weighted, squares;
};

// 2^((a - b) scale), 0 when a is -inf (b too then, or not).
template <class A>
__device__ __forceinline__ A scale_between(A a, A b, A scale) {
  return a == b ? A(1) : exp2_fast((a - b) * scale);
}

// a b + c d without contraction: a fused product would favour one side.
__device__ __forceinline__ float sum_of_products(float a, float b, float c, float d) {
  return __fadd_rn(__fmul_rn(a, b), __fmul_rn(c, d));
}
__device__ __forceinline__ double sum_of_products(double a, double b, double c, double d) {
  return __dadd_rn(__dmul_rn(a, b), __dmul_rn(c, d));
}

// Two disjoint parts of a row. Symmetric to the bit, so that every lane of a butterfly holds the same result.
template <class A, bool kEntropy, bool kOptions>
__device__ __forceinline__ LogpState<A> merge(const LogpState<A>& p, const LogpState<A>& q, A scale) {
  const A top = p.max > q.max ? p.max : q.max;
  if (top == -A(INFINITY)) {
    return LogpState<A>{top, p.sum + q.sum, p.weighted + q.weighted, kOptions ? p.squares + q.squares : A(0)};
  }
  const A fp = scale_between(p.max, top, scale), fq = scale_between(q.max, top, scale);
  LogpState<A> out{top, sum_of_products(p.sum, fp, q.sum, fq), A(0), A(0)};
  if constexpr (kOptions) out.squares = sum_of_products(p.squares, fp * fp, q.squares, fq * fq);
  if constexpr (kEntropy) {
    // exp(d) d with d measured from the new maximum: d grows by (max - top) * scale.
    const A dp = p.max == -A(INFINITY) ? A(0) : (p.max - top) * scale;
    const A dq = q.max == -A(INFINITY) ? A(0) : (q.max - top) * scale;
    out.weighted = sum_of_products(p.weighted + dp * p.sum, fp, q.weighted + dq * q.sum, fq);
  }
  return out;
}

// Adds kCount values to a thread's state: one new maximum, one rescaling, then value by value.
template <class A, int kCount, bool kEntropy, bool kOptions>
__device__ __forceinline__ void accumulate(LogpState<A>& state, const A (&y)[kCount], A top, A scale) {
  top = state.max > top ? state.max : top;
  const A base = top == -A(INFINITY) ? A(0) : top;
  if (state.max != top) {
    // state.max < top, and -inf gives 0: what was summed under -inf is 0 (or NaN, and stays so).
    const A factor = exp2_fast((state.max - base) * scale);
    if constexpr (kEntropy) {
      const A shift = state.max == -A(INFINITY) ? A(0) : (state.max - base) * scale;
      state.weighted = (state.weighted + shift * state.sum) * factor;
    }
    if constexpr (kOptions) state.squares *= factor * factor;
    state.sum *= factor;
    state.max = top;
  }
  A sum[2] = {A(0), A(0)};
  A weighted[2] = {A(0), A(0)};
  A squares[2] = {A(0), A(0)};
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    // The difference first: it is exact or nearly so, and cannot overflow upwards.
    const A d = (y[i] - base) * scale;
    const A e = exp2_fast(d);
    sum[i & 1] += e;
    if constexpr (kEntropy) weighted[i & 1] += e * (d > A(-1024) ? d : A(-1024));  // -inf contributes 0
    if constexpr (kOptions) squares[i & 1] += e * e;
  }
  state.sum += sum[0] + sum[1];
  if constexpr (kEntropy) state.weighted += weighted[0] + weighted[1];
  if constexpr (kOptions) state.squares += squares[0] + squares[1];
}

// The largest of kLoads packs. A NaN may be missed here: the sums carry it.
template <class T, int kLoads>
__device__ __forceinline__ Accumulator<T> largest(const Pack<T> (&packs)[kLoads]) {
  Accumulator<T> top = -Accumulator<T>(INFINITY);
#pragma unroll
  for (int u = 0; u < kLoads; ++u) {
    Accumulator<T> x[Pack<T>::kSize];
    packs[u].unpack(x);
#pragma unroll
    for (int i = 0; i < Pack<T>::kSize; ++i) top = x[i] > top ? x[i] : top;
  }
  return top;
}

// 16-bit types compare two at a time.
template <class T, int kLoads>
__device__ __forceinline__ float largest_paired(const Pack<T> (&packs)[kLoads]) {
  uint32_t top = packs[0].bits.x;
#pragma unroll
  for (int u = 0; u < kLoads; ++u) {
    const uint32_t pair[4] = {packs[u].bits.x, packs[u].bits.y, packs[u].bits.z, packs[u].bits.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) top = max_pair(top, pair[i], T());
  }
  T half[2];
  __builtin_memcpy(half, &top, sizeof(half));
  const float low = widen(half[0]), high = widen(half[1]);
  const float one = low > high ? low : high;
  return one == one ? one : -INFINITY;
}
template <int kLoads>
__device__ __forceinline__ float largest(const Pack<bf16> (&packs)[kLoads]) {
  return largest_paired(packs);
}
template <int kLoads>
__device__ __forceinline__ float largest(const Pack<f16> (&packs)[kLoads]) {
  return largest_paired(packs);
}

// One state per thread and segment, for the waves to add up.
template <class A, bool kOptions>
struct LogpShared {
  A max[kLogpBlockSegments][kLogpThreads], sum[kLogpBlockSegments][kLogpThreads],
      weighted[kLogpBlockSegments][kLogpThreads];
};
template <class A>
struct LogpShared<A, true> : LogpShared<A, false> {
  A squares[kLogpBlockSegments][kLogpThreads];
};

// squares: with kOptions, nullptr where they are not wanted.
template <class A, bool kEntropy, bool kOptions>
__device__ __forceinline__ void reduce_and_store(const LogpShared<A, kOptions>& shared, int segments, A scale,
                                                 LogpPartial* out, double* squares) {
  const int lane = static_cast<int>(threadIdx.x) % kWave;
  for (int s = static_cast<int>(threadIdx.x) / kWave; s < segments; s += kLogpThreads / kWave) {
    LogpState<A> state{-A(INFINITY), A(0), A(0), A(0)};
    for (int t = lane; t < kLogpThreads; t += kWave) {
      LogpState<A> other{shared.max[s][t], shared.sum[s][t], kEntropy ? shared.weighted[s][t] : A(0), A(0)};
      if constexpr (kOptions) other.squares = shared.squares[s][t];
      state = merge<A, kEntropy, kOptions>(state, other, scale);
    }
#pragma unroll
    for (int lanes = kWave / 2; lanes > 0; lanes /= 2) {
      LogpState<A> other{wave_xor(state.max, lanes), wave_xor(state.sum, lanes), A(0), A(0)};
      if constexpr (kEntropy) other.weighted = wave_xor(state.weighted, lanes);
      if constexpr (kOptions) other.squares = wave_xor(state.squares, lanes);
      state = merge<A, kEntropy, kOptions>(state, other, scale);
    }
    if (lane == 0) out[s] = LogpPartial{state.max, state.sum, state.weighted};
    if (kOptions && lane == 0 && squares != nullptr) squares[s] = state.squares;
  }
}

// kTransform: bias or softcap is present. Without them the maximum can be taken of the raw logits, two at a time.
// kOptions: keep_mask is present or sum_p2 wanted; kTransform too.
template <class T, bool kTransform, bool kEntropy, bool kOptions>
__device__ __forceinline__ void logp_segments(const LogpArgs& args) {
  using A = Accumulator<T>;
  constexpr int kLoads = logp_loads(kTransform);
  constexpr int kSize = Pack<T>::kSize;
  constexpr int64_t kStep = static_cast<int64_t>(kLogpThreads) * kSize;
  constexpr int64_t kTile = kStep * kLoads;
  constexpr int64_t kSegment = logp_segment_length(sizeof(T));
  constexpr int kSegmentTiles = static_cast<int>(kSegment / kTile);
  static_assert(kSegment % kTile == 0);
  __shared__ LogpShared<A, kOptions> shared;
  static_assert(sizeof(LogpShared<A, kOptions>) <= 64 * 1024 && kLogpThreads % kWave == 0, "on every vendor's device");
  const A scale = sizeof(A) == 4 ? A(args.transform.exp2_scale) : A(1.4426950408889634074 / args.transform.temperature);
  const A softcap = A(args.transform.softcap);
  const A inverse_softcap = softcap > A(0) ? A(1.0 / args.transform.softcap) : A(0);
  const T* bias = static_cast<const T*>(args.transform.bias);
  const T lowest = Narrow<T>::of(-A(INFINITY));
  const int64_t groups = (args.segments + args.block_segments - 1) / args.block_segments;

  for (int64_t item = blockIdx.x; item < args.tokens.rows * groups; item += gridDim.x) {
    const int64_t n = item / groups, first_segment = (item - n * groups) * args.block_segments;
    const Token token = resolve_token(args.tokens, n);
    if (token.state != kRowActive) continue;
    const T* row = static_cast<const T*>(args.logits) + token.logits_row * args.row_stride;
    [[maybe_unused]] const uint8_t* keep = nullptr;
    if constexpr (kOptions) {
      if (args.keep_mask != nullptr) keep = args.keep_mask + token.logits_row * args.tokens.vocab;
    }
    const int64_t begin = first_segment * kSegment;
    const int64_t limit = begin + args.block_segments * kSegment;
    const int64_t end = limit < args.tokens.vocab ? limit : args.tokens.vocab;
    const int tiles = static_cast<int>((end - begin + kTile - 1) / kTile);

    const auto load_tile = [&](int64_t tile, Pack<T>(&packs)[kLoads]) {
      const int64_t first = tile + static_cast<int64_t>(threadIdx.x) * kSize;
      if (args.aligned != 0 && tile + kTile <= end) {
#pragma unroll
        for (int u = 0; u < kLoads; ++u) packs[u].bits = load_stream(row + first + u * kStep);
      } else {
#pragma unroll
        for (int u = 0; u < kLoads; ++u) packs[u] = load_pack(row, first + u * kStep, end, lowest);
      }
    };
    LogpState<A> state{-A(INFINITY), A(0), A(0), A(0)};
    Pack<T> next[kLoads];
    load_tile(begin, next);
    for (int t = 0; t < tiles; ++t) {
      const int64_t tile = begin + t * kTile;
      Pack<T> packs[kLoads];
#pragma unroll
      for (int u = 0; u < kLoads; ++u) packs[u] = next[u];
      if (t + 1 < tiles) load_tile(tile + kTile, next);
      A y[kLoads * kSize];
#pragma unroll
      for (int u = 0; u < kLoads; ++u) {
        A x[kSize];
        packs[u].unpack(x);
#pragma unroll
        for (int i = 0; i < kSize; ++i) y[u * kSize + i] = x[i];
      }
      A top = -A(INFINITY);
      if constexpr (kTransform) {
        const int64_t first = tile + static_cast<int64_t>(threadIdx.x) * kSize;
#pragma unroll
        for (int i = 0; i < kLoads * kSize; ++i) {
          const int64_t column = first + (i / kSize) * kStep + i % kSize;
          if (column < end) {
            y[i] = cap_logit(y[i], bias != nullptr ? widen(bias[column]) : A(0), softcap, inverse_softcap);
            if constexpr (kOptions) {
              if (keep != nullptr && keep[column] == 0) y[i] = -A(INFINITY);
            }
          }
          top = y[i] > top ? y[i] : top;
        }
      } else {
        top = largest(packs);
      }
      accumulate<A, kLoads * kSize, kEntropy, kOptions>(state, y, top, scale);
      if ((t + 1) % kSegmentTiles == 0 || t + 1 == tiles) {
        const int s = t / kSegmentTiles;
        shared.max[s][threadIdx.x] = state.max;
        shared.sum[s][threadIdx.x] = state.sum;
        if constexpr (kEntropy) shared.weighted[s][threadIdx.x] = state.weighted;
        if constexpr (kOptions) shared.squares[s][threadIdx.x] = state.squares;
        state = LogpState<A>{-A(INFINITY), A(0), A(0), A(0)};
      }
    }
    __syncthreads();
    double* squares = nullptr;
    if constexpr (kOptions) {
      if (args.squares != nullptr) squares = args.squares + n * args.segments + first_segment;
    }
    reduce_and_store<A, kEntropy, kOptions>(shared, (tiles + kSegmentTiles - 1) / kSegmentTiles, scale,
                                            args.part + n * args.segments + first_segment, squares);
    __syncthreads();  // before the next item writes shared again
  }
}

// One thread per row: the segments in order, then everything that needs a row's own values, in fp64.
template <class T>
__device__ __forceinline__ void logp_finish(const LogpArgs& args) {
  using A = Accumulator<T>;
  const double scale = 1.4426950408889634074 / args.transform.temperature;
  const T* bias = static_cast<const T*>(args.transform.bias);
  for (int64_t n = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x; n < args.tokens.rows;
       n += static_cast<int64_t>(gridDim.x) * blockDim.x) {
    const Token token = resolve_token(args.tokens, n);
    double logp = 0, lse = 0, entropy = 0, sum_p2 = 0;
    if (token.state == kRowNan) {
      report_data_error(args.errors, token.kind, n, token.value);
      logp = lse = entropy = sum_p2 = NAN;
    } else if (token.state == kRowActive) {
      const LogpPartial* part = args.part + n * args.segments;
      double top = -INFINITY;
      for (int64_t s = 0; s < args.segments; ++s) top = part[s].max > top ? part[s].max : top;
      double sum = 0, weighted = 0, squares = 0;
      for (int64_t s = 0; s < args.segments; ++s) {
        if (part[s].max == -INFINITY) {
          sum += part[s].sum;  // 0, or NaN
          continue;
        }
        const double shift = (part[s].max - top) * scale, factor = exp2(shift);
        sum += part[s].sum * factor;
        weighted += (part[s].weighted + shift * part[s].sum) * factor;
        if (args.squares != nullptr) squares += args.squares[n * args.segments + s] * (factor * factor);
      }
      if (sum == 0) {  // every logit here is -inf
        logp = lse = -INFINITY;
        if (args.tokens.sharded == 0) {
          report_data_error(args.errors, kDataNoFiniteLogit, n, 0);
          logp = lse = entropy = sum_p2 = NAN;
        }
      } else {
        const double log_sum = log(sum);
        lse = top / args.transform.temperature + log_sum;
        entropy = log_sum - weighted / sum * 0.69314718055994530942;
        sum_p2 = squares / (sum * sum);
        if (sum_p2 > 1) sum_p2 = 1;  // rounding
        logp = -INFINITY;            // another shard's
        const bool is_kept =
            token.target >= 0 &&
            (args.keep_mask == nullptr || args.keep_mask[token.logits_row * args.tokens.vocab + token.target] != 0);
        if (token.target >= 0 && !is_kept && sum != sum) logp = sum;
        if (is_kept) {
          const T* row = static_cast<const T*>(args.logits) + token.logits_row * args.row_stride;
          const A softcap = A(args.transform.softcap);
          const A inverse_softcap = softcap > A(0) ? A(1.0 / args.transform.softcap) : A(0);
          const A y = cap_logit(A(widen(row[token.target])), bias != nullptr ? A(widen(bias[token.target])) : A(0),
                                softcap, inverse_softcap);
          // Not above the top, also where another kernel's compiler rounds the cap another way.
          logp = ((y > top ? top : y) - top) / args.transform.temperature - log_sum;
        }
      }
    }
    if (args.logp_is_accumulator != 0) {
      static_cast<A*>(args.logp)[n] = Narrow<A>::of(logp);
    } else {
      static_cast<T*>(args.logp)[n] = Narrow<T>::of(logp);
    }
    if (args.lse != nullptr) static_cast<A*>(args.lse)[n] = Narrow<A>::of(lse);
    if (args.entropy != nullptr) static_cast<A*>(args.entropy)[n] = Narrow<A>::of(entropy);
    if (args.sum_p2 != nullptr) static_cast<A*>(args.sum_p2)[n] = Narrow<A>::of(sum_p2);
  }
}

}  // namespace rlk::simt
