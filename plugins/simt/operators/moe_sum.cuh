// The sum of what a token's experts give, in fp64 and in their order.
#include "../skeleton/sums.cuh"

RLK_SIMT_MOVES_BY(MoeSum, by_packs(call.N, call.H, {call.y, call.x}, {call.K}),
                  { with_move_type(args.tensor[0].dtype, [&](auto type) { sum_middle<decltype(type)>(args, unit); }); })
