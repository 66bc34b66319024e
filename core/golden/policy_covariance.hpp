// Which tokens clip_cov drops and kl_cov holds back: plain fp64 in the order that the declaration says, because a
// choice has no tolerance.
#pragma once

#include <rlk/sdk/ops/policy_loss.hpp>

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>
#include <vector>

#include "core/golden/philox.hpp"

namespace rlk::golden {

// An active token t of sequence b.
struct CovarianceToken {
  int64_t b, t;
  double advantage, logp;
  bool may_be_taken;  // not clipped by ppo, and the ratio is a number
};

// The places (b, t) that are taken.
inline std::set<std::pair<int64_t, int64_t>> taken_by_covariance(
    const sdk::ops::policy_loss::Params& params, const std::vector<std::vector<CovarianceToken>>& sequences) {
  double advantage = 0, logp = 0, n = 0;
  for (const std::vector<CovarianceToken>& tokens : sequences) {
    double own_advantage = 0, own_logp = 0;
    for (const CovarianceToken& token : tokens) {
      own_advantage += token.advantage;
      own_logp += token.logp;
      n += 1;
    }
    advantage += own_advantage;
    logp += own_logp;
  }
  const bool draws = params.kind == sdk::ops::policy_loss::Kind::clip_cov;
  struct Candidate {
    double covariance;
    uint64_t number;
    std::pair<int64_t, int64_t> place;
  };
  std::vector<Candidate> candidates;
  for (const std::vector<CovarianceToken>& tokens : sequences) {
    for (const CovarianceToken& token : tokens) {
      const double covariance = (token.advantage - advantage / n) * (token.logp - logp / n);
      const bool within = covariance > params.cov_low && covariance < params.cov_high && token.may_be_taken;
      if (draws ? !within : std::isnan(covariance)) continue;
      const uint64_t number = philox(static_cast<uint64_t>(params.cov_seed), static_cast<uint64_t>(token.b),
                                     static_cast<uint64_t>(token.t));
      candidates.push_back({covariance, number, {token.b, token.t}});
    }
  }
  std::stable_sort(candidates.begin(), candidates.end(), [draws](const Candidate& a, const Candidate& b) {
    return draws ? a.number < b.number : a.covariance > b.covariance;
  });
  std::set<std::pair<int64_t, int64_t>> taken;
  const double count = std::max(std::floor(params.cov_share * n), 1.0);
  for (const Candidate& candidate : candidates) {
    if (static_cast<double>(taken.size()) < count) taken.insert(candidate.place);
  }
  return taken;
}

}  // namespace rlk::golden
