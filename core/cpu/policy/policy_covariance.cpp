// Keys of 64 bits, so that a choice is a selection of the n-th.
#include "core/cpu/policy/policy_covariance.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

#include "core/cpu/sampling/sample_random.hpp"

namespace rlk::cpu {
using namespace sdk::ops::policy_loss;  // NOLINT(google-build-using-namespace): its enumerations

bool covariance_key(const PolicyParams& params, const CovarianceToken& token, const CovarianceTerms& terms, int64_t b,
                    int64_t t, uint64_t* key) {
  // Equal numbers of either sign of 0 are one.
  const double covariance = (token.advantage - terms.mean_advantage) * (token.logp - terms.mean_logp) + 0.0;
  if (params.kind == Kind::clip_cov) {
    const bool within = covariance > params.cov_low && covariance < params.cov_high;
    if (!within || token.is_clipped) return false;
    *key = sample_random(static_cast<uint64_t>(params.cov_seed), static_cast<uint64_t>(b), static_cast<uint64_t>(t));
    return true;
  }
  const auto bits = std::bit_cast<uint64_t>(covariance);
  constexpr uint64_t kSign = uint64_t{1} << 63;
  *key = (bits & kSign) != 0 ? bits : ~bits & ~kSign;  // rises when the covariance falls
  return !std::isnan(covariance);
}

CovarianceKey last_taken(const PolicyParams& params, int64_t active, CovarianceKey* begin, CovarianceKey* end) {
  if (begin == end) return {};
  const double count = std::max(std::floor(params.cov_share * static_cast<double>(active)), 1.0);
  CovarianceKey* const last = begin + std::min(static_cast<int64_t>(count), end - begin) - 1;
  std::nth_element(begin, last, end);
  return *last;
}

}  // namespace rlk::cpu
