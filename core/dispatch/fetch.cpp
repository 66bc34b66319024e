// Few copies of whole stretches, and the picking afterwards.
#include "core/dispatch/fetch.hpp"

#include <algorithm>
#include <numeric>

namespace rlk::core {
namespace {

using Indices = std::vector<int64_t>;

Indices whole_axis(int64_t size) {
  Indices list(static_cast<size_t>(size));
  std::iota(list.begin(), list.end(), int64_t{0});
  return list;
}

// Stretches of consecutive indices.
int64_t groups(const Indices& indices) {
  int64_t count = indices.empty() ? 0 : 1;
  for (size_t i = 1; i < indices.size(); ++i) count += indices[i] != indices[i - 1] + 1;
  return count;
}

// The axes from `inner` on lie in one stretch of `length` elements per index of the axes before.
struct Inner {
  size_t inner;
  int64_t length;
};
Inner inner_of(const rlk_tensor& tensor, const std::vector<Indices>& indices) {
  Inner found{static_cast<size_t>(tensor.ndim), 1};
  while (found.inner > 0) {
    const size_t axis = found.inner - 1;
    const int64_t size = tensor.shape[axis];
    if (size != 1 && tensor.strides[axis] != found.length) break;
    if (static_cast<int64_t>(indices[axis].size()) != size) break;
    found.length *= size;
    --found.inner;
  }
  return found;
}

int64_t copies(const rlk_tensor& tensor, const std::vector<Indices>& indices) {
  const Inner inner = inner_of(tensor, indices);
  if (inner.inner == 0) return 1;
  const size_t axis = inner.inner - 1;
  int64_t count =
      tensor.strides[axis] == inner.length ? groups(indices[axis]) : static_cast<int64_t>(indices[axis].size());
  for (size_t i = 0; i < axis; ++i) count *= static_cast<int64_t>(indices[i].size());
  return count;
}

}  // namespace

std::optional<Fetch> Fetch::make(const rlk_tensor& tensor, std::vector<Indices> wanted) {
  Fetch fetch;
  fetch.element_ = tensor.dtype.bits / 8;
  fetch.wanted_ = std::move(wanted);
  fetch.copied_ = fetch.wanted_;
  for (size_t axis = fetch.copied_.size(); axis-- > 0 && copies(tensor, fetch.copied_) > kMaxCopies;) {
    fetch.copied_[axis] = whole_axis(tensor.shape[axis]);
  }
  if (tensor.dtype.bits % 8 != 0 || copies(tensor, fetch.copied_) > kMaxCopies) return std::nullopt;
  fetch.add_stretches(tensor);
  return fetch;
}

void Fetch::add_stretches(const rlk_tensor& tensor) {
  if (std::any_of(copied_.begin(), copied_.end(), [](const Indices& axis) { return axis.empty(); })) return;
  const Inner inner = inner_of(tensor, copied_);
  std::vector<size_t> at(inner.inner, 0);
  for (;;) {
    int64_t offset = 0;
    for (size_t axis = 0; axis < inner.inner; ++axis) offset += copied_[axis][at[axis]] * tensor.strides[axis];
    offset *= element_;
    const auto bytes = static_cast<uint64_t>(inner.length * element_);
    if (!stretches_.empty() && stretches_.back().offset + static_cast<int64_t>(stretches_.back().bytes) == offset) {
      stretches_.back().bytes += bytes;
    } else {
      stretches_.push_back({offset, bytes});
    }
    bytes_ += bytes;
    size_t axis = inner.inner;
    while (axis > 0 && ++at[axis - 1] == copied_[axis - 1].size()) at[--axis] = 0;
    if (axis == 0) return;
  }
}

std::vector<std::byte> Fetch::pick(const char* copied) const {
  const auto* bytes = reinterpret_cast<const std::byte*>(copied);
  if (copied_ == wanted_) return {bytes, bytes + bytes_};
  // Where each wanted index stands among the copied ones, as an offset.
  std::vector<std::vector<int64_t>> places(wanted_.size());
  int64_t stride = element_, count = 1;
  for (size_t axis = wanted_.size(); axis-- > 0;) {
    for (const int64_t index : wanted_[axis]) {
      const auto found = std::lower_bound(copied_[axis].begin(), copied_[axis].end(), index);
      places[axis].push_back((found - copied_[axis].begin()) * stride);
    }
    stride *= static_cast<int64_t>(copied_[axis].size());
    count *= static_cast<int64_t>(wanted_[axis].size());
  }
  std::vector<std::byte> picked;
  picked.reserve(static_cast<size_t>(count * element_));
  std::vector<size_t> at(wanted_.size(), 0);
  for (int64_t i = 0; i < count; ++i) {
    int64_t offset = 0;
    for (size_t axis = 0; axis < at.size(); ++axis) offset += places[axis][at[axis]];
    picked.insert(picked.end(), bytes + offset, bytes + offset + element_);
    for (size_t axis = at.size(); axis > 0 && ++at[axis - 1] == wanted_[axis - 1].size(); --axis) at[axis - 1] = 0;
  }
  return picked;
}

}  // namespace rlk::core
