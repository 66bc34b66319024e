// Rows less their mean, divided by their standard deviation. A row that is held is read and written once; a longer one
// is read three times.
#include "../skeleton/norms.cuh"

#include <rlk/formula/norm.hpp>

RLK_SIMT_ROWS_OF_BLOCKS_WITH(LayerNorm, (out(y), in(x), or_one(weight), or_zero(bias), of_row(mean), of_row(rstd)),
                             (eps), {
                               const auto m = moments_of_row(row, from(x), eps);
                               row.map_within(m.is_within, to(y), from(x, weight, bias),
                                              [=](auto d, auto v, auto w, auto b) {
                                                return MulAdd(normal_of(d, v, m.mean, m.rstd), w, b);
                                              });
                               row.put(mean, m.mean);
                               row.put(rstd, m.rstd);
                             })
