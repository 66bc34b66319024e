// out = a + alpha * b with broadcasting: each output index is mapped to one element of a and one of b. fp64.
#include <rlk/sdk/ops/add.hpp>

#include <algorithm>
#include <cmath>

#include "core/golden/operator.hpp"

namespace rlk::golden {
namespace {

// The size of axis `axis` of an ndim-dimensional broadcast, which is counted from the last dimension of the operand.
int64_t size_at(const View& operand, int ndim, int axis) {
  const int own = axis - (ndim - operand.ndim);
  return own < 0 ? 1 : operand.shape[own];
}

int64_t offset_at(const View& operand, const std::vector<int64_t>& index) {
  int64_t offset = 0;
  for (int own = 0; own < operand.ndim; ++own) {
    if (operand.shape[own] == 1) continue;  // repeated
    offset += index[index.size() - static_cast<size_t>(operand.ndim - own)] * operand.strides[own];
  }
  return offset;
}

}  // namespace

DataError add(CallOf<sdk::ops::Add>& call) {
  const int ndim = std::max(call.a.ndim, call.b.ndim);
  std::vector<int64_t> shape;
  int64_t elements = 1;
  for (int axis = 0; axis < ndim; ++axis) {
    const int64_t size_a = size_at(call.a, ndim, axis);
    const int64_t size_b = size_at(call.b, ndim, axis);
    shape.push_back(size_a == 1 ? size_b : size_a);
    elements *= shape.back();
  }

  std::vector<int64_t> index(shape.size(), 0);
  for (int64_t i = 0; i < elements; ++i) {
    for (size_t axis = index.size(); i > 0 && axis-- > 0;) {
      if (++index[axis] < shape[axis]) break;
      index[axis] = 0;
    }
    const double a = call.a.load_at(offset_at(call.a, index));
    const double scaled_b = call.params.alpha * call.b.load_at(offset_at(call.b, index));
    const double out = a + scaled_b;
    call.out.value.push_back(out);
    // alpha and the product are rounded before the sum. No kTiny: a sum of subnormal numbers is exact.
    call.out.cond.push_back(std::isfinite(out) ? std::fabs(a) + std::fabs(scaled_b) : 0.0);
  }
  return {};
}

}  // namespace rlk::golden
