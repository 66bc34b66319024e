// Elements of rows by their places, and rows of a table by their ids.
#include "../skeleton/take.cuh"

RLK_SIMT_MOVES_KERNEL(take, take(args);)
RLK_SIMT_MOVES(Gather, ("take"), taken_along(call.y, call.x, call.index))
RLK_SIMT_MOVES(IndexSelect, ("take"), taken_along(call.y, call.x, call.index))
RLK_SIMT_MOVES(Embedding, ("take"), taken_rows(call.y, call.weight, call.ids))
