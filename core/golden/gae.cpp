// Generalised advantage estimation: the declaration's recursion, fp64.
#include <rlk/sdk/ops/gae.hpp>

#include <vector>

#include "core/golden/operator.hpp"
#include "core/golden/optional.hpp"
#include "core/golden/sequences.hpp"

namespace rlk::golden {
using namespace sdk::ops::gae;  // NOLINT(google-build-using-namespace): its enumerations

DataError gae(CallOf<sdk::ops::Gae>& call) {
  const Sequences sequences(call.rewards, call.cu_seqlens);
  if (const DataError error = sequences.error(); error.kind != kNoDataError) {
    fill(call.advantages, sequences.elements(), kNan);
    fill(call.returns, sequences.elements(), kNan);
    return error;
  }
  const Tracked gamma = call.params.gamma, lam = call.params.lam;
  for (int64_t b = 0; b < sequences.count(); ++b) {
    const int64_t length = sequences.tokens(b);
    Tracked next_value = or_zero(call.bootstrap, b);
    Tracked running = 0.0;
    std::vector<Tracked> advantages(static_cast<size_t>(length)), returns(static_cast<size_t>(length));
    for (int64_t t = sequences.last_kept(call.mask, b); t >= 0; --t) {
      const bool kept = sequences.kept(call.mask, b, t);
      if (!kept && call.params.mask_rule == MaskRule::carry) continue;
      const Tracked reward = kept ? sequences.load(call.rewards, b, t) : 0.0,
                    value = kept ? sequences.load(call.values, b, t) : 0.0;
      const Tracked delta = reward + gamma * next_value - value;
      running = delta + gamma * lam * running;
      next_value = value;
      if (!kept) continue;
      advantages[static_cast<size_t>(t)] = running;
      returns[static_cast<size_t>(t)] = running + value;
    }
    for (const Tracked& advantage : advantages) put(call.advantages, advantage);
    for (const Tracked& target : returns) put(call.returns, target);
  }
  return {};
}

}  // namespace rlk::golden
