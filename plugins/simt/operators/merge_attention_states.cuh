// Two partial answers of attention as one. The log-sum-exp comes last: it may stand where those of the parts were.
#include "../skeleton/map.cuh"

#include <rlk/formula/merge.hpp>

RLK_SIMT_PART(MergeAttentionStates, MergedParts, (out), (call.out), (a, lse_a, b, lse_b),
              (call.out_a, every_element(call.lse_a), call.out_b, every_element(call.lse_b)), (double, none, 0.0),
              merged_of(d, a, lse_a, b, lse_b))
RLK_SIMT_PART(MergeAttentionStates, MergedLse, (lse), (or_none(call.lse)), (lse_a, lse_b), (call.lse_a, call.lse_b),
              (double, none, 0.0), merged_lse(d, lse_a, lse_b))
RLK_SIMT_MAPS(MergeAttentionStates, MergedParts, MergedLse)
