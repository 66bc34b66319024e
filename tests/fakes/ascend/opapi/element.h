// How does a simulated operator read and write elements? Whole tensors are read into vectors of a computation type
// (float for FLOAT, FLOAT16 and BF16, double for DOUBLE, int64_t for integers and BOOL), in row-major order of a
// broadcast shape, and stored back with one rounding.
#pragma once

#include <cmath>
#include <cstring>
#include <type_traits>
#include <vector>

#include "nnopbase.h"
#include "tests/fakes/halves.hpp"

namespace fake_ascend {

using fake::bf16_of_float;
using fake::f16_of_float;
using fake::float_of_bf16;
using fake::float_of_f16;

// Storage types that only this simulator tells apart.
struct Half {
  uint16_t bits;
};
struct Bfloat {
  uint16_t bits;
};
struct Bool {
  uint8_t value;
};

// Calls visit with a value of the dtype's storage type.
template <typename Visit>
void visit_storage(int32_t dtype, Visit visit) {
  switch (dtype) {
    case ACL_FLOAT:
      return visit(float{});
    case ACL_FLOAT16:
      return visit(Half{});
    case ACL_BF16:
      return visit(Bfloat{});
    case ACL_DOUBLE:
      return visit(double{});
    case ACL_INT8:
      return visit(int8_t{});
    case ACL_UINT8:
      return visit(uint8_t{});
    case ACL_INT32:
      return visit(int32_t{});
    case ACL_INT64:
      return visit(int64_t{});
    default:
      return visit(Bool{});
  }
}

// Calls visit with a value of the computation type.
template <typename Visit>
void visit_compute(int32_t dtype, Visit visit) {
  if (dtype == ACL_DOUBLE)
    visit(double{});
  else if (dtype == ACL_FLOAT || dtype == ACL_FLOAT16 || dtype == ACL_BF16)
    visit(float{});
  else
    visit(int64_t{});
}

template <typename C, typename S>
C from_storage(S stored) {
  if constexpr (std::is_same_v<S, Half>)
    return static_cast<C>(float_of_f16(stored.bits));
  else if constexpr (std::is_same_v<S, Bfloat>)
    return static_cast<C>(float_of_bf16(stored.bits));
  else if constexpr (std::is_same_v<S, Bool>)
    return static_cast<C>(stored.value != 0);
  else
    return static_cast<C>(stored);
}

template <typename S, typename C>
S to_storage(C value) {
  if constexpr (std::is_same_v<S, Half>)
    return {f16_of_float(static_cast<float>(value))};
  else if constexpr (std::is_same_v<S, Bfloat>)
    return {bf16_of_float(static_cast<float>(value))};
  else if constexpr (std::is_same_v<S, Bool>)
    return {static_cast<uint8_t>(value != C{0})};
  else if constexpr (std::is_floating_point_v<C> && std::is_integral_v<S>) {
    return std::isfinite(value) ? static_cast<S>(static_cast<int64_t>(value)) : S{0};
  } else
    return static_cast<S>(value);
}

// Calls visit(offset in elements) for every index of `dims` in row-major order; `strides` belong to the same dims.
template <typename Visit>
void for_each_offset(const std::vector<int64_t>& dims, const std::vector<int64_t>& strides, Visit visit) {
  if (element_count(dims) == 0) return;
  if (dims.empty()) return visit(int64_t{0});
  const size_t last = dims.size() - 1;
  std::vector<int64_t> index(dims.size(), 0);
  int64_t base = 0;
  for (;;) {
    for (int64_t i = 0; i < dims[last]; ++i) visit(base + i * strides[last]);
    size_t axis = last;
    for (;;) {
      if (axis == 0) return;
      --axis;
      base += strides[axis];
      if (++index[axis] < dims[axis]) break;
      base -= dims[axis] * strides[axis];
      index[axis] = 0;
    }
  }
}

// The strides with which `view` is read as the broadcast shape `dims`.
inline std::vector<int64_t> broadcast_strides(const View& view, const std::vector<int64_t>& dims) {
  std::vector<int64_t> strides(dims.size(), 0);
  const size_t missing = dims.size() - view.dims.size();
  for (size_t i = 0; i < view.dims.size(); ++i) {
    strides[missing + i] = view.dims[i] == 1 ? 0 : view.strides[i];
  }
  return strides;
}

template <typename C>
std::vector<C> load(const View& view, const std::vector<int64_t>& dims) {
  std::vector<C> values;
  values.reserve(static_cast<size_t>(element_count(dims)));
  visit_storage(view.dtype, [&](auto typed) {
    using S = decltype(typed);
    for_each_offset(dims, broadcast_strides(view, dims), [&](int64_t offset) {
      S stored;
      std::memcpy(&stored, view.data + offset * static_cast<int64_t>(sizeof(S)), sizeof(S));
      values.push_back(from_storage<C>(stored));
    });
  });
  return values;
}

template <typename C>
std::vector<C> load(const View& view) {
  return load<C>(view, view.dims);
}

template <typename C>
void store(const View& view, const std::vector<C>& values) {
  visit_storage(view.dtype, [&](auto typed) {
    using S = decltype(typed);
    size_t next = 0;
    for_each_offset(view.dims, view.strides, [&](int64_t offset) {
      const S stored = to_storage<S>(values[next++]);
      std::memcpy(view.data + offset * static_cast<int64_t>(sizeof(S)), &stored, sizeof(S));
    });
  });
}

// The value as the dtype would keep it.
template <typename C>
C round_to(int32_t dtype, C value) {
  if (dtype == ACL_FLOAT16) return static_cast<C>(float_of_f16(f16_of_float(static_cast<float>(value))));
  if (dtype == ACL_BF16) return static_cast<C>(float_of_bf16(bf16_of_float(static_cast<float>(value))));
  return value;
}

// The computation type's value of a scalar argument.
template <typename C>
C value_of(const Scalar& scalar) {
  if constexpr (std::is_integral_v<C>)
    return scalar.integer;
  else
    return static_cast<C>(scalar.real);
}

// Sums as a vector unit does: 64 partial sums, then pairs of them.
template <typename C>
C vector_sum(const C* values, int64_t count, int64_t stride) {
  constexpr int64_t kLanes = 64;
  C lanes[kLanes] = {};
  for (int64_t i = 0; i < count; ++i) lanes[i % kLanes] += values[i * stride];
  for (int64_t width = kLanes / 2; width > 0; width /= 2) {
    for (int64_t i = 0; i < width; ++i) lanes[i] += lanes[i + width];
  }
  return lanes[0];
}

// The broadcast of two shapes; empty optional-like flag through `fits`.
inline std::vector<int64_t> broadcast(const std::vector<int64_t>& a, const std::vector<int64_t>& b, bool* fits) {
  std::vector<int64_t> dims(std::max(a.size(), b.size()));
  for (size_t i = 0; i < dims.size(); ++i) {
    const int64_t size_a = i < a.size() ? a[a.size() - 1 - i] : 1;
    const int64_t size_b = i < b.size() ? b[b.size() - 1 - i] : 1;
    if (size_a != size_b && size_a != 1 && size_b != 1) *fits = false;
    dims[dims.size() - 1 - i] = size_a == 1 ? size_b : size_a;
  }
  return dims;
}

}  // namespace fake_ascend

// Phase 2 of an operator.
#define FAKE_ASCEND_PHASE2(name)                                                                   \
  aclnnStatus name(void* workspace, uint64_t bytes, aclOpExecutor* executor, aclrtStream stream) { \
    return fake_ascend::phase2(#name, workspace, bytes, executor, stream);                         \
  }
