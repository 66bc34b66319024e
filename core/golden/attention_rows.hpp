// What attention and its backward agree on: sequences, which keys a query sees, and what a score is.
#pragma once

#include <rlk/sdk/ops/attention.hpp>

#include <cmath>
#include <span>
#include <vector>

#include "core/golden/operator.hpp"
#include "core/golden/sequences.hpp"
#include "core/golden/sum.hpp"

namespace rlk::golden {

using sdk::ops::attention::Causal;
using sdk::ops::attention::CausalAlignment;
using sdk::ops::attention::Layout;

// A call of attention, or what its backward has of one.
using AttentionCall = CallOf<sdk::ops::Attention>;

// Its queries are tokens q_first .. q_first + q_length of q (or of batch entry `batch`), its keys likewise.
struct AttentionSequence {
  int64_t batch, q_first, q_length, k_first, k_length;
};

inline int64_t kv_head(const AttentionCall& call, int64_t h) {
  return h / (call.Hq / call.Hkv);
}

// In the second input of lengths that an operator has.
inline DataError in_second(DataError error) {
  if (error.kind == kBadSeqlens) error.kind = kBadSecondSeqlens;
  return error;
}

// cu_seqlens_q are checked before cu_seqlens_k.
inline DataError check_seqlens(const AttentionCall& call) {
  if (call.params.layout == Layout::dense) return {};
  const DataError error = check_seqlens(call.cu_seqlens_q, call.Tq);
  return error.kind != kNoDataError ? error : in_second(check_seqlens(call.cu_seqlens_k, call.Tk));
}

// Of a call whose cu_seqlens are right.
inline std::vector<AttentionSequence> sequences_of(const AttentionCall& call) {
  std::vector<AttentionSequence> list;
  for (int64_t b = 0; b < call.B; ++b) {
    if (call.params.layout == Layout::dense) {
      list.push_back({b, 0, call.Sq, 0, call.Sk});
      continue;
    }
    const int64_t q_first = call.cu_seqlens_q.load_int(b), k_first = call.cu_seqlens_k.load_int(b);
    list.push_back({b, q_first, call.cu_seqlens_q.load_int(b + 1) - q_first, k_first,
                    call.cu_seqlens_k.load_int(b + 1) - k_first});
  }
  return list;
}

inline bool visible(const AttentionCall& call, const AttentionSequence& sequence, int64_t i, int64_t j) {
  const auto& params = call.params;
  const bool from_the_end = params.causal_alignment == CausalAlignment::bottom_right;
  const int64_t position = from_the_end ? i + sequence.k_length - sequence.q_length : i;  // of the query, among keys
  if (params.causal != Causal::off && j > position) return false;
  if (params.window_left >= 0 && position - j > params.window_left) return false;
  if (params.window_right >= 0 && j - position > params.window_right) return false;
  return !call.key_mask.present() || call.key_mask.load_int(sequence.batch, j) != 0;
}

inline double scale_of(const AttentionCall& call) {
  return call.params.scale > 0 ? call.params.scale : 1 / std::sqrt(static_cast<double>(call.D));
}

// The numbers of one sequence in a tensor [B, S, heads, D] or [T, heads, D], read once: each meets every other token.
class AttentionRows {
public:
  AttentionRows(const View& tensor, Layout layout, int64_t batch, int64_t first, int64_t length)
      : heads_(tensor.shape[tensor.ndim - 2]), size_(tensor.shape[tensor.ndim - 1]) {
    for (int64_t token = first; token < first + length; ++token) {
      for (int64_t h = 0; h < heads_; ++h) {
        for (int64_t d = 0; d < size_; ++d) {
          values_.push_back(layout == Layout::dense ? tensor.load(batch, token, h, d) : tensor.load(token, h, d));
        }
      }
    }
  }
  // Of the sequence's token.
  std::span<const double> operator()(int64_t token, int64_t head) const {
    return std::span(values_).subspan(static_cast<size_t>((token * heads_ + head) * size_), static_cast<size_t>(size_));
  }

private:
  int64_t heads_, size_;
  std::vector<double> values_;
};

struct AttentionDot {
  double value = 0, magnitude = 0;  // the value is off by eps times the magnitude
};

inline AttentionDot dot(std::span<const double> a, std::span<const double> b) {
  AttentionDot dot;
  Sum sum;
  for (size_t d = 0; d < a.size(); ++d) {
    sum.add(a[d] * b[d]);
    dot.magnitude += std::fabs(a[d] * b[d]);
  }
  dot.value = sum.value();
  return dot;
}

struct AttentionScore {
  double s = 0;          // as declared
  double magnitude = 0;  // s is off by eps times this
  double slope = 1;      // d s / d x, x being the score before the softcap
  double slope_cond = 0;
  bool exact = false;  // s is not rounded
};

inline AttentionScore score_of(const AttentionCall& call, double scale, std::span<const double> query,
                               std::span<const double> key) {
  const AttentionDot product = dot(query, key);
  AttentionScore score;
  score.s = scale * product.value;
  score.magnitude = scale * product.magnitude;
  int exponent = 0;
  const bool is_power_of_two = std::frexp(scale, &exponent) == 0.5;
  score.exact = is_power_of_two && call.params.softcap == 0 && is_exact_product(query, key, call.epsilon);
  if (call.params.softcap > 0) {
    // x and x / softcap are off by eps magnitude, tanh and its product by an eps of the result; 1 - tanh^2 moves by
    // 2 slope / softcap with x, and is off by an absolute eps.
    const double t = std::tanh(score.s / call.params.softcap);
    score.s = call.params.softcap * t;
    score.slope = 1 - t * t;
    score.slope_cond = 1 + 2 * score.slope * score.magnitude / call.params.softcap;
    score.magnitude = 2 * score.magnitude * score.slope + 2 * std::fabs(score.s);
  }
  return score;
}

}  // namespace rlk::golden
