// The k numbers of each row that come first by rank, and their shares of the softmax. Each is looked for in the row,
// which is read once where it is held.
#include "../skeleton/rows.cuh"

RLK_SIMT_ROWS_WITH(TopkSoftmax, (in(x), list_of_row(weights), ids_of_row(ids)), (k, renormalize), {
  const Lane<typename Row::A> wide{};
  const auto first = row.first_place(wide, from(x));
  const auto largest = first.value;
  const bool is_of_chosen = renormalize != 0;  // then they are looked for twice: their sum comes first
  double sum = 0;
  if (!is_of_chosen) sum = row.sum(wide, from(x), [=](auto d, auto v) { return exp(d, Sub(v, largest)); });
  for (int round = is_of_chosen ? 0 : 1; round < 2; ++round) {
    auto chosen = first;
    rlk::simt::RowSum<Row::kLong> of_chosen;
    for (int64_t j = 0; j < static_cast<int64_t>(k); ++j) {
      if (j > 0) chosen = row.next_place(wide, from(x), chosen);
      const double power = ::exp(static_cast<double>(chosen.value) - static_cast<double>(largest));
      if (round == 0) {
        of_chosen.add(power);
      } else {
        row.put_id(ids, chosen.column, j);
        row.put(weights, power / sum, j);
      }
    }
    if (round == 0) sum = of_chosen.value();
  }
})
