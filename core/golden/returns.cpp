// Discounted returns: the declaration's recursion, fp64.
#include <rlk/ops/returns.h>

#include <vector>

#include "core/golden/tracked.hpp"

namespace rlk::golden {

Answer answer_returns(const Call& call) {
  const auto& params = call.params_as<rlk_returns_params>();
  const View &rewards = call[RLK_RETURNS_IN_REWARDS], &mask = call[RLK_RETURNS_IN_MASK];
  const int64_t length = rewards.shape[1];
  Answer answer;
  answer.outputs.resize(RLK_RETURNS_N_OUTPUTS);
  for (int64_t b = 0; b < rewards.shape[0]; ++b) {
    Tracked running = 0.0;
    std::vector<Tracked> returns(static_cast<size_t>(length));
    for (int64_t t = length - 1; t >= 0; --t) {
      if (!mask.present() || mask.load_int(b, t) != 0) {
        running = Tracked(rewards.load(b, t)) + Tracked(params.gamma) * running;
        returns[static_cast<size_t>(t)] = running;
      } else if (params.mask_rule == RLK_RETURNS_MASK_RULE_RESET) {
        running = 0.0;
      } else {
        running = Tracked(params.gamma) * running;
      }
    }
    for (const Tracked& number : returns) put(answer.outputs[RLK_RETURNS_OUT_RETURNS], number);
  }
  return answer;
}

}  // namespace rlk::golden
