// How log-probabilities of rows become cross entropies, and what gradient each row then gets: what cross_entropy and
// linear_cross_entropy share.
#pragma once

#include <rlk/formula/cross_entropy_rows.hpp>

#include "core/cpu/logp/logp_rows.hpp"
#include "core/cpu/simd/long_sum.hpp"

namespace rlk::cpu {

// What an active row's log-probabilities are made into; score_sum is read only with label smoothing.
struct RowScores {
  double logp, lse, score_sum;  // the last is sum_v class_weight[v] z[v]
};

template <class Call>
formula::CrossEntropyTerms terms_of(const Call& call) {
  return formula::cross_entropy_terms(call.params, call.class_weight.present());
}
template <class Call>
double class_weight(const Call& call, int64_t v) {
  return call.class_weight.present() ? call.class_weight.get(v) : 1;
}
template <class Call>
double sum_of_class_weights(const Call& call) {
  if (!call.class_weight.present()) return static_cast<double>(call.V);
  LongSum sum;
  for (int64_t v = 0; v < call.V; ++v) sum.add(call.class_weight.get(v));
  return sum.value();
}

// What loss and z_loss are multiplied by; 0 where there is no row.
template <class Call>
formula::CrossEntropyShares shares_of(const Call& call) {
  const formula::CrossEntropyTerms terms = terms_of(call);
  LongSum weights;
  double rows = 0;
  if (formula::counts_rows(terms)) {
    for (int64_t n = 0; n < call.N; ++n) {
      if (is_ignored(call, n)) continue;
      rows += 1;
      if (row_error(call, n).kind == kNoDataError) weights.add(class_weight(call, call.ids.integer(n)));
    }
  }
  return formula::cross_entropy_shares(terms, weights.value(), rows);
}

// Writes every output. scores(n) of an active row; NaN where it is in error.
template <class Call, typename Scores>
void put_cross_entropies(const Call& call, Scores&& scores) {
  const formula::CrossEntropyTerms terms = terms_of(call);
  const double scale = terms.square_scale, classes = static_cast<double>(call.V);
  const double weights = terms.smoothing > 0 ? sum_of_class_weights(call) : 0;
  LongSum losses, z_losses;
  for (int64_t n = 0; n < call.N; ++n) {
    double lse = 0, loss = 0, z_loss = 0;
    if (!is_ignored(call, n)) {
      const RowScores row = scores(n);
      lse = row.lse;
      loss = row.logp;
      if (row_error(call, n).kind == kNoDataError) {
        const double weight = class_weight(call, call.ids.integer(n));
        loss = formula::cross_entropy_of(terms, row.logp, lse, weight, weights, row.score_sum, classes);
      }
      if (scale > 0) z_loss = scale * lse * lse;
    }
    losses.add(loss);
    z_losses.add(z_loss);
    if (call.token_loss.present()) call.token_loss.put(n, loss + z_loss);
    if (call.lse.present()) call.lse.put(n, lse);
  }
  const formula::CrossEntropyShares share = shares_of(call);
  const double z_loss = formula::reduced(terms, z_losses.value(), share.square);
  call.loss.put(0, formula::reduced(terms, losses.value(), share.entropy) + z_loss);
  if (call.z_loss.present()) call.z_loss.put(0, z_loss);
}

// What logp's gradient of a row's scores starts from.
template <class Call>
class CrossEntropyGradients {
public:
  explicit CrossEntropyGradients(const Call& call)
      : call_(call), by_(shares_of(call)), weights_(call.params.label_smoothing > 0 ? sum_of_class_weights(call) : 0) {}

  // Of an active row without a data error.
  RowGradient operator()(int64_t n) const {
    const double smoothing = call_.params.label_smoothing, lse = call_.lse.get(n);
    const double of_token = call_.grad_token_loss.present() ? call_.grad_token_loss.get(n) : 0;
    const auto total = [&](double factor) { return (factor == 0 ? 0 : call_.grad_loss.get(0) * factor) + of_token; };
    const double of_entropy = total(by_.entropy), spread = smoothing / static_cast<double>(call_.V) * of_entropy;
    const int64_t target = call_.ids.integer(n);
    RowGradient row{lse, -(1 - smoothing) * class_weight(call_, target) * of_entropy, 0, 0, 0, target};
    if (smoothing > 0) {
      row.grad_lse = spread * weights_;
      row.grad_scores = -spread;
      row.weights = call_.class_weight.present() ? &call_.class_weight : nullptr;
    }
    const double scale = call_.params.lse_square_scale;
    if (scale > 0) row.grad_lse += 2 * scale * lse * total(by_.square);
    return row;
  }

private:
  const Call& call_;
  const formula::CrossEntropyShares by_;
  const double weights_;
};

}  // namespace rlk::cpu
