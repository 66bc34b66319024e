// Few copies of whole stretches, and the picking afterwards.
#include "core/dispatch/fetch.hpp"

#include <algorithm>
#include <utility>

namespace rlk::core {
namespace {

using Axis = Fetch::Axis;

// The axes from `inner` on lie in one stretch of `length` elements per index of the axes before.
struct Inner {
  size_t inner;
  int64_t length;
};
Inner inner_of(const rlk_tensor& tensor, const std::vector<Axis>& axes) {
  Inner found{static_cast<size_t>(tensor.ndim), 1};
  while (found.inner > 0) {
    const size_t axis = found.inner - 1;
    const int64_t size = tensor.shape[axis];
    if (size != 1 && tensor.strides[axis] != found.length) break;
    if (axes[axis].count() != size) break;
    found.length *= size;
    --found.inner;
  }
  return found;
}

int64_t copies(const rlk_tensor& tensor, const std::vector<Axis>& axes) {
  const Inner inner = inner_of(tensor, axes);
  if (inner.inner == 0) return 1;
  const size_t axis = inner.inner - 1;
  int64_t count = tensor.strides[axis] == inner.length ? axes[axis].groups() : axes[axis].count();
  for (size_t i = 0; i < axis && count <= Fetch::kMaxCopies; ++i) count *= axes[i].count();
  return count;
}

}  // namespace

int64_t Fetch::Axis::place(int64_t index) const {
  if (!list) return index;
  return std::lower_bound(list->begin(), list->end(), index) - list->begin();
}

int64_t Fetch::Axis::groups() const {
  if (!list) return size > 0 ? 1 : 0;
  int64_t groups = list->empty() ? 0 : 1;
  for (size_t i = 1; i < list->size(); ++i) groups += (*list)[i] != (*list)[i - 1] + 1 ? 1 : 0;
  return groups;
}

std::optional<Fetch> Fetch::make(const rlk_tensor& tensor, std::vector<std::optional<std::vector<int64_t>>> wanted) {
  Fetch fetch;
  fetch.element_ = tensor.dtype.bits / 8;
  for (size_t axis = 0; axis < wanted.size(); ++axis) {
    Axis& own = fetch.wanted_.emplace_back(Axis{tensor.shape[axis], std::move(wanted[axis])});
    if (own.count() == own.size) own.list.reset();
  }
  fetch.copied_ = fetch.wanted_;
  for (size_t axis = fetch.copied_.size(); axis-- > 0 && copies(tensor, fetch.copied_) > kMaxCopies;) {
    fetch.copied_[axis].list.reset();
  }
  if (tensor.dtype.bits % 8 != 0 || copies(tensor, fetch.copied_) > kMaxCopies) return std::nullopt;
  fetch.add_stretches(tensor);
  return fetch;
}

void Fetch::add_stretches(const rlk_tensor& tensor) {
  if (std::any_of(copied_.begin(), copied_.end(), [](const Axis& axis) { return axis.count() == 0; })) return;
  const Inner inner = inner_of(tensor, copied_);
  std::vector<int64_t> at(inner.inner, 0);
  for (;;) {
    int64_t offset = 0;
    for (size_t axis = 0; axis < inner.inner; ++axis) offset += copied_[axis].at(at[axis]) * tensor.strides[axis];
    offset *= element_;
    const auto bytes = static_cast<uint64_t>(inner.length * element_);
    if (!stretches_.empty() && stretches_.back().offset + static_cast<int64_t>(stretches_.back().bytes) == offset) {
      stretches_.back().bytes += bytes;
    } else {
      stretches_.push_back({offset, bytes});
    }
    bytes_ += bytes;
    size_t axis = inner.inner;
    while (axis > 0 && ++at[axis - 1] == copied_[axis - 1].count()) at[--axis] = 0;
    if (axis == 0) return;
  }
}

std::vector<std::byte> Fetch::pick(const char* copied) const {
  const auto* bytes = reinterpret_cast<const std::byte*>(copied);
  if (copied_ == wanted_) return {bytes, bytes + bytes_};
  std::vector<int64_t> strides(wanted_.size());  // bytes, among what was copied
  int64_t stride = element_, count = 1;
  for (size_t axis = wanted_.size(); axis-- > 0;) {
    strides[axis] = stride;
    stride *= copied_[axis].count();
    count *= wanted_[axis].count();
  }
  std::vector<std::byte> picked;
  picked.reserve(static_cast<size_t>(count * element_));
  std::vector<int64_t> at(wanted_.size(), 0);
  for (int64_t i = 0; i < count; ++i) {
    int64_t offset = 0;
    for (size_t axis = 0; axis < at.size(); ++axis) {
      offset += copied_[axis].place(wanted_[axis].at(at[axis])) * strides[axis];
    }
    picked.insert(picked.end(), bytes + offset, bytes + offset + element_);
    for (size_t axis = at.size(); axis > 0 && ++at[axis - 1] == wanted_[axis - 1].count(); --axis) at[axis - 1] = 0;
  }
  return picked;
}

}  // namespace rlk::core
