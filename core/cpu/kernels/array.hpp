// Tensors whose elements are read and written one at a time: the arguments of the kernels that have one number per
// token. Up to two dimensions; without data an array is absent (or empty, and then nobody asks for its elements).
#pragma once

#include "core/cpu/kernels/element.hpp"

namespace rlk::cpu {

// Where an element of two dimensions is.
struct Position {
  int64_t i, j;
};

struct Array {
  void* data = nullptr;
  Dtype dtype = Dtype::f32;
  int64_t strides[2] = {0, 0};

  bool present() const { return data != nullptr; }
  double get(int64_t i, int64_t j = 0) const { return load_element(data, dtype, i * strides[0] + j * strides[1]); }
  double get(Position at) const { return get(at.i, at.j); }
  void put(int64_t i, double value) const { store_element(data, dtype, i * strides[0], value); }
  void put(int64_t i, int64_t j, double value) const {
    store_element(data, dtype, i * strides[0] + j * strides[1], value);
  }
  void put(Position at, double value) const { put(at.i, at.j, value); }
};

struct Mask {
  const uint8_t* data = nullptr;
  int64_t strides[2] = {0, 0};

  // Whether the element counts; without a mask every one does.
  bool keeps(int64_t i, int64_t j = 0) const { return data == nullptr || data[i * strides[0] + j * strides[1]] != 0; }
  bool keeps(Position at) const { return keeps(at.i, at.j); }
};

struct IntArray {
  const void* data = nullptr;
  bool is_i64 = true;
  int64_t stride = 0;

  int64_t get(int64_t i) const {
    return is_i64 ? static_cast<const int64_t*>(data)[i * stride] : static_cast<const int32_t*>(data)[i * stride];
  }
};

// Elements of one task where each takes some nanoseconds.
constexpr int64_t kGrainElements = 4096;

}  // namespace rlk::cpu
