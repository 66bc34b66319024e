// Divergences between a teacher's and a student's distribution over a vocabulary: a token's terms and slope, lanes.
#pragma once

#include <rlk/formula/above_tangent.hpp>
#include <rlk/formula/kl_div.hpp>

namespace rlk::formula {

struct JsdTerms {
  double beta, temperature;

  bool asks_f64() const { return temperature < 0x1p-60 || temperature > 0x1p60; }
  RLK_FORMULA double weight_of_slope() const { return beta == 0 || beta == 1 ? 1 : 1 - beta; }
};
template <class Params>
inline JsdTerms jsd_terms(const Params& params) {
  return {params.beta, params.temperature};
}

// A row's log-sum-exp, as a log-probability is taken by it: (x - high) / temperature - low. The difference comes first.
template <class V>
struct JsdScale {
  V high, inverse_temperature, low;
};
template <class V>
RLK_FORMULA JsdScale<V> scale_of_powers(double largest, double log_sum, double temperature) {
  return {static_cast<V>(largest), static_cast<V>(1 / temperature), static_cast<V>(log_sum)};
}
// By a log-sum-exp that was rounded.
template <class V>
RLK_FORMULA JsdScale<V> scale_of_lse(double lse, double temperature) {
  const double product = lse * temperature;
  if (!IsFinite(static_cast<V>(product))) return {V(0), static_cast<V>(1 / temperature), static_cast<V>(lse)};
  const V high = static_cast<V>(product);
  const double rest = (product - static_cast<double>(high)) + MulAdd(lse, temperature, -product);
  return {high, static_cast<V>(1 / temperature), static_cast<V>(rest / temperature)};
}
// No probability is above 1, however the sum was rounded.
template <class D, class V>
RLK_FORMULA V log_probability_of(D d, V x, const JsdScale<V>& scale) {
  return at_most(d, 0, Sub(Mul(Sub(x, scale.high), scale.inverse_temperature), scale.low));
}

template <class V>
struct JsdToken {
  V log_q, log_p, q, p, m, log_m;  // m: what is compared with
};
template <class D, class V>
RLK_FORMULA JsdToken<V> jsd_token(D d, V log_q, V log_p, double beta) {
  JsdToken<V> token{log_q, log_p, exp(d, log_q), exp(d, log_p), log_q, log_q};
  token.m = beta == 0 ? token.q : token.p;
  token.log_m = beta == 0 ? log_q : log_p;
  if (beta > 0 && beta < 1) {
    constexpr double kTiny = sizeof(V) == 4 ? 0x1p-126 : 0x1p-1000;
    const V m = MulAdd(number(d, beta), token.p, Mul(number(d, 1 - beta), token.q)), tiny = number(d, kTiny);
    const V log_m = IsNaN(m) ? m : natural_log(m > tiny ? m : tiny);
    token.m = m;
    token.log_m = Eq(log_p, log_q) ? log_p : log_m;  // no rounding parts the equal
  }
  return token;
}

RLK_FORMULA double divergence_of(double x, double log_x, double y, double log_y) {
  return divergence_term(Lane<double>(), x, log_x, y, log_y);
}

// The slope of the student's score, of a loss whose own is 1, but for weight_of_slope.
template <class D, class V>
RLK_FORMULA V jsd_slope(D, const JsdToken<V>& token, double beta, V student_kl) {
  const V slope = Mul(token.q, Sub(Sub(token.log_q, token.log_m), student_kl));
  return beta == 0 ? Sub(token.q, token.p) : token.q == 0 ? V(0) : slope;
}

}  // namespace rlk::formula
