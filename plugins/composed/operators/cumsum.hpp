// Sums of the beginnings of rows, and their gradient: sums of the ends.
#include "../scans.hpp"

RLK_COMPOSED_ROWS(Cumsum, { out(call.y, sums_along(d, in(call.x), false)); })
RLK_COMPOSED_ROWS(CumsumBackward, { out(call.grad_x, sums_along(d, in(call.grad_y), true)); })
