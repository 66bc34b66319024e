// Forward KL of a teacher's most probable tokens: what the parameters of a call say, and a token's weight.
#pragma once

#include <rlk/formula/estimates.hpp>

namespace rlk::formula {

struct TopkKlTerms {
  double temperature, bound, at_bound;
  long long tokens;  // of each row

  bool asks_f64() const { return temperature < 0x1p-60 || temperature > 0x1p60; }
};
template <class Params>
inline TopkKlTerms topk_kl_terms(const Params& params, long long tokens) {
  return {params.temperature, bound_or_none(params.logp_clamp), 0, tokens};
}
template <class Params>
inline TopkKlTerms topk_kl_gradient_terms(const Params& params, long long tokens) {
  return {params.temperature, bound_or_none(params.logp_clamp), gradient_at_bound(params.clamp_gradient), tokens};
}

RLK_FORMULA double topk_kl_term(const TopkKlTerms& terms, double student, double teacher) {
  const Lane<double> d;
  const double t = at_least(d, -terms.bound, teacher), p = exp(d, t);
  return p == 0 ? 0 : Mul(p, Sub(t, at_least(d, -terms.bound, student)));
}
RLK_FORMULA double topk_kl_weight(const TopkKlTerms& terms, double student, double teacher) {
  const Lane<double> d;
  if (IsNaN(student)) return student;
  const double weight = exp(d, at_least(d, -terms.bound, teacher));
  return Mul(weight, clamp_gradient(d, student, -terms.bound, Inf(d), terms.at_bound));
}

}  // namespace rlk::formula
