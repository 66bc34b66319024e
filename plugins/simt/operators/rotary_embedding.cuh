// Pairs of every head are turned by the cosines and sines of the token's position. A thread has a pack of pairs, of the
// query's heads first, then of the key's; both members are read before one is written, so it works in place. What is
// not turned is copied, in packs behind those.
#include "../skeleton/turn.cuh"

RLK_SIMT_MOVES_BY(RotaryEmbedding, turned_by_position(call),
                  { with_move_type(args.tensor[0].dtype, [&](auto type) { turn<decltype(type)>(args, unit); }); })
