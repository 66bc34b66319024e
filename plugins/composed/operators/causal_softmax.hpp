// Softmax of each query's scores over the keys that it sees, and its gradient. What it does not see may be anything.
#include "../rows.hpp"

#include <rlk/formula/norm.hpp>

namespace rlk::composed {

// Of [queries, keys], the queries being the last of the keys.
inline Mask seen_keys(Recorder& recorder, int64_t queries, int64_t keys) {
  const Recording<float> d{&recorder};
  const Value query{&recorder, recorder.positions({queries, 1}, d.kDtype)};
  const Value key{&recorder, recorder.positions({keys}, d.kDtype)};
  return Le(Sub(key, query), number(d, static_cast<double>(keys - queries)));
}

}  // namespace rlk::composed

RLK_COMPOSED_ROWS(CausalSoftmax, {
  const Mask seen = seen_keys(recorder, call.S, call.K);
  const V x = IfThenElse(seen, in(call.x), Neg(Inf(d)));
  const RowPowers p = powers_of_row(d, x);
  out(call.y, IfThenElseZero(seen, softmax_of(d, x, p.largest, p.share(d))));
})
RLK_COMPOSED_ROWS(CausalSoftmaxBackward, {
  const Mask seen = seen_keys(recorder, call.S, call.K);
  const V grad = IfThenElseZero(seen, in(call.grad_y)), y = IfThenElseZero(seen, in(call.y));
  out(call.grad_x, IfThenElseZero(seen, softmax_gradient(d, grad, y, row_sum(Mul(grad, y)))));
})
