// Which axes are copied together, and the layout that comes of it.
#include "core/dispatch/device/host_layout.hpp"

#include <algorithm>
#include <cstdlib>

#include "core/declaration/overlap.hpp"

namespace rlk::core {

HostLayout::HostLayout(const rlk_tensor& tensor) {
  const int32_t bits = tensor.dtype.bits;
  int32_t ndim = tensor.ndim;
  std::copy(tensor.strides, tensor.strides + ndim, strides_.begin());
  if (element_count(tensor) == 0) return;
  if (bits % 8 != 0 && ndim > 0) --ndim;  // rows begin and end at whole bytes
  const int64_t row = ndim < tensor.ndim ? tensor.shape[ndim] : 1;
  unit_ = static_cast<uint64_t>((row * bits + 7) / 8);
  for (int32_t d = 0; d < ndim; ++d) {
    if (tensor.shape[d] == 1 || tensor.strides[d] == 0) continue;
    const int64_t step = tensor.strides[d] * bits / 8;
    axis_[axes_++] = {d, tensor.shape[d], step, step};
  }
  std::stable_sort(axis_.begin(), axis_.begin() + static_cast<std::ptrdiff_t>(axes_),
                   [](const Axis& a, const Axis& b) { return std::abs(a.step) < std::abs(b.step); });
  cut_at(axes_);
}

uint64_t HostLayout::span(size_t level) const {
  uint64_t bytes = unit_;
  for (size_t k = 0; k < level; ++k)
    bytes += static_cast<uint64_t>(axis_[k].size - 1) * static_cast<uint64_t>(std::abs(axis_[k].step));
  return bytes;
}

bool HostLayout::is_dense(size_t level) const {
  uint64_t elements = unit_;
  for (size_t k = 0; k < level; ++k) elements *= static_cast<uint64_t>(axis_[k].size);
  return span(level) == elements;
}

void HostLayout::cut_at(size_t level) {
  level_ = level;
  stretch_ = span(level);
  copies_ = 1;
  low_ = 0;
  for (size_t k = 0; k < axes_; ++k) {
    if (k >= level) copies_ *= static_cast<uint64_t>(axis_[k].size);
    if (k < level && axis_[k].step < 0) low_ += (axis_[k].size - 1) * axis_[k].step;
  }
}

// One stretch after the other. Negative strides stay negative: the first element is where it was among its own.
void HostLayout::pack(int32_t bits) {
  auto step = static_cast<int64_t>(stretch_);
  for (size_t k = level_; k < axes_; ++k) {
    Axis& axis = axis_[k];
    axis.host_step = axis.step < 0 ? -step : step;
    strides_[static_cast<size_t>(axis.dimension)] = axis.host_step * 8 / bits;
    step *= axis.size;
  }
}

HostLayout HostLayout::of_input(const rlk_tensor& tensor) {
  HostLayout layout(tensor);
  if (layout.copies_ == 0) return layout;
  const int32_t bits = tensor.dtype.bits;
  size_t best = layout.axes_;
  const auto cost = [&](size_t level) {
    layout.cut_at(level);
    return layout.bytes() + layout.copies_ * kCopyCostBytes;
  };
  uint64_t least = cost(best);
  for (size_t level = layout.axes_; level-- > 0;) {
    if (layout.span(level) * 8 % static_cast<uint64_t>(bits) != 0) continue;  // no stride of whole elements
    if (const uint64_t now = cost(level); now < least) least = now, best = level;
  }
  layout.cut_at(best);
  layout.pack(bits);
  return layout;
}

HostLayout HostLayout::of_output(const rlk_tensor& tensor) {
  HostLayout layout(tensor);
  if (layout.copies_ == 0) return layout;
  size_t level = layout.axes_;
  while (level > 0 && !layout.is_dense(level)) --level;
  layout.cut_at(level);
  if (layout.stretch_ * 8 % static_cast<uint64_t>(tensor.dtype.bits) == 0) layout.pack(tensor.dtype.bits);
  return layout;
}

HostLayout HostLayout::of_output(const rlk_tensor& tensor, const HostLayout& input) {
  HostLayout layout = of_output(tensor);
  layout.strides_ = input.strides_;
  for (size_t k = 0; k < layout.axes_; ++k) layout.axis_[k].host_step = input.axis_[k].host_step;
  return layout;
}

HostTensors::HostTensors(const BoundCall& call, std::span<const rlk_tensor* const> inputs,
                         std::span<const rlk_tensor* const> outputs)
    : n_inputs_(inputs.size()), tensors_(inputs.size() + outputs.size()), pointers_(tensors_.size(), nullptr) {
  layouts_.reserve(tensors_.size());
  shapes_.reserve(tensors_.size() * RLK_MAX_NDIM);
  at_.assign(tensors_.size(), -1);
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const bool is_input = i < n_inputs_;
    const rlk_tensor* from = is_input ? inputs[i] : outputs[i - n_inputs_];
    if (from == nullptr) continue;
    const int32_t over = is_input ? -1 : call.output_alias[i - n_inputs_];
    at_[i] = static_cast<int>(layouts_.size());
    layouts_.push_back(is_input   ? HostLayout::of_input(*from)
                       : over < 0 ? HostLayout::of_output(*from)
                                  : HostLayout::of_output(*from, layout(static_cast<size_t>(over))));
    tensors_[i] = *from;
    tensors_[i].struct_size = sizeof(rlk_tensor);
    tensors_[i].shape = shapes_.data() + shapes_.size();
    if (from->ndim > 0) shapes_.insert(shapes_.end(), from->shape, from->shape + from->ndim);
    tensors_[i].strides = layouts_.back().strides();
    pointers_[i] = &tensors_[i];
  }
}

}  // namespace rlk::core
