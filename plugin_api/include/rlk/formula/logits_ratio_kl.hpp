// What logits_ratio_kl adds to ratio_kl: rows of logits over a temperature, and ids that mark a masked token.
#pragma once

#include <rlk/formula/ratio_kl.hpp>

namespace rlk::formula {

struct LogitsRatioKlTerms {
  RatioKlTerms of_tokens;
  double temperature;
  long long ignore_index;

  bool asks_f64() const { return temperature < 0x1p-60 || temperature > 0x1p60; }
};
template <class Params>
inline LogitsRatioKlTerms logits_ratio_kl_terms(const Params& params, bool has_old, bool has_kl) {
  return {ratio_kl_terms(params, has_old, has_kl), params.temperature, params.ignore_index};
}
template <class Params>
inline LogitsRatioKlTerms logits_ratio_kl_gradient_terms(const Params& params, bool has_old, bool has_kl) {
  return {ratio_kl_gradient_terms(params, has_old, has_kl), params.temperature, params.ignore_index};
}

}  // namespace rlk::formula
