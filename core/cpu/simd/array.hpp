// Tensors as kernels get them. Elements are read and written one at a time here; skeletons and blocks read vectors.
#pragma once

#include <rlk/abi/tensor.h>

#include "core/cpu/simd/element.hpp"

namespace rlk::cpu {

// Where an element of two dimensions is.
struct Position {
  int64_t i, j;
};

// Indices and lengths, which loops ask for again and again.
struct IntArray {
  const void* data = nullptr;
  bool is_i64 = true;
  int64_t stride = 0;

  int64_t get(int64_t i) const {
    return is_i64 ? static_cast<const int64_t*>(data)[i * stride] : static_cast<const int32_t*>(data)[i * stride];
  }
};

// Without data an array is absent (or empty, and then no kernel reads its elements).
struct Array {
  void* data = nullptr;
  Dtype dtype = Dtype::f32;
  int32_t ndim = 0;
  int64_t shape[RLK_MAX_NDIM] = {};
  int64_t strides[RLK_MAX_NDIM] = {};  // in elements, any sign, 0 included
  bool exceeds_caches = false;         // see exceeds_caches()

  // Numbers that are no caller's tensor.
  static Array vector(void* data, Dtype dtype, int64_t stride = 1) {
    Array array;
    array.data = data;
    array.dtype = dtype;
    array.ndim = 1;
    array.strides[0] = stride;
    return array;
  }
  static Array of(double* numbers) { return vector(numbers, Dtype::f64); }
  // Column j of a matrix.
  Array column(int64_t j) const { return vector(element(data, j * strides[1], dtype), dtype, strides[0]); }

  bool present() const { return data != nullptr; }
  // Whether there is an argument at all: its data is not known before the call, and an empty one has none.
  bool given() const { return ndim != 0; }
  template <typename T>
  T* as() const {
    return static_cast<T*>(data);
  }
  double get(int64_t i, int64_t j = 0) const { return load_element(data, dtype, i * strides[0] + j * strides[1]); }
  double get(Position at) const { return get(at.i, at.j); }
  // Of an integer dtype.
  int64_t integer(int64_t i, int64_t j = 0) const { return load_integer(data, dtype, i * strides[0] + j * strides[1]); }
  // Of i32 or i64 and one dimension.
  IntArray integers() const { return {data, dtype == Dtype::i64, strides[0]}; }
  // Of a mask: whether the element counts; without a mask every one does.
  bool keeps(int64_t i, int64_t j = 0) const {
    return data == nullptr || static_cast<const uint8_t*>(data)[i * strides[0] + j * strides[1]] != 0;
  }
  bool keeps(Position at) const { return keeps(at.i, at.j); }
  void put(int64_t i, double value) const { store_element(data, dtype, i * strides[0], value); }
  void put(int64_t i, int64_t j, double value) const {
    store_element(data, dtype, i * strides[0] + j * strides[1], value);
  }
  void put(Position at, double value) const { put(at.i, at.j, value); }
};

// Elements of one task where each takes some nanoseconds.
constexpr int64_t kGrainElements = 4096;

}  // namespace rlk::cpu
