// Rows one behind the other: each part is copied to its columns.
#include "../skeleton/map.cuh"

RLK_SIMT_PART_BITS(Cat, CatFirst, (y), (columns_of(call.y, 0, call.A)), (a), (call.a), a)
RLK_SIMT_PART_BITS(Cat, CatSecond, (y), (columns_of(call.y, call.A, call.B)), (b), (call.b), b)
RLK_SIMT_MAPS(Cat, CatFirst, CatSecond)
