// Shapes, and parts of tensors.
#include "view.hpp"

namespace rlk::composed {

int64_t element_count(const Dims& dims) {
  uint64_t count = 1;  // unsigned: of an empty tensor the other sizes may have any product
  for (const int64_t dim : dims) count *= static_cast<uint64_t>(dim);
  return static_cast<int64_t>(count);
}

Dims dense_strides(const Dims& dims) {
  Dims strides(dims.size());
  int64_t stride = 1;
  for (size_t i = dims.size(); i-- > 0; stride *= dims[i]) strides[i] = stride;
  return strides;
}

bool is_dense(const Dims& dims, const Dims& strides) {
  int64_t expected = 1;
  for (size_t i = dims.size(); i-- > 0; expected *= dims[i]) {
    if (dims[i] != 1 && strides[i] != expected) return false;
  }
  return true;
}

View view_of(View::Place place, uint32_t index, const rlk_tensor* tensor) {
  View view;
  if (tensor == nullptr) return view;
  view.place = place;
  view.index = index;
  view.dtype = sdk::dtype_of(*tensor);
  view.dims.assign(tensor->shape, tensor->shape + tensor->ndim);
  view.strides.assign(tensor->strides, tensor->strides + tensor->ndim);
  return view;
}

View first_half(View view) {
  if (view.is_present()) view.dims.back() /= 2;
  return view;
}

View second_half(View view) {
  if (!view.is_present()) return view;
  view.dims.back() /= 2;
  view.byte_offset += view.dims.back() * view.strides.back() * sdk::bytes_of(view.dtype);
  return view;
}

View even_elements(View view) {
  if (!view.is_present()) return view;
  view.dims.back() = (view.dims.back() + 1) / 2;
  view.strides.back() *= 2;
  return view;
}

View odd_elements(View view) {
  if (!view.is_present()) return view;
  view.dims.back() /= 2;
  view.byte_offset += view.strides.back() * sdk::bytes_of(view.dtype);
  view.strides.back() *= 2;
  return view;
}

View every_head(View view) {
  if (!view.is_present()) return view;
  view.dims.insert(view.dims.end() - 1, 1);
  view.strides.insert(view.strides.end() - 1, 1);
  return view;
}

View as_rows(View view, int64_t rows, int64_t columns) {
  view.dims = {rows, columns};
  view.strides = {columns, 1};
  return view;
}

View of_row(View view) {
  if (!view.is_present()) return view;
  view.dims.push_back(1);
  view.strides.push_back(1);
  return view;
}

View of_columns(View view) {
  if (!view.is_present()) return view;
  view.dims.insert(view.dims.begin(), 1);
  view.strides.insert(view.strides.begin(), 1);
  return view;
}

bool has_token_rows(const View& view) {
  return view.dims[0] <= 1 || view.dims[1] <= 1 || view.strides[0] == view.dims[1] * view.strides[1];
}

View token_rows_of(View view) {
  if (!view.is_present()) return view;
  const int64_t distance = view.dims[1] == 1 ? view.strides[0] : view.strides[1];
  view.strides = {distance, view.strides[2]};
  view.dims = {view.dims[0] * view.dims[1], view.dims[2]};
  return view;
}

View narrowed(View view, size_t axis, int64_t first, int64_t count) {
  if (!view.is_present()) return view;
  view.byte_offset += first * view.strides[axis] * sdk::bytes_of(view.dtype);
  view.dims[axis] = count;
  return view;
}

View permuted(const View& view, const std::vector<size_t>& order) {
  if (!view.is_present()) return view;
  View other = view;
  for (size_t i = 0; i < order.size(); ++i) {
    other.dims[i] = view.dims[order[i]];
    other.strides[i] = view.strides[order[i]];
  }
  return other;
}

std::vector<int64_t> host_values(const View& view) {
  std::vector<int64_t> values(static_cast<size_t>(element_count(view.dims)));
  if (view.host == nullptr && !values.empty()) {
    throw sdk::Error(
        RLK_INVALID_ARGUMENT,
        sdk::format("host values of input %u are missing; query and plan_create asked for them", view.index));
  }
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = view.dtype == sdk::Dtype::i32 ? static_cast<const int32_t*>(view.host)[i]
                                              : static_cast<const int64_t*>(view.host)[i];
  }
  return values;
}

View column(View view, int64_t index) {
  if (!view.is_present()) return view;
  view.byte_offset += index * view.strides.back() * sdk::bytes_of(view.dtype);
  view.dims.back() = 1;
  return view;
}

View columns(View view, int64_t first, int64_t count) {
  View part = column(std::move(view), first);
  if (part.is_present()) part.dims.back() = count;
  return part;
}

View some_rows(View view, int64_t first, int64_t count) {
  if (!view.is_present()) return view;
  view.byte_offset += first * view.strides[0] * sdk::bytes_of(view.dtype);
  view.dims[0] = count;
  return view;
}

View mask_of(View view) {
  view = or_number(std::move(view), 1);
  view.is_mask = true;
  return view;
}

View or_number(View view, double value) {
  if (!view.is_present()) view.value = value;
  return view;
}

}  // namespace rlk::composed
