// Where the elements of several arrays are that are walked together, in the order of the first one's indices.
#pragma once

#include <algorithm>
#include <array>

#include "core/cpu/simd/array.hpp"

namespace rlk::cpu {

// Elements at one distance from each other. A stride of 0 repeats one element.
struct Line {
  void* data = nullptr;
  Dtype dtype = Dtype::f32;
  int64_t stride = 0;
  bool exceeds_caches = false;  // its array does

  bool present() const { return data != nullptr; }
  double get(int64_t i) const { return load_element(data, dtype, i * stride); }
  // Of a mask: whether the element counts; without a mask every one does.
  bool keeps(int64_t i) const { return data == nullptr || static_cast<const uint8_t*>(data)[i * stride] != 0; }
  Line from(int64_t i) const { return {element(data, i * stride, dtype), dtype, stride, exceeds_caches}; }
};

// Row n of a matrix, and all of a vector; an array of no dimension repeats its one number.
inline Line line_of(const Array& matrix, int64_t n) {
  if (matrix.ndim == 0) return {matrix.data, matrix.dtype, 0};
  return {element(matrix.data, n * matrix.strides[0], matrix.dtype), matrix.dtype, matrix.strides[1],
          matrix.exceeds_caches};
}
inline Line line_of(const Array& vector) {
  return {vector.data, vector.dtype, vector.ndim == 0 ? 0 : vector.strides[0], vector.exceeds_caches};
}

constexpr int64_t kLineBlock = 256;  // elements: sums of a block are chains of at most 32, and ten buffers fit in L1

// A number, a block of times.
template <class T, int kNumber>
struct Repeated {
  constexpr Repeated() { std::fill(numbers, numbers + kLineBlock, static_cast<T>(kNumber)); }
  alignas(64) T numbers[kLineBlock];
};
template <class T, int kNumber>
inline constexpr Repeated<T, kNumber> kRepeated;

// An optional argument (array or line), or a number in place of every element that it would have.
template <int kNumber, class Operand>
Operand or_number(const Operand& operand) {
  if (operand.present()) return operand;
  Operand repeated;
  repeated.data = const_cast<float*>(kRepeated<float, kNumber>.numbers);
  return repeated;
}
template <class Operand>
Operand or_zero(const Operand& operand) {
  return or_number<0>(operand);
}
template <class Operand>
Operand or_one(const Operand& operand) {
  return or_number<1>(operand);
}
// Where the block of such a number stands; null for the data of other operands.
template <class T>
const T* repeated_block(const void* data) {
  if (data == kRepeated<float, 0>.numbers) return kRepeated<T, 0>.numbers;
  if (data == kRepeated<float, 1>.numbers) return kRepeated<T, 1>.numbers;
  return nullptr;
}

// The operands of a formula: what it writes to, and what it reads from, all of them arrays or all of them lines.
template <class First, class... Rest>
std::array<First, 1 + sizeof...(Rest)> to(const First& first, const Rest&... rest) {
  return {first, rest...};
}
template <class First, class... Rest>
std::array<First, 1 + sizeof...(Rest)> from(const First& first, const Rest&... rest) {
  return {first, rest...};
}

// Arrays whose shapes are that of the first, or broadcast to it. Dimensions of size 1 are dropped, and neighbours that
// every array walks as one are merged: contiguous arrays are one line.
template <size_t kArrays>
class Walk {
public:
  explicit Walk(const std::array<Array, kArrays>& arrays) {
    for (size_t k = 0; k < kArrays; ++k) {
      lines_[k] = {arrays[k].data, arrays[k].dtype, 0, arrays[k].exceeds_caches};
    }
    const int ndim = arrays[0].ndim;
    for (int axis = 0; axis < ndim; ++axis) {
      const int64_t size = arrays[0].shape[axis];
      size_ *= size;
      if (size == 1) continue;
      std::array<int64_t, kArrays> strides;
      for (size_t k = 0; k < kArrays; ++k) strides[k] = stride_along(arrays[k], ndim, axis);
      if (ndim_ > 0 && goes_on(strides, size)) {
        shape_[ndim_ - 1] *= size;
      } else {
        shape_[ndim_++] = size;
      }
      strides_[ndim_ - 1] = strides;
    }
    if (ndim_ == 0) {
      shape_[0] = 1;
      strides_[0].fill(0);
      ndim_ = 1;
    }
  }

  int64_t size() const { return size_; }

  // Calls function(lines, count) on stretches that cover elements [begin, end), which are not empty, in their order.
  template <typename Function>
  void stretches(int64_t begin, int64_t end, Function&& function) const {
    const int inner = ndim_ - 1;
    while (begin < end) {
      int64_t rest = begin / shape_[inner];
      const int64_t first = begin % shape_[inner], count = std::min(shape_[inner] - first, end - begin);
      std::array<int64_t, kArrays> offsets;
      for (size_t k = 0; k < kArrays; ++k) offsets[k] = first * strides_[inner][k];
      for (int axis = inner - 1; axis >= 0; --axis) {
        for (size_t k = 0; k < kArrays; ++k) offsets[k] += rest % shape_[axis] * strides_[axis][k];
        rest /= shape_[axis];
      }
      std::array<Line, kArrays> lines = lines_;
      for (size_t k = 0; k < kArrays; ++k) {
        lines[k].data = element(lines[k].data, offsets[k], lines[k].dtype);
        lines[k].stride = strides_[inner][k];
      }
      function(lines, count);
      begin += count;
    }
  }

private:
  static int64_t stride_along(const Array& array, int ndim, int axis) {
    const int own = axis - (ndim - array.ndim);
    return own < 0 || array.shape[own] == 1 ? 0 : array.strides[own];
  }
  bool goes_on(const std::array<int64_t, kArrays>& strides, int64_t size) const {
    for (size_t k = 0; k < kArrays; ++k) {
      if (strides_[ndim_ - 1][k] != strides[k] * size) return false;
    }
    return true;
  }

  int ndim_ = 0;
  int64_t size_ = 1;
  int64_t shape_[RLK_MAX_NDIM] = {};
  std::array<int64_t, kArrays> strides_[RLK_MAX_NDIM] = {};
  std::array<Line, kArrays> lines_;
};

}  // namespace rlk::cpu
