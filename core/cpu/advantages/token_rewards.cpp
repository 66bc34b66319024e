// Rewards of tokens with their KL penalty. One number per token: plain fp64, sequences in parallel, each summed in its
// order.
#include <rlk/sdk/ops/token_rewards.hpp>

#include <algorithm>
#include <cmath>

#include "core/cpu/policy/clamp_gradient.hpp"
#include "core/cpu/policy/ratio_kl.hpp"
#include "core/cpu/simd/registration.hpp"
#include "core/cpu/simd/sequences.hpp"

namespace rlk::cpu {
using namespace sdk::ops::token_rewards;  // NOLINT(google-build-using-namespace): its enumerations

namespace {

using Call = CallOf<sdk::ops::TokenRewards>;

// A NaN stays one.
double clamped(double x, double limit) {
  const double bound = bound_or_none(limit);
  return std::min(std::max(x, -bound), bound);
}

class Sequence {
public:
  Sequence(const Call& call, const Sequences& sequences, int64_t b)
      : call_(call),
        b_(b),
        logp_(line_of(sequences, call.logp, b)),
        ref_logp_(line_of(sequences, call.ref_logp, b)),
        scores_(line_of(sequences, call.scores, b)),
        mask_(line_of(sequences, call.mask, b)),
        last_(sequences.tokens(b) - 1) {
    while (last_ >= 0 && !mask_.keeps(last_)) --last_;
  }

  bool keeps(int64_t t) const { return mask_.keeps(t); }
  double kl(int64_t t) const {
    const double d = clamped(ref_logp_.get(t) - logp_.get(t), call_.params.diff_clamp);
    return clamped(kl_estimate(call_.params.kl_kind, d).value, call_.params.value_clamp);
  }
  // Without the penalty.
  double reward(int64_t t) const {
    const double score = scores_.present() ? scores_.get(t) : 0.0;
    if (t != last_ || !call_.sequence_rewards.present()) return score;
    const double whole = call_.sequence_rewards.get(b_);
    if (call_.params.reward_clip == RewardClip::off) return score + whole;
    return score + std::min(std::max(whole, call_.params.reward_clip_low), call_.params.reward_clip_high);
  }

private:
  const Call& call_;
  const int64_t b_;
  const Line logp_, ref_logp_, scores_, mask_;
  int64_t last_;  // active token
};

DataError token_rewards(const Call& call, const Context& context) {
  const Sequences sequences = sequences_of(call.logp, call.cu_seqlens);
  if (const DataError error = sequences.error(); error.kind != kNoDataError) {
    constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
    fill(sequences, call.rewards, kNan);
    fill(sequences, call.kl, kNan);
    for (int64_t b = 0; b < sequences.count && call.sequence_kl.present(); ++b) call.sequence_kl.put(b, kNan);
    return error;
  }
  for_each_sequence(sequences, context.parallel, [&](int64_t b) {
    const Sequence sequence(call, sequences, b);
    double sum = 0, active = 0;
    for (int64_t t = 0; t < sequences.tokens(b); ++t) {
      double reward = 0, kl = 0;
      if (sequence.keeps(t)) {
        kl = sequence.kl(t);
        reward = sequence.reward(t) - call.params.coefficient * kl;
        sum += kl;
        active += 1;
      }
      call.rewards.put(sequences.at(b, t), reward);
      if (call.kl.present()) call.kl.put(sequences.at(b, t), kl);
    }
    if (call.sequence_kl.present()) call.sequence_kl.put(b, active > 0 ? sum / active : 0.0);
  });
  return {};
}

double operations(const Call& call) {
  return static_cast<double>(sequences_of(call.logp, call.cu_seqlens).elements()) * 1500;
}

}  // namespace

RLK_CPU_KERNEL(TokenRewards, .run = token_rewards, .operations = operations);

}  // namespace rlk::cpu
