// The GRPO loss of logits and rewards: logp's reference answer, then the declaration's formula over its tokens.
#include <cmath>
#include <limits>

#include "core/golden/grpo.hpp"

namespace rlk::golden {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

Output of(const std::vector<Tracked>& numbers) {
  Output output;
  for (const Tracked& number : numbers) {
    output.value.push_back(number.value);
    output.cond.push_back(std::isfinite(number.value) ? kTiny + number.error : 0.0);
  }
  return output;
}
Output filled(int64_t size, double value) {
  return {std::vector<double>(static_cast<size_t>(size), value), std::vector<double>(static_cast<size_t>(size), 0.0)};
}

}  // namespace

Answer answer_grpo_loss(const Call& call) {
  GrpoCall golden;
  golden.logits = call[RLK_GRPO_LOSS_IN_LOGITS];
  golden.ids = call[RLK_GRPO_LOSS_IN_IDS];
  golden.old_logp = call[RLK_GRPO_LOSS_IN_OLD_LOGP];
  golden.rewards = call[RLK_GRPO_LOSS_IN_REWARDS];
  golden.mask = call[RLK_GRPO_LOSS_IN_MASK];
  golden.group_boundaries = call[RLK_GRPO_LOSS_IN_GROUP_BOUNDARIES];
  golden.params = call.params_as<rlk_grpo_loss_params>();
  const View& ref_logits = call[RLK_GRPO_LOSS_IN_REF_LOGITS];
  const int64_t sequences = golden.sequences(), tokens = golden.tokens();

  if (const DataError error = group_error(golden); error.kind != kNoDataError) {
    Answer answer;
    for (const int64_t size :
         {int64_t{1}, int64_t{1}, int64_t{1}, sequences * tokens, sequences * tokens, sequences * tokens, sequences}) {
      answer.outputs.push_back(filled(size, kNan));
    }
    answer.error = error;
    return answer;
  }

  const std::vector<Tracked> advantages = group_advantages(golden);
  LogpResult policy = logp(TokenRows(golden, golden.logits).logp());
  DataError error = policy.error;
  LogpResult reference{filled(sequences * tokens, 0), {}, {}, {}};
  if (ref_logits.present()) {
    reference = logp(TokenRows(golden, ref_logits).logp());
    const bool earlier = reference.error.kind != kNoDataError && reference.error.row < error.row;
    if (error.kind == kNoDataError || earlier) error = reference.error;
  }

  Tracked surrogate, kl;
  double active = 0;
  for (int64_t b = 0; b < sequences; ++b) {
    for (int64_t t = 0; t < tokens; ++t) {
      if (!golden.is_active(b, t)) continue;
      const auto row = static_cast<size_t>(b * tokens + t);
      const Dual lp(Tracked{policy.logp.value[row], policy.logp.cond[row]});
      surrogate = surrogate +
                  clipped_surrogate(golden, lp, golden.old_logp.load(b, t), advantages[static_cast<size_t>(b)]).value;
      if (ref_logits.present()) {
        kl = kl + k3(Dual(Tracked{reference.logp.value[row], reference.logp.cond[row]}) - lp).value;
      }
      active += 1;
    }
  }
  if (active > 0) {
    surrogate = surrogate / Tracked{active, 0};
    kl = kl / Tracked{active, 0};
  }
  if (error.kind != kNoDataError) surrogate = {kNan, 0};
  if (error.kind != kNoDataError) kl = {kNan, 0};
  Tracked loss = surrogate;
  if (golden.params.beta != 0) loss = loss + parameter(golden.params.beta) * kl;
  return {{of({loss}), of({surrogate}), of({kl}), std::move(policy.lse), std::move(policy.logp),
           std::move(reference.logp), of(advantages)},
          error};
}

}  // namespace rlk::golden
