// Gradients of what was taken from rows by its place: each place adds its numbers one after the other. A vendor's own
// sum by places has no documented order, and its error grows with how often a place is there.
#include "../places.hpp"

namespace rlk::composed {

constexpr int64_t kMostPlaces = 64;

inline sdk::Refusal refuse_many(int64_t places, int64_t columns) {
  if (places > kMostPlaces)
    return sdk::Support::no("SIZE", sdk::format("more than %lld places of a row: each is a pass over the gradient",
                                                static_cast<long long>(kMostPlaces)));
  return refuse_ids(0, columns);
}

// What each place of rows of so many columns has been given so far, in twice the digits.
template <class D>
class PlaceSums {
public:
  PlaceSums(D d, int64_t columns)
      : d_(d), columns_(columns), here_(positions({columns})), sum_(Zero(d)), lost_(Zero(d)) {}

  // at: the place of each row, or one for all.
  void add(const View& at, Value grad) {
    const Value index = Places(*d_.recorder, at, columns_).index();
    const Value x = IfThenElseZero(Eq(here_, rows_of(positions({columns_, 1}), index)), grad);
    if (is_first_) {
      is_first_ = false;
      sum_ = x;
      return;
    }
    const Value next = Add(sum_, x), part = Sub(next, sum_);
    lost_ = Add(lost_, Add(Sub(sum_, Sub(next, part)), Sub(x, part)));
    sum_ = next;
  }
  // What is infinite or NaN has lost nothing.
  Value total() const { return is_first_ ? sum_ : IfThenElse(IsFinite(lost_), Add(sum_, lost_), sum_); }

private:
  Value positions(const Dims& dims) const {
    const Value counted{d_.recorder, d_.recorder->positions(dims, sdk::Dtype::f32)};
    return {d_.recorder, d_.recorder->cast(counted.node, D::kDtype)};
  }

  const D d_;
  const int64_t columns_;
  const Value here_;
  Value sum_, lost_;
  bool is_first_ = true;
};

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
