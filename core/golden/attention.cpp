// Scaled dot-product attention: for each query, the scores of the keys it sees, their softmax, the weighted values.
// fp64.
#include <rlk/ops/attention.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/golden/attention_rows.hpp"

namespace rlk::golden {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

struct Score {
  int64_t j;
  double s;          // as declared
  double magnitude;  // s is off by eps times this
  double p;          // its share of the softmax
};

// Appends out (head_size numbers) and lse of query i, head h.
void attend(const AttentionCall& call, const AttentionShape& shape, const AttentionSequence& sequence, int64_t i,
            int64_t h, const AttentionRows& q, const AttentionRows& k, const AttentionRows& v,
            AttentionResult& result) {
  const int64_t g = shape.kv_head(h);
  const double scale = scale_of(call);
  std::vector<Score> scores;
  for (int64_t j = 0; j < sequence.k_length; ++j) {
    if (!visible(call, sequence, i, j)) continue;
    const AttentionScore score = score_of(call, scale, q(i, h), k(j, g));
    scores.push_back({j, score.s, score.magnitude, 0});
  }

  double max = -kInfinity;
  for (const Score& score : scores) max = std::isnan(score.s) ? score.s : std::max(max, score.s);
  Sum weights;
  for (const Score& score : scores) weights.add(std::exp(score.s - max));
  const double sum = weights.value();
  const double lse = scores.empty() ? -kInfinity : max + std::log(sum);

  double mean_magnitude = 0;  // of the scores' magnitudes under p
  for (Score& score : scores) {
    score.p = std::exp(score.s - max) / sum;  // not exp(s - lse): a large lse has lost the digits that matter
    mean_magnitude += score.p * score.magnitude;
  }
  if (call.want_lse) {
    // As in logp: d lse / d s[j] = p[j]; the maximum and the result are rounded; the sum is off by a relative eps.
    result.lse.value.push_back(lse);
    result.lse.cond.push_back(std::isfinite(lse) ? kTiny + 1 + std::fabs(max) + std::fabs(lse) + mean_magnitude : 0.0);
  }

  const auto size = static_cast<size_t>(shape.head_size);
  std::vector<Sum> weighted(size);
  for (const Score& score : scores) {
    const std::span<const double> value = v(score.j, g);
    for (size_t d = 0; d < size; ++d) weighted[d].add(score.p * value[d]);
  }
  std::vector<double> out(size), cond(size, kTiny), rounded(size);
  for (size_t d = 0; d < size; ++d) out[d] = weighted[d].value();
  // The products and their sum are off by eps p |v|. d out / d s[j] = p[j] (v[j] - out), and the argument of exp is off
  // by eps (1 + magnitude + |max|).
  for (const Score& score : scores) {
    const std::span<const double> value = v(score.j, g);
    const double argument = 1 + score.magnitude + std::fabs(max);
    const double rounding = call.rounding.of(score.p);
    for (size_t d = 0; d < size; ++d) {
      rounded[d] += rounding * std::fabs(value[d]);
      cond[d] += score.p * (std::fabs(value[d]) + std::fabs(value[d] - out[d]) * argument);
    }
  }
  for (size_t d = 0; d < size; ++d) {
    result.out.value.push_back(out[d]);
    result.out.cond.push_back(std::isfinite(out[d]) && !scores.empty() ? cond[d] : 0.0);
    if (call.rounding) result.out.rounded.push_back(std::isfinite(out[d]) ? rounded[d] : 0.0);
  }
}

}  // namespace

AttentionResult attention(const AttentionCall& call) {
  const AttentionShape shape(call);
  AttentionResult result;
  result.error = check_seqlens(call);
  if (result.error.kind != kNoDataError) {
    const auto rows = static_cast<size_t>(call.q.shape[0] * shape.q_heads);
    result.out.value.assign(rows * static_cast<size_t>(shape.head_size), kNan);
    result.out.cond.assign(result.out.value.size(), 0.0);
    if (call.rounding) result.out.rounded.assign(result.out.value.size(), 0.0);
    if (call.want_lse) {
      result.lse.value.assign(rows, kNan);
      result.lse.cond.assign(rows, 0.0);
    }
    return result;
  }
  for (const AttentionSequence& sequence : sequences_of(call)) {
    const AttentionRows q(call.q, call.layout, sequence.batch, sequence.q_first, sequence.q_length);
    const AttentionRows k(call.k, call.layout, sequence.batch, sequence.k_first, sequence.k_length);
    const AttentionRows v(call.v, call.layout, sequence.batch, sequence.k_first, sequence.k_length);
    for (int64_t i = 0; i < sequence.q_length; ++i) {
      for (int64_t h = 0; h < shape.q_heads; ++h) attend(call, shape, sequence, i, h, q, k, v, result);
    }
  }
  return result;
}

Answer answer_attention(const Call& call) {
  const auto& params = call.params_as<rlk_attention_params>();
  AttentionCall golden;
  golden.q = call[RLK_ATTENTION_IN_Q];
  golden.k = call[RLK_ATTENTION_IN_K];
  golden.v = call[RLK_ATTENTION_IN_V];
  golden.cu_seqlens_q = call[RLK_ATTENTION_IN_CU_SEQLENS_Q];
  golden.cu_seqlens_k = call[RLK_ATTENTION_IN_CU_SEQLENS_K];
  golden.key_mask = call[RLK_ATTENTION_IN_KEY_MASK];
  golden.layout = static_cast<Layout>(params.layout);
  golden.causal = static_cast<Causal>(params.causal);
  golden.causal_alignment = static_cast<CausalAlignment>(params.causal_alignment);
  golden.window_left = params.window_left;
  golden.window_right = params.window_right;
  golden.scale = params.scale;
  golden.softcap = params.softcap;
  golden.want_lse = call.wants(RLK_ATTENTION_OUT_LSE);
  golden.rounding = call.rounding;
  AttentionResult result = attention(golden);
  return {{std::move(result.out), std::move(result.lse)}, result.error};
}

}  // namespace rlk::golden
