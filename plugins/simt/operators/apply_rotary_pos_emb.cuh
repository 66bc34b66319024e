// Every head is a map over its pairs: each reads both members before it writes them. Cosines and sines are the token's.
#include "../skeleton/map.cuh"

#include <rlk/formula/rotary.hpp>

#define RLK_FIRST(x) first_of_pairs(x, call.params.style)
#define RLK_SECOND(x) second_of_pairs(x, call.params.style)
#define RLK_TURN(NAME, x, x_out)                                                                                       \
  RLK_SIMT_PART(ApplyRotaryPosEmb, NAME, (first, second), (RLK_FIRST(or_none(x_out)), RLK_SECOND(or_none(x_out))),     \
                (a, b, cos_a, sin_a, cos_b, sin_b),                                                                    \
                (RLK_FIRST(or_none(x)), RLK_SECOND(or_none(x)), every_head(RLK_FIRST(call.cos)),                       \
                 every_head(RLK_FIRST(call.sin)), every_head(RLK_SECOND(call.cos)), every_head(RLK_SECOND(call.sin))), \
                (double, sign, call.params.inverse == decltype(call.params.inverse)::on ? -1.0 : 1.0),                 \
                turned(d, a, b, cos_a, sin_a, cos_b, sin_b, sign))
RLK_TURN(TurnedQuery, call.query, call.query_out)
RLK_TURN(TurnedKey, call.key, call.key_out)
RLK_SIMT_MAPS(ApplyRotaryPosEmb, TurnedQuery, TurnedKey)
#undef RLK_TURN
#undef RLK_FIRST
#undef RLK_SECOND
