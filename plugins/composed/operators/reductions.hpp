// Sums, means and largest numbers of rows.
#include "../rows.hpp"

RLK_COMPOSED_ROWS(Sum, { out(of_row(call.y), row_sum(in(call.x))); })
RLK_COMPOSED_ROWS(Mean, { out(of_row(call.y), row_mean(d, in(call.x))); })
RLK_COMPOSED_ROWS(Max, { out(of_row(call.y), row_largest(in(call.x))); })
