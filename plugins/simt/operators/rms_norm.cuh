// Rows divided by the root of their mean square. A row that is held is read and written once; a longer one is read
// twice.
#include "../skeleton/norms.cuh"

#include <rlk/formula/norm.hpp>

RLK_SIMT_ROWS_OF_BLOCKS_WITH(RmsNorm, (out(y), in(x), or_one(weight), of_row(rstd)), (eps), {
  const auto root = root_of_row(row, from(x), eps);
  row.map(d, to(y), from(x, weight),
          [=](auto d, auto v, auto w) { return rms_of(d, v, root.scale, root.of_scaled, w); });
  row.put(rstd, root.root());
})
