// Discounted returns: the declaration's recursion, fp64.
#include <rlk/ops/returns.h>

#include <vector>

#include "core/golden/sequences.hpp"
#include "core/golden/tracked.hpp"

namespace rlk::golden {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

}  // namespace

Answer answer_returns(const Call& call) {
  const auto& params = call.params_as<rlk_returns_params>();
  const View &rewards = call[RLK_RETURNS_IN_REWARDS], &mask = call[RLK_RETURNS_IN_MASK];
  const View& bootstrap = call[RLK_RETURNS_IN_BOOTSTRAP];
  const Sequences sequences(rewards, call[RLK_RETURNS_IN_CU_SEQLENS]);
  Answer answer;
  answer.outputs.resize(RLK_RETURNS_N_OUTPUTS);
  if (answer.error = sequences.error(); answer.error.kind != kNoDataError) {
    for (int64_t i = 0; i < sequences.elements(); ++i) {
      put(answer.outputs[RLK_RETURNS_OUT_RETURNS], kNan);
    }
    return answer;
  }
  for (int64_t b = 0; b < sequences.count(); ++b) {
    const int64_t length = sequences.tokens(b);
    Tracked running = bootstrap.present() ? bootstrap.load(b) : 0.0;
    std::vector<Tracked> returns(static_cast<size_t>(length));
    int64_t last = length - 1;
    while (last >= 0 && !sequences.kept(mask, b, last)) --last;
    for (int64_t t = last; t >= 0; --t) {
      if (sequences.kept(mask, b, t)) {
        running = Tracked(sequences.load(rewards, b, t)) + Tracked(params.gamma) * running;
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
