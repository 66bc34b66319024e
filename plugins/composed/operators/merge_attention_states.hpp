// Two partial answers of attention as one.
#include "../rows.hpp"

#include <rlk/formula/merge.hpp>

RLK_COMPOSED_ROWS(MergeAttentionStates, {
  const V lse_a = in(of_row(call.lse_a)), lse_b = in(of_row(call.lse_b));
  out(call.out, merged_of(d, in(call.out_a), lse_a, in(call.out_b), lse_b));
  const Three<V> share = shares_of(d, lse_a, lse_b);
  out(of_row(call.lse), Add(share.third, log(d, Add(share.first, share.second))));
})
