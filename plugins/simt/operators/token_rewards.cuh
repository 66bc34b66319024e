// Rewards of tokens with their KL penalty, and the mean KL of sequences. The reward of a whole sequence goes to its
// last active token, which a pass before finds.
#include "../skeleton/tokens.cuh"

#include <rlk/formula/estimates.hpp>

namespace rlk::formula {

struct RewardRules {
  enum class KlKind { k1, abs, k2, k3 };

  KlKind kl_kind;
  double coefficient, d_bound, kl_bound, reward_low, reward_high;
  bool has_whole, has_sums;  // rewards of sequences; something is asked of sequences, or cu_seqlens are checked
};
template <class Call>
inline RewardRules reward_rules(const Call& call) {
  const auto& params = call.params;
  const bool clips = params.reward_clip != decltype(params.reward_clip)::off;
  RewardRules rules{};
  rules.kl_kind = static_cast<RewardRules::KlKind>(params.kl_kind);
  rules.coefficient = params.coefficient;
  rules.d_bound = bound_or_none(params.diff_clamp);
  rules.kl_bound = bound_or_none(params.value_clamp);
  rules.reward_low = clips ? params.reward_clip_low : -__builtin_huge_val();
  rules.reward_high = clips ? params.reward_clip_high : __builtin_huge_val();
  rules.has_whole = call.sequence_rewards != nullptr;
  rules.has_sums = rules.has_whole || call.sequence_kl != nullptr || call.cu_seqlens != nullptr;
  return rules;
}
inline const char* refusal_of(const RewardRules&) {
  return nullptr;
}

struct RewardOwn {
  double last;  // the last active token, counted from 1
};
struct RewardState {
  RewardRules rules;
  double last, whole;
};

template <bool sums_up, bool rewards>
struct TokenRewardsPass {
  using Rules = RewardRules;
  using Own = RewardOwn;
  using Batch = RewardOwn;
  enum { kLogp, kRefLogp, kScore, kMask, kTokens, kRewards = kTokens, kKls, kSequenceKl, kSequenceRewards };
  enum { kKl, kActive, kLast };
  static constexpr int kIns = kTokens, kOuts = rewards ? 2 : 0, kSums = sums_up ? 3 : 0, kLargest = kLast;
  static constexpr int kTotals = 1, kStep = 4;
  static constexpr bool kAgain = false;

  static bool is_wanted(const RewardRules& rules) {
    return rules.has_whole ? sums_up != rewards : rewards && sums_up == rules.has_sums;
  }
  template <class View>
  static RLK_FORMULA RewardState begin(const RewardRules& rules, const View& view, int64_t b) {
    const Lane<double> d;
    RewardState state{rules, -1, 0};
    if (sums_up || !rules.has_whole) return state;
    state.last = view.template own<RewardOwn>(b).last;
    state.whole = clamped(d, view.number(kSequenceRewards, b), rules.reward_low, rules.reward_high);
    return state;
  }
  static RLK_FORMULA void token(const RewardState& state, const double* in, double* sums, double* out) {
    const Lane<double> d;
    const RewardRules& rules = state.rules;
    if (in[kMask] == 0) return;
    const double difference = clamped(d, Sub(in[kRefLogp], in[kLogp]), -rules.d_bound, rules.d_bound);
    const double kl = clamped(d, kl_estimate(d, rules.kl_kind, difference).value, -rules.kl_bound, rules.kl_bound);
    const double number = in[kTokens] + 1;
    if constexpr (sums_up) {
      sums[kKl] = Add(sums[kKl], kl);
      sums[kActive] = Add(sums[kActive], 1.0);
      sums[kLast] = number;  // a thread's tokens come in order
    }
    if constexpr (rewards) {
      const double reward = number == state.last ? Add(in[kScore], state.whole) : in[kScore];
      out[0] = rules.coefficient == 0 ? reward : NegMulAdd(rules.coefficient, kl, reward);
      out[1] = kl;
    }
  }
  template <class View>
  static RLK_FORMULA void sequence(const RewardRules&, const View& view, int64_t b, const double* sums, double*) {
    const double active = sums[kActive];
    view.put(kSequenceKl, b, active > 0 ? sums[kKl] / active : 0.0);
    view.template own<RewardOwn>(b).last = sums[kLast];
  }
  template <class View>
  static RLK_FORMULA void batch(const RewardRules&, const View&, const double*) {}
};
using LastRewards = TokenRewardsPass<true, false>;
using SummedRewards = TokenRewardsPass<true, true>;
using MappedRewards = TokenRewardsPass<false, true>;

}  // namespace rlk::formula

RLK_SIMT_TOKEN_PASSES(LastRewards, SummedRewards, MappedRewards)
RLK_SIMT_TOKENS(TokenRewards, reward_rules(call), (in(logp), in(ref_logp), or_zero(scores), or_one(mask)),
                (out(rewards), out(kl), put(sequence_kl), each(sequence_rewards)),
                (LastRewards, SummedRewards, MappedRewards))
