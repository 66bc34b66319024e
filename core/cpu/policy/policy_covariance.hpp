// Which tokens clip_cov drops and kl_cov holds back: those of the smallest keys.
#pragma once

#include <rlk/sdk/ops/policy_loss.hpp>

#include <cstdint>

namespace rlk::cpu {

// Of the forward; its backward and grpo_loss fill them in.
using PolicyParams = sdk::ops::policy_loss::Params;

// The order in which tokens are taken: numbers drawn for clip_cov, falling covariances for kl_cov.
struct CovarianceKey {
  uint64_t key = 0;
  int64_t place = -1;  // of the token among those of all sequences
};
inline bool operator<=(const CovarianceKey& a, const CovarianceKey& b) {
  return a.key != b.key ? a.key < b.key : a.place <= b.place;
}
inline bool operator<(const CovarianceKey& a, const CovarianceKey& b) {
  return !(b <= a);
}

// What tokens are held against, of the whole batch.
struct CovarianceTerms {
  double mean_advantage = 0, mean_logp = 0;
  CovarianceKey last;  // the last that is taken; its place is -1 where none is
};

inline bool takes_by_covariance(sdk::ops::policy_loss::Kind kind) {
  using sdk::ops::policy_loss::Kind;
  return kind == Kind::clip_cov || kind == Kind::kl_cov;
}

struct CovarianceToken {
  double logp, advantage;
  bool is_clipped;  // by ppo; also where the ratio is no number
};

// The key of token t of sequence b, or false where it is not to be taken.
bool covariance_key(const PolicyParams& params, const CovarianceToken& token, const CovarianceTerms& terms, int64_t b,
                    int64_t t, uint64_t* key);

// The last of the keys that are taken of a batch with so many active tokens. Reorders the keys.
CovarianceKey last_taken(const PolicyParams& params, int64_t active, CovarianceKey* begin, CovarianceKey* end);

}  // namespace rlk::cpu
