// linear_logp_backward for bf16 on the warpgroup products of sm_90a: the scores' gradients, as the operand of the
// products that follow, made where the scores are, in registers.
//
// The rows kernel prepares what logp_backward prepares for each row, for which it needs one score, the target's. The
// tiles kernel turns every score of its tile (linear_tiles_wgmma.cuh) into its slope by logp_backward's own formula. Of
// eight neighbouring slopes each lane of a quad has two: the four trade, until each has all of every fourth eight and
// writes 16 bytes at a time. A row's slopes depend on that row alone.
#pragma once

#include "../../simt/logp_backward.cuh"
#include "linear_slopes_wgmma.h"
#include "linear_tiles_wgmma.cuh"

namespace rlk::cuda_kernels {

using cuda::LinearSlopeRow;
using cuda::LinearSlopesWgmmaArgs;

// --- rows ------------------------------------------------------------------------------------------------------------

// hidden . weight of one entry, by a wave; every lane has it. Products of bf16 are exact in fp32, their sum is of fp64.
template <class T>
__device__ __forceinline__ double wave_product(const T* hidden, const T* weight, int64_t inner) {
  using Pack = simt::Pack<T>;
  double sum = 0;
  const int lane = static_cast<int>(threadIdx.x) % simt::kWave;
  for (int64_t at = lane * Pack::kSize; at < inner; at += simt::kWave * Pack::kSize) {
    Pack a, b;
    a.bits = *reinterpret_cast<const uint4*>(hidden + at);
    b.bits = *reinterpret_cast<const uint4*>(weight + at);
    float x[Pack::kSize], y[Pack::kSize];
    a.unpack(x);
    b.unpack(y);
#pragma unroll
    for (int i = 0; i < Pack::kSize; ++i) sum += static_cast<double>(x[i] * y[i]);
  }
  for (int lanes = 1; lanes < simt::kWave; lanes *= 2) sum += simt::wave_xor(sum, lanes);
  return sum;
}

// x + bias as the tiles know it, in fp32.
template <class T>
__device__ __forceinline__ float score_of_entry(const LinearSlopesWgmmaArgs& args, int64_t n, int64_t v) {
  const T* const hidden = static_cast<const T*>(args.hidden_rows) + n * args.inner;
  const T* const weight = static_cast<const T*>(args.weight_rows) + v * args.weight_stride;
  const double sum = wave_product(hidden, weight, args.inner);
  const double bias = args.transform.bias != nullptr ? simt::widen(static_cast<const T*>(args.transform.bias)[v]) : 0;
  return static_cast<float>(sum + bias);
}

// Whether every score of the row is -inf; all threads of the block take part. Most rows that are asked about have a NaN
// in the first score.
template <class T>
__device__ __forceinline__ bool has_no_score(const LinearSlopesWgmmaArgs& args, int64_t n) {
  constexpr int kWaves = cuda::kLinearSlopeRowThreads / simt::kWave;
  const int wave = static_cast<int>(threadIdx.x) / simt::kWave;
  for (int64_t first = 0; first < args.tokens.vocab; first += kWaves) {
    const int64_t v = first + wave;
    const bool is_nothing = v >= args.tokens.vocab || score_of_entry<T>(args, n, v) == -INFINITY;
    if (__syncthreads_and(is_nothing) == 0) return false;
  }
  return true;
}

template <class T>
__device__ __forceinline__ void linear_slopes_rows(const LinearSlopesWgmmaArgs& args) {
  const int64_t n = blockIdx.x;
  simt::Token token = simt::resolve_token(args.tokens, n);
  simt::RowGradients given{};
  if (token.state == simt::kRowActive) {
    given.lse = args.lse[n];
    // A row of -inf alone has lse -inf or NaN (a shard's may be finite).
    const bool is_doubtful = args.tokens.sharded == 0 && !(given.lse > -INFINITY);
    if (is_doubtful && has_no_score<T>(args, n)) token = {simt::kRowNan, simt::kDataNoFiniteLogit, 0, n, -1};
  }
  if (threadIdx.x >= simt::kWave) return;
  simt::LogpBackwardRow row{0, 0, 0, 0, 0, -1, token.state, 0};
  if (token.state == simt::kRowActive) {
    given.of_logp = args.grad_logp_is_accumulator != 0 ? static_cast<const float*>(args.grad_logp)[n]
                                                       : simt::widen(static_cast<const T*>(args.grad_logp)[n]);
    if (args.grad_lse != nullptr) given.of_lse = args.grad_lse[n];
    if (args.grad_entropy != nullptr) {
      given.of_entropy = args.grad_entropy[n];
      given.entropy = args.entropy[n];
    }
    row = simt::backward_row(token, given, args.transform);
    if (token.target >= 0) {
      const double target = score_of_entry<T>(args, n, token.target);
      row.target_gradient = simt::target_gradient(target, row, given, args.transform);
    }
  }
  if (threadIdx.x != 0) return;
  if (token.state == simt::kRowNan) {
    simt::report_data_error(args.errors, token.kind, args.first_row + n, token.value);
  }
  const simt::RowScalars<float> s = simt::row_scalars<float>(row, args.transform);
  args.row[n] = {
      s.base, s.base_low_power, s.gain, s.entropy_gain, s.target_gradient, s.state, static_cast<int32_t>(row.target),
      0};
}

// --- tiles -----------------------------------------------------------------------------------------------------------

// word[i] of lane q of a quad, a word of a pack i, becomes the pack q, whose word k was lane k's.
__device__ __forceinline__ uint4 trade_in_quad(const uint32_t (&word)[4], int q) {
  const bool odd = (q & 1) != 0, high = (q & 2) != 0;
  uint32_t half[4];  // words q & 2 and the one behind, of the packs q & 1 and the second one behind
#pragma unroll
  for (int i = 0; i < 4; i += 2) {
    const uint32_t theirs = simt::wave_xor(odd ? word[i] : word[i + 1], 1);
    half[i] = odd ? theirs : word[i];
    half[i + 1] = odd ? word[i + 1] : theirs;
  }
  const uint32_t first = simt::wave_xor(high ? half[0] : half[2], 2);
  const uint32_t second = simt::wave_xor(high ? half[1] : half[3], 2);
  return high ? uint4{first, second, half[2], half[3]} : uint4{half[0], half[1], first, second};
}

// The work of warpgroup 0 or 1 of those that compute.
template <class T, class Form>
__device__ __forceinline__ void compute_slopes(const LinearSlopesWgmmaArgs& args, uint32_t shared, const int* numbers,
                                               int warpgroup) {
  static_assert(simt::kIsBf16<T>, "a row's NaN has bf16's bits, and slopes of f16 need a scale");
  constexpr int kPack = cuda::kLinearSlopePack, kQuad = 4;
  const int thread = static_cast<int>(threadIdx.x) % 128, lane = thread % 32, q = lane % kQuad;
  const int own_row = warpgroup * 64 + thread / 32 * 16 + lane / kQuad;
  LinearRing ring{shared, 0};
  for (LinearTiles tiles; tiles.next(args, ring, numbers);) {
    LinearScores<T> scores;
    sum_slabs(scores, ring, args.slabs, warpgroup);

    const int left = static_cast<int>(args.tokens.vocab) - tiles.column;
    const T* const given = static_cast<const T*>(args.transform.bias);
    const simt::Slope<float> slope{args.softcap, args.inverse_softcap, args.transform.exp2_scale};
#pragma unroll
    for (int h = 0; h < 2; ++h) {  // one row's scalars at a time: registers
      const int n = tiles.row + own_row + 8 * h;
      const bool is_here = n < static_cast<int>(args.tokens.rows);
      LinearSlopeRow its{0, 0, 0, 0, 0, simt::kRowZero, -1, 0};
      if (is_here) its = args.row[n];
      const simt::RowScalars<float> row{its.base,  its.base_low_power, its.gain, its.entropy_gain, its.target_gradient,
                                        its.state, its.target};
      // Pairs of slopes of a row that has none are 0, or NaN.
      const uint32_t keep = row.state == simt::kRowActive ? 0xffffffffu : 0;
      const uint32_t fill = row.state == simt::kRowNan ? 0x7fc07fc0u : 0;
      T* const to = static_cast<T*>(args.slopes) + n * args.slopes_stride + tiles.column + q * kPack;
#pragma unroll
      for (int j = 0; j < LinearScores<T>::kN; j += kQuad) {
        uint32_t word[kQuad];
#pragma unroll
        for (int i = 0; i < kQuad; ++i) {
          float slopes[2];
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            const int column = kPack * (j + i) + 2 * q + e;
            float bias = 0;
            if (Form::kTransform && given != nullptr && column < left) bias = simt::widen(given[tiles.column + column]);
            slopes[e] =
                simt::slope_of<float, Form::kTransform, Form::kEntropy>(scores.x[j + i][2 * h + e], bias, row, slope);
          }
          word[i] = (simt::narrow_pair(slopes[0], slopes[1], T()) & keep) | fill;
        }
        const uint4 pack = trade_in_quad(word, q);
        // The last pack of a row may reach beyond the vocabulary; the products read up to it alone.
        if (is_here && kPack * (j + q) < left) simt::store_stream(to + kPack * j, pack);
      }
      // The target's, by the lane that wrote over its place.
      const int target = row.target - tiles.column;
      if (target >= 0 && target < kLinearColumns && target / kPack % kQuad == q) {
        to[target - q * kPack] = simt::Narrow<T>::of(row.target_gradient);
      }
    }
  }
}

template <class T, class Form>
__device__ __forceinline__ void linear_slopes_wgmma(const LinearSlopesWgmmaArgs& args) {
  const uint32_t shared = (shared_address(simt::dynamic_shared()) + 1023) & ~1023u;
  walk_linear_tiles(args, shared, [&](int warpgroup, const int* numbers) {
    compute_slopes<T, Form>(args, shared, numbers, warpgroup);
  });
}

}  // namespace rlk::cuda_kernels
