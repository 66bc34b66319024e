// add: every element of the broadcast, its place in a and b found from the last dimension on.
#include "elements.hpp"
#include "operators.hpp"

namespace golden_plugin {
namespace {

// How far the operand moves when the output's axis moves by one: 0 where the operand is repeated.
int64_t step(const Elements& operand, int ndim, int axis) {
  const int own = axis - (ndim - operand.ndim());
  return own < 0 || operand.size(own) == 1 ? 0 : operand.stride(own);
}

}  // namespace

void compute(const rlk_add_params& params, const Run& run) {
  const Elements a = run.input(RLK_ADD_IN_A), b = run.input(RLK_ADD_IN_B);
  const Elements out = run.output(RLK_ADD_OUT_OUT);
  const int ndim = out.ndim();
  int64_t count = 1;
  for (int axis = 0; axis < ndim; ++axis) count *= out.size(axis);
  for (int64_t i = 0; i < count; ++i) {
    int64_t rest = i, at_a = 0, at_b = 0, at_out = 0;
    for (int axis = ndim - 1; axis >= 0; --axis) {
      const int64_t index = rest % out.size(axis);
      rest /= out.size(axis);
      at_a += index * step(a, ndim, axis);
      at_b += index * step(b, ndim, axis);
      at_out += index * out.stride(axis);
    }
    out.set_at(a.real_at(at_a) + params.alpha * b.real_at(at_b), at_out);
  }
}

}  // namespace golden_plugin
