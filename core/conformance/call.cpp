// Layouts, descriptors and the features of a call.
#include "core/conformance/call.hpp"

#include <algorithm>
#include <bit>

namespace rlk::core::conformance {
namespace {

constexpr uint64_t kBlockAlignment = 256;  // what the ABI promises of allocated memory
constexpr int64_t kRowGap = 3;             // elements; odd, so that rows lose the alignment of the first one
// Of a dimension of one element, as it is of a slice of one element: no address depends on it.
constexpr int64_t kStrideOfOne = 1'000'003;

template <class Declared>
int index_of(std::span<const Declared> list, std::string_view name) {
  for (size_t i = 0; i < list.size(); ++i) {
    if (name == list[i].name) return static_cast<int>(i);
  }
  return -1;
}

}  // namespace

const char* name_of(Layout layout) {
  static constexpr const char* kNames[] = {"contiguous", "padded",   "stepped", "reversed", "transposed",
                                           "expanded",   "mirrored", "turned",  "exchanged"};
  return kNames[static_cast<size_t>(layout)];
}

namespace {

// Which dimension is the i-th from the fastest.
size_t axis_of(Layout layout, size_t ndim, size_t i) {
  if (layout == Layout::transposed) return i;
  if (layout == Layout::turned && ndim > 1 && i < 2) i = 1 - i;
  if (layout == Layout::exchanged && ndim > 2 && (i == 1 || i == 2)) i = 3 - i;
  return ndim - 1 - i;
}

}  // namespace

Placement place(Layout layout, std::span<const int64_t> shape, int64_t group) {
  const size_t ndim = shape.size();
  Placement at;
  at.strides.assign(ndim, 1);
  int64_t stride = layout == Layout::stepped ? 2 : 1;
  for (size_t i = 0; i < ndim; ++i) {
    const size_t axis = axis_of(layout, ndim, i);
    at.strides[axis] = stride;
    if (layout == Layout::expanded && axis == 0) at.strides[axis] = 0;
    // Behind every dimension: a slice of a larger tensor, as queries of a fused projection are, has gaps at any of
    // them.
    const bool gap = layout == Layout::padded && axis > 0;
    stride *= std::max<int64_t>(shape[axis], 1) + (gap ? kRowGap : 0);
    stride = (stride + group - 1) / group * group;
  }
  const size_t backwards = layout == Layout::mirrored   ? ndim
                           : layout == Layout::reversed ? std::min<size_t>(ndim, 1)
                                                        : 0;
  for (size_t axis = 0; axis < backwards; ++axis) {
    at.first += std::max<int64_t>(shape[axis] - 1, 0) * at.strides[axis];
    at.strides[axis] = -at.strides[axis];
  }
  for (size_t axis = 0; axis < ndim && layout != Layout::contiguous; ++axis) {
    if (shape[axis] == 1) at.strides[axis] = kStrideOfOne * group;
  }
  at.extent = 1;
  for (size_t axis = 0; axis < ndim; ++axis) {
    if (shape[axis] == 0) at.extent = 0;
  }
  if (at.extent == 0) return at;
  for (size_t axis = 0; axis < ndim; ++axis) at.extent += (shape[axis] - 1) * std::abs(at.strides[axis]);
  return at;
}

int64_t Argument::count() const {
  int64_t product = 1;
  for (const int64_t size : shape) product *= size;
  return product;
}

int param_index(const OpDecl& decl, std::string_view name) {
  return index_of(decl.params, name);
}
int input_index(const OpDecl& decl, std::string_view name) {
  return index_of(decl.inputs, name);
}
int symbol_index(const OpDecl& decl, std::string_view name) {
  return index_of(decl.symbols, name);
}

Descriptors::Descriptors(const ConcreteCall& call, std::span<void* const> input_blocks,
                         std::span<void* const> output_blocks) {
  tensors_.reserve(call.inputs.size() + call.outputs.size());  // the arrays hold addresses of elements
  placements_.reserve(tensors_.capacity());
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    inputs_.push_back(add(call.inputs[i], input_blocks.empty() ? nullptr : input_blocks[i]));
  }
  for (size_t i = 0; i < call.outputs.size(); ++i) {
    outputs_.push_back(add(call.outputs[i], output_blocks.empty() ? nullptr : output_blocks[i]));
  }
}

const rlk_tensor* Descriptors::add(const Argument& argument, void* block) {
  if (!argument.present) return nullptr;
  const Placement& placement = placements_.emplace_back(argument.placement());
  rlk_tensor& tensor = tensors_.emplace_back();
  tensor = {};
  tensor.struct_size = sizeof(rlk_tensor);
  tensor.data = block;
  const int64_t first = placement.first + argument.shift;
  tensor.byte_offset = static_cast<uint64_t>(first * bits_of(argument.dtype) / 8);
  if (argument.count() == 0) {
    tensor.data = nullptr;
    tensor.byte_offset = 0;
  }
  // Blocks are aligned to kBlockAlignment, so the offset alone says how the first element lies.
  tensor.alignment = static_cast<uint32_t>(
      tensor.byte_offset == 0 ? kBlockAlignment
                              : std::min(kBlockAlignment, uint64_t{1} << std::countr_zero(tensor.byte_offset)));
  tensor.shape = argument.shape.data();
  tensor.strides = placement.strides.data();
  tensor.ndim = static_cast<int32_t>(argument.shape.size());
  tensor.dtype = abi_of(argument.dtype);
  return &tensor;
}

std::vector<std::string> features(const ConcreteCall& call) {
  BoundCall bound;
  bound.decl = call.decl;
  bound.params = call.params.data();
  bound.form = call.form;
  bound.present = call.present;
  bound.symbols = call.symbols;
  bound.dtypes = call.dtypes;
  bound.output_alias = call.output_alias;
  const Descriptors tensors(call);
  return features_of(bound, tensors.inputs(), tensors.outputs());
}

}  // namespace rlk::core::conformance
