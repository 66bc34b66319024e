// Elements of any dtype that are copied or chosen.
#include "../skeleton/map.cuh"

RLK_SIMT_MAP_BITS(Copy, (y), (x), x)
RLK_SIMT_MAP_BITS(Where, (out), (condition, a, b), IfThenElse(Ne(condition, Zero(d)), a, b))
