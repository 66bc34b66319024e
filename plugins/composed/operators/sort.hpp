// Rows in order, and the first numbers of rows.
#include "../order.hpp"

namespace rlk::composed {

inline void put_in_order(Recorder& recorder, const View& y, const View& index, const View& x, Value order) {
  recorder.output(y, recorder.gather(recorder.input(x), order.node));
  recorder.output(index, order.node);
}

}  // namespace rlk::composed

RLK_COMPOSED_ROWS(Sort, {
  const bool is_descending = call.params.descending == decltype(call.params.descending)::on;
  put_in_order(recorder, call.y, call.index, call.x, order_of(d, in(call.x), call.x.dtype, is_descending, call.D));
})
RLK_COMPOSED_ROWS(TopK, {
  const bool is_largest = call.params.largest == decltype(call.params.largest)::on;
  put_in_order(recorder, call.y, call.index, call.x, order_of(d, in(call.x), call.x.dtype, is_largest, call.params.k));
})
