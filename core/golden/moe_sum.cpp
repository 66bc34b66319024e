// The sum of what a token's experts give: the declaration's formula, fp64.
#include <rlk/sdk/ops/moe_sum.hpp>

#include "core/golden/operator.hpp"
#include "core/golden/tracked.hpp"

namespace rlk::golden {

DataError moe_sum(CallOf<sdk::ops::MoeSum>& call) {
  for (int64_t n = 0; n < call.N; ++n) {
    for (int64_t h = 0; h < call.H; ++h) {
      TrackedSum sum;
      for (int64_t k = 0; k < call.K; ++k) sum.add(call.x.load(n, k, h));
      put(call.y, sum.total());
    }
  }
  return {};
}

}  // namespace rlk::golden
