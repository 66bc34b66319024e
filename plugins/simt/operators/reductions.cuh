// Sums, means and largest numbers of rows. A row is read once.
#include "../skeleton/rows.cuh"

RLK_SIMT_ROWS_OF_BLOCKS(Sum, (in(x), of_row(y)),
                        { row.put(y, row.sum(Lane<double>(), from(x), [](auto, auto v) { return v; })); })
RLK_SIMT_ROWS_OF_BLOCKS(Mean, (in(x), of_row(y)), {
  const double sum = row.sum(Lane<double>(), from(x), [](auto, auto v) { return v; });
  row.put(y, sum / static_cast<double>(row.columns()));
})
RLK_SIMT_ROWS_OF_BLOCKS(Max, (in(x), of_row(y)),
                        { row.put(y, row.largest(d, from(x), [](auto, auto v) { return v; })); })
