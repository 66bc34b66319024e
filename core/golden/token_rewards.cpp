// Rewards of tokens with their KL penalty: the declaration's formula, fp64.
#include <rlk/sdk/ops/token_rewards.hpp>

#include <vector>

#include "core/golden/operator.hpp"
#include "core/golden/ratio_kl.hpp"
#include "core/golden/sequences.hpp"

namespace rlk::golden {
using namespace sdk::ops::token_rewards;  // NOLINT(google-build-using-namespace): its enumerations

DataError token_rewards(CallOf<sdk::ops::TokenRewards>& call) {
  const Sequences sequences(call.logp, call.cu_seqlens);
  const auto& params = call.params;
  if (const DataError error = sequences.error(); error.kind != kNoDataError) {
    fill(call.rewards, sequences.elements(), kNan);
    fill(call.kl, sequences.elements(), kNan);
    fill(call.sequence_kl, sequences.count(), kNan);
    return error;
  }
  for (int64_t b = 0; b < sequences.count(); ++b) {
    const int64_t last = sequences.last_kept(call.mask, b);
    TrackedSum sum;
    double active = 0;
    for (int64_t t = 0; t < sequences.tokens(b); ++t) {
      Tracked reward = 0.0, kl = 0.0;
      if (sequences.kept(call.mask, b, t)) {
        const Tracked d = Tracked(sequences.load(call.ref_logp, b, t)) - Tracked(sequences.load(call.logp, b, t));
        kl = clamp(kl_estimate(params.kl_kind, clamp(d, params.diff_clamp)), params.value_clamp);
        if (call.scores.present()) reward = sequences.load(call.scores, b, t);
        if (t == last && call.sequence_rewards.present()) {
          const double whole = call.sequence_rewards.load(b);
          const bool clips = params.reward_clip == RewardClip::on;
          const double low = clips ? params.reward_clip_low : whole, high = clips ? params.reward_clip_high : whole;
          // A bound is a number that an implementation holds rounded.
          const Tracked own = whole < low    ? Tracked(low, std::fabs(low))
                              : whole > high ? Tracked(high, std::fabs(high))
                                             : Tracked(whole);
          reward = reward + own;
        }
        if (params.coefficient != 0) reward = reward - Tracked(params.coefficient, std::fabs(params.coefficient)) * kl;
        sum.add(kl);
        active += 1;
      }
      put(call.rewards, reward);
      put(call.kl, kl);
    }
    put(call.sequence_kl, active > 0 ? sum.total() / Tracked(active) : Tracked(0.0));
  }
  return {};
}

}  // namespace rlk::golden
