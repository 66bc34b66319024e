// Formulas of one element: every index of the shape that the views have or broadcast to, in row-major order.
#pragma once

#include <algorithm>
#include <array>
#include <vector>

#include "core/golden/golden.hpp"

namespace rlk::golden {

// The shape of a broadcast: sizes are aligned at the last dimension, 1 or a missing dimension is repeated.
template <class... Views>
std::vector<int64_t> common_shape(const Views&... views) {
  std::vector<int64_t> shape(static_cast<size_t>(std::max({views.ndim...})), 1);
  const auto widen = [&](const View& view) {
    for (int back = 1; back <= view.ndim; ++back) {
      int64_t& size = shape[shape.size() - static_cast<size_t>(back)];
      if (size == 1) size = view.shape[view.ndim - back];
    }
  };
  (widen(views), ...);
  return shape;
}

inline int64_t offset_at(const View& view, const std::vector<int64_t>& index) {
  int64_t offset = 0;
  for (int back = 1; back <= view.ndim; ++back) {
    const int axis = view.ndim - back;
    if (view.shape[axis] != 1) offset += index[index.size() - static_cast<size_t>(back)] * view.strides[axis];
  }
  return offset;
}

// Calls function(offset of each view's element) for every element.
template <class Function, class... Views>
void for_each_offset(const Function& function, const Views&... views) {
  const std::vector<int64_t> shape = common_shape(views...);
  int64_t elements = 1;
  for (const int64_t size : shape) elements *= size;
  std::vector<int64_t> index(shape.size(), 0);
  for (int64_t i = 0; i < elements; ++i) {
    for (size_t axis = index.size(); i > 0 && axis-- > 0;) {
      if (++index[axis] < shape[axis]) break;
      index[axis] = 0;
    }
    function(offset_at(views, index)...);
  }
}

// Calls function(the element of each view) for every element.
template <class Function, class... Views>
void for_each_element(const Function& function, const Views&... views) {
  for_each_offset([&](auto... offsets) { function(views.load_at(offsets)...); }, views...);
}

}  // namespace rlk::golden
