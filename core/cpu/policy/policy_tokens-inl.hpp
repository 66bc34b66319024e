// The formula of the policy loss over tokens as they are in memory: what a pass reads of them, and their ratios.
#if defined(RLK_CPU_POLICY_TOKENS_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef RLK_CPU_POLICY_TOKENS_INL
#undef RLK_CPU_POLICY_TOKENS_INL
#else
#define RLK_CPU_POLICY_TOKENS_INL
#endif

#include "core/cpu/policy/policy_kinds-inl.hpp"
#include "core/cpu/simd/lines-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace rlk::cpu::HWY_NAMESPACE {

using PolicyDoubles = hn::ScalableTag<double>;
using PolicyVector = hn::VFromD<PolicyDoubles>;
using PolicyMask = hn::Mask<PolicyDoubles>;

using PolicyTokens = PolicyToken<PolicyVector>;  // in the order of policy_lines
constexpr size_t kPolicyLines = 9;
constexpr size_t kLogpLine = 0, kOldLogpLine = 1, kAdvantageLine = 2;

// What a pass reads of the tokens of sequence b from `begin` on. With only_active a pass reads only
// what decides which tokens are active.
inline std::array<Line, kPolicyLines> policy_lines(const PolicyBatch& batch, int64_t b, int64_t begin,
                                                   bool only_active = false) {
  const PolicyCall& call = batch.call;
  const auto line = [&](const Array& array) { return line_of(batch.sequences, array, b).from(begin); };
  const bool needs_logp = !only_active || batch.rules.has_rollout;
  const Line logp = needs_logp ? line(call.logp) : Line();
  return from(or_zero(logp), needs_logp && call.old_logp.present() ? line(call.old_logp) : or_zero(logp),
              or_zero(only_active ? Line() : line(call.advantages)), or_one(line(call.mask)),
              or_zero(only_active ? Line() : line(call.ref_logp)), or_zero(line(call.rollout_logp)),
              or_zero(line(call.entropy)), or_one(only_active ? Line() : line(call.weight)),
              or_zero(only_active ? Line() : line(batch.grad_per_token)));
}

using PolicyBlock = MixedLineBlock<kPolicyLines>;
using SinglePolicyBlock = LineBlock<float, kPolicyLines>;

// Whether Inputs have the lines of all passes as fp32.
inline bool fits_float(const PolicyBatch& batch) {
  if (batch.sequences.count == 0) return false;
  const auto lines = policy_lines(batch, 0, 0);
  return std::all_of(lines.begin(), lines.end(), [](const Line& line) { return fits_float(line.dtype); });
}

// Tokens i and on of a block.
template <class B>
HWY_INLINE PolicyTokens tokens_at(const B& block, int64_t i, PolicyVector sequence_advantage) {
  const PolicyDoubles d;
  const auto number = [&](size_t k) HWY_ATTR { return block.number(d, k, i); };
  return {number(0), number(1), hn::Add(number(2), sequence_advantage), number(3), number(4), number(5), number(6),
          number(7), number(8)};
}

// Calls function(place of the first token, how many, block) for the blocks of a chunk. kSingle: fits_float(batch),
// which makes it a SinglePolicyBlock.
template <bool kSingle = false, class Function>
HWY_INLINE void for_each_policy_block(const std::array<Line, kPolicyLines>& lines, int64_t begin, int64_t count,
                                      const Function& function) {
  Inputs<double, kPolicyLines> inputs(lines, count);
  for (int64_t at = 0; at < count; at += kLineBlock) {
    const int64_t n = std::min(kLineBlock, count - at);
    if constexpr (kSingle) {
      function(begin + at, n, inputs.template block<float>(at, n));
    } else {
      function(begin + at, n, inputs.mixed_block(at, n));
    }
  }
}

// The importance ratios of a block of tokens, their own or that of their sequence. By themselves, because an
// exponential is a long chain of steps: of several vectors side by side.
class PolicyRatios {
public:
  template <class B>
  HWY_INLINE void read(const PolicyBatch& batch, const PolicySequence& own, const B& block, int64_t n) {
    const auto lanes = static_cast<int64_t>(hn::Lanes(PolicyDoubles()));
    int64_t i = 0;
    for (; i + 4 * lanes <= n; i += 4 * lanes) read_vectors<4>(batch, own, block, i);
    for (; i < n; i += lanes) read_vectors<1>(batch, own, block, i);
  }
  HWY_INLINE PolicyVector at(int64_t i) const { return hn::Load(PolicyDoubles(), ratios_ + i); }

private:
  template <size_t kVectors, class B>
  HWY_INLINE void read_vectors(const PolicyBatch& batch, const PolicySequence& own, const B& block, int64_t at) {
    const PolicyDoubles d;
    const size_t lanes = hn::Lanes(d);
    const bool of_token = batch.rules.importance_ratio == PolicyRules::Ratio::token;
    PolicyVector x[kVectors];
    for (const size_t k : {kLogpLine, kOldLogpLine}) block.fetch(k, at, static_cast<int64_t>(kVectors * lanes));
    for (size_t i = 0; i < kVectors; ++i) {
      const PolicyTokens token = tokens_at(block, at + static_cast<int64_t>(i * lanes), hn::Zero(d));
      x[i] = of_token ? hn::Sub(token.logp, token.old_logp) : hn::Set(d, own.log_ratio);
      x[i] = clamped(d, x[i], batch.exp_low, batch.exp_high);
    }
    exp_of_bounded(x);
    for (size_t i = 0; i < kVectors; ++i) hn::Store(x[i], d, ratios_ + at + i * lanes);
  }

  HWY_ALIGN double ratios_[kLineBlock];
};

// What the formula takes beside a token. Of a plain batch copies, of which the compiler knows what the batch has not
// got: it makes a pass of its own without all that.
template <bool kPlain>
class PolicyState {
public:
  HWY_INLINE PolicyState(const PolicyBatch& batch, const PolicySequence& own)
      : rules_(rules_of(batch.rules)), own_(own_of(own)), weight_divisor_(batch.terms.weight_divisor) {}

  HWY_INLINE PolicyTokens token(PolicyTokens token) const {
    if constexpr (kPlain) token.weight = hn::Set(PolicyDoubles(), 1.0);
    return token;
  }
  HWY_INLINE PolicyCounts<PolicyVector> counts(const PolicyTokens& token, PolicyMask given) const {
    return count_token(PolicyDoubles(), rules_, weight_divisor_, own_, token, given);
  }
  // ratio: of PolicyRatios.
  HWY_INLINE PolicyLoss<PolicyVector> loss(const PolicyTokens& token, const PolicyCounts<PolicyVector>& counts,
                                           PolicyVector ratio, PolicyMask taken) const {
    const PolicyDoubles d;
    return loss_of(d, rules_, own_, token, counts, log_ratio_of(d, rules_, own_, token), ratio, taken);
  }

private:
  using Rules = std::conditional_t<kPlain, PolicyRules, const PolicyRules&>;
  using Own = std::conditional_t<kPlain, PolicySequence, const PolicySequence&>;
  static HWY_INLINE Rules rules_of(const PolicyRules& rules) {
    if constexpr (kPlain) {
      return formula::plain_rules(rules);
    } else {
      return rules;
    }
  }
  static HWY_INLINE Own own_of(const PolicySequence& own) {
    if constexpr (kPlain) {
      return PolicySequence();
    } else {
      return own;
    }
  }

  Rules rules_;
  Own own_;
  double weight_divisor_;
};

}  // namespace rlk::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // per target
