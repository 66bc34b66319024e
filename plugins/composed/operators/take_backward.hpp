// Gradients of what was taken from rows by its place: each place adds its numbers one after the other. A vendor's own
// sum by places has no documented order, and its error grows with how often a place is there.
#include "../places.hpp"

namespace rlk::composed {

// The gradient of rows, NaN of those with a place outside.
template <class D, class Call>
Value gradient_of_places(D d, const Call& call, const Places& places) {
  const Reader<D> in{*d.recorder};
  PlaceSums<D> sums(d, call.D);
  for (int64_t k = 0; k < call.K; ++k) sums.add(column(call.index, k), in(column(call.grad_y, k)));
  if (call.K == 0) return sums.total();
  return IfThenElse(places.has_unknown(), number(d, std::numeric_limits<double>::quiet_NaN()), sums.total());
}

}  // namespace rlk::composed

RLK_COMPOSED_PLACE_SUMS(GatherBackward, refuse_many(call.K, call.D), {
  const Places places(recorder, call.index, call.D);
  if (call.K > 0) places.report_rows();
  out(call.grad_x, gradient_of_places(d, call, places));
})
RLK_COMPOSED_PLACE_SUMS(IndexSelectBackward, refuse_many(call.K, call.D), {
  const Places places(recorder, call.index, call.D);
  places.report();
  out(call.grad_x, gradient_of_places(d, call, places));
})
