// One answer of logp from the answers of vocabulary shards.
#include "../skeleton/shards.cuh"

RLK_SIMT_MOVES_BY(LogpMerge,
                  by_units(call.N,
                           {call.logp, call.lse, call.entropy, call.shard_logp, call.shard_lse, call.shard_entropy},
                           {call.S}),
                  merge_shards(args, unit);)
