// Rewards of tokens with their KL penalty, and the mean KL of sequences, in fp64. Sequences in parallel.
#include <rlk/sdk/ops/token_rewards.hpp>

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/cpu/advantages/token_rewards.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "core/cpu/policy/estimates-inl.hpp"
#include "core/cpu/simd/data_error.hpp"
#include "core/cpu/simd/sequences.hpp"
#include "core/cpu/simd/skeleton-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace rlk::cpu::HWY_NAMESPACE {
using namespace sdk::ops::token_rewards;  // NOLINT(google-build-using-namespace): its enumerations
using TokenRewardsCall = CallOf<sdk::ops::TokenRewards>;

// Of a whole sequence, as its last active token gets it.
double sequence_reward(const TokenRewardsCall& call, int64_t b) {
  const double whole = call.sequence_rewards.get(b);
  if (call.params.reward_clip == RewardClip::off) return whole;
  return std::min(std::max(whole, call.params.reward_clip_low), call.params.reward_clip_high);
}

DataError token_rewards(const TokenRewardsCall& call, const Context& context) {
  const Sequences sequences = sequences_of(call.logp, call.cu_seqlens);
  if (const DataError error = sequences.error(); error.kind != kNoDataError) return all_nan(call, error);
  const double d_bound = bound_or_none(call.params.diff_clamp), bound = bound_or_none(call.params.value_clamp);
  const double coefficient = call.params.coefficient;
  const auto kind = call.params.kl_kind;
  const auto kl_of = [=](auto d, auto logp, auto ref_logp, auto /*score*/, auto mask) HWY_ATTR {
    const auto kl = kl_estimate(d, kind, clamped(d, hn::Sub(ref_logp, logp), -d_bound, d_bound)).value;
    return if_kept(d, mask, clamped(d, kl, -bound, bound));
  };
  const auto is_kept = [](auto d, auto, auto, auto, auto mask) HWY_ATTR { return if_kept(d, mask, hn::Set(d, 1.0)); };
  const auto reward_with = [=](double whole) {
    return [=](auto d, auto logp, auto ref_logp, auto score, auto mask) HWY_ATTR {
      const auto kl = kl_of(d, logp, ref_logp, score, mask);
      auto reward = hn::Add(score, hn::Set(d, whole));
      if (coefficient != 0) reward = hn::NegMulAdd(hn::Set(d, coefficient), kl, reward);
      return if_kept(d, mask, reward);
    };
  };
  for_each_sequence(sequences, context.parallel, [&](int64_t b) HWY_ATTR {
    const int64_t length = sequences.tokens(b);
    const Line mask = line_of(sequences, call.mask, b);
    const std::array<Line, 4> tokens = from(line_of(sequences, call.logp, b), line_of(sequences, call.ref_logp, b),
                                            or_zero(line_of(sequences, call.scores, b)), or_one(mask));
    if (call.sequence_kl.present()) {
      const auto [sum, active] = sums_of_lines<double>(tokens, length, kl_of, is_kept);
      call.sequence_kl.put(b, active > 0 ? sum / active : 0.0);
    }
    int64_t last = length - 1;  // of the active ones
    while (last >= 0 && !mask.keeps(last)) --last;
    const bool has_whole = call.sequence_rewards.present() && last >= 0;
    double of_last = 0;  // before the outputs, which may lie over inputs
    if (has_whole) {
      const std::array<Line, 4> only = {tokens[0].from(last), tokens[1].from(last), tokens[2].from(last),
                                        tokens[3].from(last)};
      map_lines<double>(to(line_of(Array::of(&of_last))), only, 1, reward_with(sequence_reward(call, b)));
    }
    const Line rewards = line_of(sequences, call.rewards, b);
    const auto reward_of = reward_with(0);
    if (call.kl.present()) {
      map_lines<double>(to(rewards, line_of(sequences, call.kl, b)), tokens, length,
                        [=](auto d, auto logp, auto ref_logp, auto score, auto kept, auto& reward, auto& kl) HWY_ATTR {
                          reward = reward_of(d, logp, ref_logp, score, kept);
                          kl = kl_of(d, logp, ref_logp, score, kept);
                        });
    } else {
      map_lines<double>(to(rewards), tokens, length, reward_of);
    }
    if (has_whole) store_element(rewards.data, rewards.dtype, last * rewards.stride, of_last);
  });
  return {};
}

}  // namespace rlk::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

namespace rlk::cpu {

RLK_CPU_VECTOR_KERNEL(TokenRewards, token_rewards, .operations = per_element<150>);

}  // namespace rlk::cpu
