// Sums of the beginnings of rows, and their gradient: sums of the ends.
#include "../skeleton/scan.cuh"

RLK_SIMT_SCAN(Cumsum, Running, sums_from_first(call.y, call.x))
RLK_SIMT_SCAN(CumsumBackward, Running, sums_to_last(call.grad_x, call.grad_y))
