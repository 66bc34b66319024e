// Scaled dot-product attention: for each query, the scores of the keys it sees, their softmax, the weighted values.
// fp64.
#include <rlk/ops/attention.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/golden/golden.hpp"

namespace rlk::golden {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// One sequence: its queries are tokens q_first .. q_first + q_length of q (or of batch entry `batch`), its keys
// likewise.
struct Sequence {
  int64_t batch, q_first, q_length, k_first, k_length;
};

double load(const View& tensor, Layout layout, int64_t batch, int64_t token, int64_t head, int64_t d) {
  return layout == Layout::dense ? tensor.load(batch, token, head, d) : tensor.load(token, head, d);
}

DataError check_seqlens(const View& cu_seqlens, int64_t total) {
  const int64_t last = cu_seqlens.shape[0] - 1;
  for (int64_t position = 0; position <= last; ++position) {
    const int64_t content = cu_seqlens.load_int(position);
    const bool bad = (position == 0 && content != 0) || (position > 0 && content < cu_seqlens.load_int(position - 1)) ||
                     (position == last && content != total);
    if (bad) return {kBadSeqlens, position, content};
  }
  return {};
}

bool visible(const AttentionCall& call, const Sequence& sequence, int64_t i, int64_t j) {
  const int64_t position = i + sequence.k_length - sequence.q_length;  // of the query, counted in keys
  if (call.causal == Causal::bottom_right && j > position) return false;
  if (call.window_left >= 0 && position - j > call.window_left) return false;
  if (call.window_right >= 0 && j - position > call.window_right) return false;
  return true;
}

// A sum that keeps what each addition rounds away (Neumaier): equal terms round the same way, so that even in fp64 a
// plain sum over many keys would be off by more than a good fp64 implementation is.
class Sum {
public:
  void add(double term) {
    const double total = total_ + term;
    rest_ += std::fabs(total_) >= std::fabs(term) ? (total_ - total) + term : (term - total) + total_;
    total_ = total;
  }
  double value() const { return std::isfinite(total_) ? total_ + rest_ : total_; }

private:
  double total_ = 0, rest_ = 0;
};

struct Shape {
  int64_t q_heads, kv_heads, head_size;
};

struct Score {
  int64_t j;
  double s;          // scale * q . k
  double magnitude;  // scale * |q| . |k|: s is off by eps times this
  double p;          // its share of the softmax
};

// Appends out (head_size numbers) and lse of one query.
void attend(const AttentionCall& call, const Shape& shape, const Sequence& sequence, int64_t i, int64_t h,
            AttentionResult& result) {
  const int64_t g = h / (shape.q_heads / shape.kv_heads);
  const double scale = call.scale > 0 ? call.scale : 1 / std::sqrt(static_cast<double>(shape.head_size));

  std::vector<Score> scores;
  for (int64_t j = 0; j < sequence.k_length; ++j) {
    if (!visible(call, sequence, i, j)) continue;
    Score score{j, 0, 0, 0};
    for (int64_t d = 0; d < shape.head_size; ++d) {
      const double product = load(call.q, call.layout, sequence.batch, sequence.q_first + i, h, d) *
                             load(call.k, call.layout, sequence.batch, sequence.k_first + j, g, d);
      score.s += scale * product;
      score.magnitude += scale * std::fabs(product);
    }
    scores.push_back(score);
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

  std::vector<double> values(scores.size());
  for (int64_t d = 0; d < shape.head_size; ++d) {
    Sum weighted;
    double absolute = 0, spread = 0;
    for (size_t at = 0; at < scores.size(); ++at) {
      values[at] = load(call.v, call.layout, sequence.batch, sequence.k_first + scores[at].j, g, d);
      weighted.add(scores[at].p * values[at]);
    }
    const double out = weighted.value();
    // The products and their sum are off by eps p |v|. d out / d s[j] = p[j] (v[j] - out), and the argument of exp is
    // off by eps (1 + magnitude + |max|).
    for (size_t at = 0; at < scores.size(); ++at) {
      absolute += scores[at].p * std::fabs(values[at]);
      spread += scores[at].p * std::fabs(values[at] - out) * (1 + scores[at].magnitude + std::fabs(max));
    }
    result.out.value.push_back(out);
    result.out.cond.push_back(std::isfinite(out) && !scores.empty() ? kTiny + absolute + spread : 0.0);
  }
}

}  // namespace

AttentionResult attention(const AttentionCall& call) {
  const bool dense = call.layout == Layout::dense;
  const int axis = dense ? 1 : 0;  // of the tokens
  const Shape shape{call.q.shape[axis + 1], call.k.shape[axis + 1], call.q.shape[axis + 2]};

  AttentionResult result;
  if (!dense) {
    result.error = check_seqlens(call.cu_seqlens_q, call.q.shape[0]);
    if (result.error.kind == kNoDataError) result.error = check_seqlens(call.cu_seqlens_k, call.k.shape[0]);
    if (result.error.kind != kNoDataError) {
      const auto rows = static_cast<size_t>(call.q.shape[0] * shape.q_heads);
      result.out.value.assign(rows * static_cast<size_t>(shape.head_size), kNan);
      result.out.cond.assign(result.out.value.size(), 0.0);
      if (call.want_lse) {
        result.lse.value.assign(rows, kNan);
        result.lse.cond.assign(rows, 0.0);
      }
      return result;
    }
  }

  const int64_t batch = dense ? call.q.shape[0] : call.cu_seqlens_q.shape[0] - 1;
  for (int64_t b = 0; b < batch; ++b) {
    Sequence sequence{b, 0, 0, 0, 0};
    if (dense) {
      sequence.q_length = call.q.shape[1];
      sequence.k_length = call.k.shape[1];
    } else {
      sequence.q_first = call.cu_seqlens_q.load_int(b);
      sequence.q_length = call.cu_seqlens_q.load_int(b + 1) - sequence.q_first;
      sequence.k_first = call.cu_seqlens_k.load_int(b);
      sequence.k_length = call.cu_seqlens_k.load_int(b + 1) - sequence.k_first;
    }
    for (int64_t i = 0; i < sequence.q_length; ++i) {
      for (int64_t h = 0; h < shape.q_heads; ++h) attend(call, shape, sequence, i, h, result);
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
  golden.layout = static_cast<Layout>(params.layout);
  golden.causal = static_cast<Causal>(params.causal);
  golden.window_left = params.window_left;
  golden.window_right = params.window_right;
  golden.scale = params.scale;
  golden.want_lse = call.wants(RLK_ATTENTION_OUT_LSE);
  AttentionResult result = attention(golden);
  return {{std::move(result.out), std::move(result.lse)}, result.error};
}

}  // namespace rlk::golden
