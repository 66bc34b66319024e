// Generalised advantage estimation: the declaration's recursion, fp64.
#include <rlk/ops/gae.h>

#include <vector>

#include "core/golden/tracked.hpp"

namespace rlk::golden {

Answer answer_gae(const Call& call) {
  const auto& params = call.params_as<rlk_gae_params>();
  const View &rewards = call[RLK_GAE_IN_REWARDS], &values = call[RLK_GAE_IN_VALUES], &mask = call[RLK_GAE_IN_MASK];
  const View& bootstrap = call[RLK_GAE_IN_BOOTSTRAP];
  const int64_t length = rewards.shape[1];
  Answer answer;
  answer.outputs.resize(RLK_GAE_N_OUTPUTS);
  for (int64_t b = 0; b < rewards.shape[0]; ++b) {
    Tracked next_value = bootstrap.present() ? bootstrap.load(b) : 0.0;
    Tracked running = 0.0;
    std::vector<Tracked> advantages(static_cast<size_t>(length)), returns(static_cast<size_t>(length));
    for (int64_t t = length - 1; t >= 0; --t) {
      const bool kept = !mask.present() || mask.load_int(b, t) != 0;
      if (!kept && params.mask_rule == RLK_GAE_MASK_RULE_CARRY) continue;
      const Tracked reward = kept ? rewards.load(b, t) : 0.0, value = kept ? values.load(b, t) : 0.0;
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
