// Discounted returns: the declaration's recursion, fp64.
#include <rlk/sdk/ops/returns.hpp>

#include <vector>

#include "core/golden/operator.hpp"
#include "core/golden/optional.hpp"
#include "core/golden/sequences.hpp"

namespace rlk::golden {
using namespace sdk::ops::returns;  // NOLINT(google-build-using-namespace): its enumerations

DataError returns(CallOf<sdk::ops::Returns>& call) {
  const Sequences sequences(call.rewards, call.cu_seqlens);
  if (const DataError error = sequences.error(); error.kind != kNoDataError) {
    fill(call.returns, sequences.elements(), kNan);
    return error;
  }
  const Tracked gamma = call.params.gamma;
  for (int64_t b = 0; b < sequences.count(); ++b) {
    const int64_t length = sequences.tokens(b);
    Tracked running = or_zero(call.bootstrap, b);
    std::vector<Tracked> returns(static_cast<size_t>(length));
    for (int64_t t = sequences.last_kept(call.mask, b); t >= 0; --t) {
      if (sequences.kept(call.mask, b, t)) {
        running = Tracked(sequences.load(call.rewards, b, t)) + gamma * running;
        returns[static_cast<size_t>(t)] = running;
      } else if (call.params.mask_rule == MaskRule::reset) {
        running = 0.0;
      } else if (call.params.mask_rule == MaskRule::zero) {
        running = gamma * running;
      }
    }
    for (const Tracked& number : returns) put(call.returns, number);
  }
  return {};
}

}  // namespace rlk::golden
