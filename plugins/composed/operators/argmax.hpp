// Where the largest number of each row is. A vendor leaves open which of equals it names and what it makes of a NaN, so
// the program asks for the place of one number that stands alone: it numbers the largest ones from the end of the row.
#include "../rows.hpp"

RLK_COMPOSED_ROWS(Argmax, {
  const V x = in(call.x);
  const V place{&recorder, recorder.positions({call.D}, sdk::Dtype::f32)};
  const V from_end = Sub(detail::beside(place, static_cast<double>(call.D)), place);
  const V rank = IfThenElseZero(Or(Eq(x, row_largest(x)), IsNaN(x)), from_end);
  recorder.output(of_row(call.index), place_of_largest(rank).node);
})
