// The log-probability of one chosen token per row: the declaration's formula, fp64.
#include "core/golden/logp_rows.hpp"

namespace rlk::golden {

DataError logp(CallOf<sdk::ops::Logp>& call) {
  return answer_rows(call, [&call](int64_t n) { return scores_of(call, logits_row(call, n)); });
}

}  // namespace rlk::golden
