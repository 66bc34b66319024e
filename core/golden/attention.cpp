// Scaled dot-product attention: for each query, the scores of the keys it sees, their softmax, the weighted values.
// fp64.
#include <algorithm>
#include <cmath>

#include "core/golden/attention_rows.hpp"
#include "core/golden/tracked.hpp"

namespace rlk::golden {
namespace {

struct Score {
  int64_t j;
  double s;          // as declared
  double magnitude;  // s is off by eps times this
  double p;          // its share of the softmax
};

// Appends out (head_size numbers) and lse of query i, head h.
void attend(AttentionCall& call, const AttentionSequence& sequence, int64_t i, int64_t h, const AttentionRows& q,
            const AttentionRows& k, const AttentionRows& v) {
  const int64_t g = kv_head(call, h);
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
  if (call.lse.wanted) {
    // As in logp: d lse / d s[j] = p[j]; the maximum and the result are rounded; the sum is off by a relative eps.
    call.lse.value.push_back(lse);
    call.lse.cond.push_back(std::isfinite(lse) ? kTiny + 1 + std::fabs(max) + std::fabs(lse) + mean_magnitude : 0.0);
  }

  const auto size = static_cast<size_t>(call.D);
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
    call.out.value.push_back(out[d]);
    call.out.cond.push_back(std::isfinite(out[d]) && !scores.empty() ? cond[d] : 0.0);
    if (call.rounding) call.out.rounded.push_back(std::isfinite(out[d]) ? rounded[d] : 0.0);
  }
}

}  // namespace

// A bad cu_seqlens makes out and lse NaN as a whole.
DataError attention(AttentionCall& call) {
  if (const DataError error = check_seqlens(call); error.kind != kNoDataError) {
    const int64_t rows = call.Tq * call.Hq;
    fill(call.out, rows * call.D, kNan);
    if (call.rounding) call.out.rounded.assign(call.out.value.size(), 0.0);
    fill(call.lse, rows, kNan);
    return error;
  }
  for (const AttentionSequence& sequence : sequences_of(call)) {
    const Layout layout = call.params.layout;
    const AttentionRows q(call.q, layout, sequence.batch, sequence.q_first, sequence.q_length);
    const AttentionRows k(call.k, layout, sequence.batch, sequence.k_first, sequence.k_length);
    const AttentionRows v(call.v, layout, sequence.batch, sequence.k_first, sequence.k_length);
    for (int64_t i = 0; i < sequence.q_length; ++i) {
      for (int64_t h = 0; h < call.Hq; ++h) attend(call, sequence, i, h, q, k, v);
    }
  }
  return {};
}

}  // namespace rlk::golden
