// Sums of two rows, divided by the root of their mean square. A row that is held is read and written once; a longer one
// is read twice.
#include "../skeleton/norms.cuh"

#include <rlk/formula/norm.hpp>

RLK_SIMT_ROWS_OF_BLOCKS_WITH(AddRmsNorm, (out(y), out(sum), in(x), in(residual), or_one(weight)), (eps), {
  const auto root = root_of_row(row, from(x, residual), eps, [](auto, auto a, auto b) { return Add(a, b); });
  row.map(d, to(y, sum), from(x, residual, weight), [=](auto d, auto a, auto b, auto w) {
    const auto s = Add(a, b);
    return simt::both(rms_of(d, s, root.scale, root.of_scaled, w), s);
  });
})
