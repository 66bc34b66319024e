// Discounted returns: the declaration's recursion, fp64.
#include <rlk/sdk/ops/returns.hpp>

#include <vector>

#include "core/golden/operator.hpp"
#include "core/golden/sequences.hpp"
#include "core/golden/tracked.hpp"

namespace rlk::golden {
using namespace sdk::ops::returns;  // NOLINT(google-build-using-namespace): its enumerations

DataError returns(CallOf<sdk::ops::Returns>& call) {
  const Sequences sequences(call.rewards, call.cu_seqlens);
  if (const DataError error = sequences.error(); error.kind != kNoDataError) {
    for (int64_t i = 0; i < sequences.elements(); ++i) put(call.returns, std::numeric_limits<double>::quiet_NaN());
    return error;
  }
  const Tracked gamma = call.params.gamma;
  for (int64_t b = 0; b < sequences.count(); ++b) {
    const int64_t length = sequences.tokens(b);
    Tracked running = call.bootstrap.present() ? call.bootstrap.load(b) : 0.0;
    std::vector<Tracked> returns(static_cast<size_t>(length));
    int64_t last = length - 1;
    while (last >= 0 && !sequences.kept(call.mask, b, last)) --last;
    for (int64_t t = last; t >= 0; --t) {
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
