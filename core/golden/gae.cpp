// Generalised advantage estimation: the declaration's recursion, fp64.
#include <rlk/ops/gae.h>

#include <vector>

#include "core/golden/sequences.hpp"
#include "core/golden/tracked.hpp"

namespace rlk::golden {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

}  // namespace

Answer answer_gae(const Call& call) {
  const auto& params = call.params_as<rlk_gae_params>();
  const View &rewards = call[RLK_GAE_IN_REWARDS], &values = call[RLK_GAE_IN_VALUES], &mask = call[RLK_GAE_IN_MASK];
  const View& bootstrap = call[RLK_GAE_IN_BOOTSTRAP];
  const Sequences sequences(rewards, call[RLK_GAE_IN_CU_SEQLENS]);
  Answer answer;
  answer.outputs.resize(RLK_GAE_N_OUTPUTS);
  if (answer.error = sequences.error(); answer.error.kind != kNoDataError) {
    for (int64_t i = 0; i < sequences.elements(); ++i) {
      put(answer.outputs[RLK_GAE_OUT_ADVANTAGES], kNan);
      put(answer.outputs[RLK_GAE_OUT_RETURNS], call.wants(RLK_GAE_OUT_RETURNS), kNan);
    }
    return answer;
  }
  for (int64_t b = 0; b < sequences.count(); ++b) {
    const int64_t length = sequences.tokens(b);
    Tracked next_value = bootstrap.present() ? bootstrap.load(b) : 0.0;
    Tracked running = 0.0;
    std::vector<Tracked> advantages(static_cast<size_t>(length)), returns(static_cast<size_t>(length));
    int64_t last = length - 1;
    while (last >= 0 && !sequences.kept(mask, b, last)) --last;
    for (int64_t t = last; t >= 0; --t) {
      const bool kept = sequences.kept(mask, b, t);
      if (!kept && params.mask_rule == RLK_GAE_MASK_RULE_CARRY) continue;
      const Tracked reward = kept ? sequences.load(rewards, b, t) : 0.0,
                    value = kept ? sequences.load(values, b, t) : 0.0;
      const Tracked delta = reward + Tracked(params.gamma) * next_value - value;
      running = delta + Tracked(params.gamma) * Tracked(params.lam) * running;
      next_value = value;
      if (!kept) continue;
      advantages[static_cast<size_t>(t)] = running;
      returns[static_cast<size_t>(t)] = running + value;
    }
    for (const Tracked& advantage : advantages) put(answer.outputs[RLK_GAE_OUT_ADVANTAGES], advantage);
    for (const Tracked& target : returns) {
      put(answer.outputs[RLK_GAE_OUT_RETURNS], call.wants(RLK_GAE_OUT_RETURNS), target);
    }
  }
  return answer;
}

}  // namespace rlk::golden
