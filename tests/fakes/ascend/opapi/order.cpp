// The simulated sorts.
#include <algorithm>
#include <numeric>

#include "aclnn_api.h"
#include "element.h"

using namespace fake_ascend;

namespace {

constexpr Dtypes kSortable = {ACL_FLOAT, ACL_FLOAT16, ACL_BF16};
constexpr Dtypes kPlaces = {ACL_INT64};

}  // namespace

// Equals of a sort that is not stable are in the opposite order of their places; a NaN is in front of everything, and 0
// behind -0: what is documented of none of these must not be relied on.
aclnnStatus aclnnSortGetWorkspaceSize(const aclTensor* self, bool stable, int64_t dim, bool descending,
                                      aclTensor* values, aclTensor* indices, uint64_t* bytes,
                                      aclOpExecutor** executor) {
  Phase1 phase("aclnnSort", bytes, executor);
  const Tensor& from = phase.in("self", self, kSortable);
  const Tensor& to = phase.out("valuesOut", values, kSortable);
  const Tensor& at = phase.out("indicesOut", indices, kPlaces);
  const auto rank = static_cast<int64_t>(from.dims.size());
  const int64_t axis = dim < 0 ? dim + rank : dim;
  phase.require(axis == rank - 1, "the last dimension (this simulator)");
  phase.require(from.dtype != ACL_BF16 || axis != 1, "another dim than 1 of BFLOAT16");
  phase.require(to.dtype == from.dtype && to.dims == from.dims && at.dims == from.dims,
                "valuesOut and indicesOut of the shape of self " + shape_text(from.dims));
  return phase.finish([stable, descending](const Operands& operands) {
    const auto all = load<float>(operands.in[0]);
    const auto columns = static_cast<size_t>(operands.in[0].dims.back());
    std::vector<float> sorted;
    std::vector<int64_t> places;
    const auto before = [&](float a, float b) {
      if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && !std::isnan(b);
      if (a == 0 && b == 0) return std::signbit(a) && !std::signbit(b);
      return descending ? a > b : a < b;
    };
    for (size_t row = 0; columns > 0 && row < all.size(); row += columns) {
      std::vector<int64_t> order(columns);
      std::iota(order.begin(), order.end(), 0);
      if (!stable) std::reverse(order.begin(), order.end());
      std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
        return before(all[row + static_cast<size_t>(a)], all[row + static_cast<size_t>(b)]);
      });
      for (const int64_t place : order) sorted.push_back(all[row + static_cast<size_t>(place)]);
      places.insert(places.end(), order.begin(), order.end());
    }
    store(operands.out[0], sorted);
    store(operands.out[1], places);
    return 0;
  });
}
FAKE_ASCEND_PHASE2(aclnnSort)
