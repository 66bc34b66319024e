// The gradients of attention with respect to q, k and v: the declaration's formula, pair by pair of query and key,
// fp64.
#include <rlk/sdk/forward.hpp>
#include <rlk/sdk/ops/attention_backward.hpp>

#include <cmath>

#include "core/golden/attention_rows.hpp"
#include "core/golden/tracked.hpp"

namespace rlk::golden {
namespace {

using BackwardCall = CallOf<sdk::ops::AttentionBackward>;

// A gradient under construction: for each element the sum of its terms, of their conditions, and of what they move by
// when factors are rounded. Terms are those of a query head; `group` query heads make one head of `like`.
class Gradient {
public:
  Gradient(const View& like, int64_t group, Layout layout, const Rounding& rounding)
      : layout_(layout), group_(group), shape_(like.shape, like.shape + like.ndim), rounding_(rounding) {
    shape_[layout_ == Layout::dense ? 2 : 1] *= group_;
    int64_t count = 1;
    for (const int64_t size : shape_) count *= size;
    sums_.resize(static_cast<size_t>(count));
    conds_.resize(sums_.size());
    if (rounding_) rounded_.resize(sums_.size());
  }

  // Adds factor * values to a row. factor is off by eps factor_cond, products and sums by an eps of their magnitude;
  // the factor is an intermediate that may be rounded, and off by `lost` where rounding is allowed.
  void add(int64_t batch, int64_t token, int64_t head, double factor, double factor_cond, double lost,
           std::span<const double> values) {
    const size_t axis = layout_ == Layout::dense ? 1 : 0;
    const int64_t row = (layout_ == Layout::dense ? batch * shape_[axis] : 0) + token;
    const auto first = static_cast<size_t>((row * shape_[axis + 1] + head) * shape_[axis + 2]);
    const double rounding = rounding_.of(factor) + lost;
    for (size_t d = 0; d < values.size(); ++d) {
      sums_[first + d].add(factor * values[d]);
      conds_[first + d] += kTiny + (factor_cond + std::fabs(factor)) * std::fabs(values[d]);
      if (rounding_) rounded_[first + d] += rounding * std::fabs(values[d]);
    }
  }

  void write(Output& output, bool all_nan, double scale) const {
    const auto row = static_cast<size_t>(shape_.back()), group = static_cast<size_t>(group_);
    for (size_t first = 0; first < sums_.size(); first += group * row) {
      for (size_t d = 0; d < row; ++d) write(output, all_nan, scale, first + d);
    }
  }

private:
  // The heads of a group from element i on.
  void write(Output& output, bool all_nan, double scale, size_t i) const {
    Sum sum;
    double cond_sum = 0, rounding = 0;
    for (size_t end = i + static_cast<size_t>(group_ * shape_.back()); i < end;
         i += static_cast<size_t>(shape_.back())) {
      sum.add(sums_[i].value());
      cond_sum += conds_[i];
      if (!rounding_) continue;
      rounding += scale * rounded_[i];
      if (group_ > 1) rounding += rounding_.of(scale * sums_[i].value());
    }
    const double value = all_nan ? kNan : scale * sum.value();
    output.value.push_back(value);
    const double cond = std::isnan(cond_sum) ? kInfinity : scale * cond_sum;
    output.cond.push_back(std::isfinite(value) ? cond : 0.0);
    if (rounding_) output.rounded.push_back(std::isfinite(value) ? rounding : 0.0);
  }

  Layout layout_;
  int64_t group_;
  std::vector<int64_t> shape_;  // with query heads
  std::vector<Sum> sums_;
  std::vector<double> conds_;
  Rounding rounding_;
  std::vector<double> rounded_;
};

double load_row(const View& tensor, Layout layout, int64_t batch, int64_t token, int64_t head) {
  return layout == Layout::dense ? tensor.load(batch, token, head) : tensor.load(token, head);
}

class Backward {
public:
  explicit Backward(BackwardCall& call)
      : call_(call),
        forward_(sdk::forward_of<AttentionCall>(call)),
        scale_(scale_of(forward_)),
        grad_q_(call.q, 1, call.params.layout, call.rounding),
        grad_k_(call.k, group_of(call), call.params.layout, call.rounding),
        grad_v_(call.v, group_of(call), call.params.layout, call.rounding) {}

  void add_sequence(const AttentionSequence& sequence) {
    const auto of_queries = [&](const View& tensor) {
      return AttentionRows(tensor, call_.params.layout, sequence.batch, sequence.q_first, sequence.q_length);
    };
    const AttentionRows q = of_queries(forward_.q), out = of_queries(call_.out), grad_out = of_queries(call_.grad_out);
    const AttentionRows k(call_.k, call_.params.layout, sequence.batch, sequence.k_first, sequence.k_length);
    const AttentionRows v(call_.v, call_.params.layout, sequence.batch, sequence.k_first, sequence.k_length);
    for (int64_t i = 0; i < sequence.q_length; ++i) {
      for (int64_t h = 0; h < call_.Hq; ++h) add_query(sequence, i, h, q, k, v, out, grad_out);
    }
  }

  // The terms of query i, head h.
  void add_query(const AttentionSequence& sequence, int64_t i, int64_t h, const AttentionRows& q,
                 const AttentionRows& k, const AttentionRows& v, const AttentionRows& out,
                 const AttentionRows& grad_out) {
    const int64_t query = sequence.q_first + i;
    const double lse = load_row(call_.lse, call_.params.layout, sequence.batch, query, h);
    const double g_lse =
        call_.grad_lse.present() ? load_row(call_.grad_lse, call_.params.layout, sequence.batch, query, h) : 0.0;
    const AttentionDot delta = dot(grad_out(i, h), out(i, h));

    const int64_t g = kv_head(forward_, h);
    for (int64_t j = 0; j < sequence.k_length; ++j) {
      if (!visible(forward_, sequence, i, j)) continue;
      const AttentionScore score = score_of(forward_, scale_, q(i, h), k(j, g));
      // Where a rounded score says nothing of its power, nothing is asked of p.
      const bool vague = !score.exact && (score.magnitude + std::fabs(score.s)) * call_.epsilon > 0x1p-8 &&
                         std::isfinite(score.s - lse);
      const double p = vague ? 0 : std::min(std::exp(score.s - lse), 1.0);
      // A score that is not rounded has a difference to lse that is rounded once. Else s - lse is off by eps (magnitude
      // + |s| + |lse|); p by that relatively and once more for exp, and p may be flushed.
      const double apart =
          score.exact ? std::fabs(score.s - lse) : score.magnitude + std::fabs(score.s) + std::fabs(lse);
      const double p_cond = vague ? kInfinity : kTiny + p * (1 + apart);
      // What fused kernels lose where 16-bit tensors allow it: exp2(x c - lse c), each product rounded to fp32.
      const double p_lost = score.exact ? p * 0x1p-23 * (std::fabs(score.s) + std::fabs(lse)) : 0.0;
      const AttentionDot dp = dot(grad_out(i, h), v(j, g));
      const double inner = dp.value - delta.value + g_lse;
      const double inner_cond = dp.magnitude + delta.magnitude + std::fabs(g_lse);
      const double ds = p * inner;
      const double ds_cond = p_cond * std::fabs(inner) + p * inner_cond;
      const double dx = ds * score.slope;
      const double dx_cond = kTiny + ds_cond * score.slope + std::fabs(ds) * score.slope_cond;
      const double dx_lost = p_lost * std::fabs(inner) * score.slope;
      grad_q_.add(sequence.batch, query, h, dx, dx_cond, dx_lost, k(j, g));
      grad_k_.add(sequence.batch, sequence.k_first + j, h, dx, dx_cond, dx_lost, q(i, h));
      grad_v_.add(sequence.batch, sequence.k_first + j, h, p, p_cond, p_lost, grad_out(i, h));
    }
  }

  DataError run() {
    const DataError error = check_seqlens(forward_);
    const bool failed = error.kind != kNoDataError;
    if (!failed) {
      for (const AttentionSequence& sequence : sequences_of(forward_)) add_sequence(sequence);
    }
    grad_q_.write(call_.grad_q, failed, scale_);
    grad_k_.write(call_.grad_k, failed, scale_);
    grad_v_.write(call_.grad_v, failed, 1.0);
    return error;
  }

private:
  static int64_t group_of(const BackwardCall& call) { return call.Hkv == 0 ? 1 : call.Hq / call.Hkv; }

  BackwardCall& call_;
  const AttentionCall forward_;
  const double scale_;
  Gradient grad_q_, grad_k_, grad_v_;
};

}  // namespace

DataError attention_backward(BackwardCall& call) {
  return Backward(call).run();
}

}  // namespace rlk::golden
