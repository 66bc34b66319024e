// Elements of tensors as the simple plugin reads and writes them.
#pragma once

#include <rlk/sdk.hpp>

#include <cmath>
#include <cstdint>
#include <cstring>

#include "conformance/simple/mutant.hpp"

namespace rlk::simple {

using sdk::Dtype;

inline float float_from_bits(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}
inline uint32_t bits_of(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

inline float widen_bf16(uint16_t bits) {
  return float_from_bits(uint32_t{bits} << 16);
}
inline uint16_t narrow_bf16(float value) {
  if (std::isnan(value)) return 0x7fc0;
  const uint32_t bits = bits_of(value);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// A half's exponent and mantissa, shifted into place, are the number scaled by 2^-112.
inline float widen_f16(uint16_t half) {
  const uint32_t sign = uint32_t{half & 0x8000u} << 16;
  if ((half & 0x7c00) == 0x7c00) return float_from_bits(sign | 0x7f800000 | (uint32_t{half & 0x3ffu} << 13));
  const float scaled = float_from_bits(sign | (uint32_t{half & 0x7fffu} << 13));
  return scaled * 0x1p112f;
}
inline uint16_t narrow_f16(float value) {
  const uint32_t sign = bits_of(value) >> 16 & 0x8000;
  if (std::isnan(value)) return 0x7e00;
  const float magnitude = std::fabs(value);
  if (magnitude >= 65520.0f) return static_cast<uint16_t>(sign | 0x7c00);
  if (magnitude < 0x1p-14f) {  // subnormal: an integer number of 2^-24
    return static_cast<uint16_t>(sign | static_cast<uint32_t>(std::nearbyint(magnitude * 0x1p24f)));
  }
  const uint32_t bits = bits_of(magnitude) - (uint32_t{112} << 23);
  return static_cast<uint16_t>(sign | ((bits + 0xfff + (bits >> 13 & 1)) >> 13));
}

// The bits of the next number of 16 bits towards zero, and that number.
inline uint16_t cut(double x, Dtype dtype) {
  const auto number = static_cast<float>(x);
  if (dtype == Dtype::bf16) return static_cast<uint16_t>(bits_of(number) >> 16);
  if (std::fabs(number) < 0x1p-14f) return narrow_f16(std::trunc(number * 0x1p24f) * 0x1p-24f);
  return narrow_f16(float_from_bits(bits_of(number) & 0xffffe000u));
}
inline float truncated(double x, Dtype dtype) {
  return dtype == Dtype::bf16 ? widen_bf16(cut(x, dtype)) : widen_f16(cut(x, dtype));
}

// A strided tensor with the memory of one run. Absent when data is NULL.
class Tensor {
public:
  explicit Tensor(const rlk_tensor* tensor) : tensor_(tensor) {
    if (tensor == nullptr || tensor->data == nullptr) return;
    data_ = static_cast<char*>(tensor->data) + (mutant("offset_ignored") ? 0 : tensor->byte_offset);
    dtype_ = sdk::dtype_of(*tensor);
  }
  bool given() const { return tensor_ != nullptr; }
  Dtype dtype() const { return dtype_; }
  int64_t size(int axis) const { return tensor_->shape[axis]; }
  int64_t stride(int axis) const { return tensor_->strides[axis]; }
  template <class... Index>
  int64_t at(Index... index) const {
    int64_t offset = 0;
    int axis = 0;
    ((offset += static_cast<int64_t>(index) * tensor_->strides[axis++]), ...);
    return offset;
  }

  template <class A>
  A load(int64_t offset) const {
    switch (dtype_) {
      case Dtype::f32:
        return static_cast<A>(read<float>(offset));
      case Dtype::f64:
        return static_cast<A>(read<double>(offset));
      case Dtype::bf16:
        return static_cast<A>(widen_bf16(read<uint16_t>(offset)));
      case Dtype::f16:
        return static_cast<A>(widen_f16(read<uint16_t>(offset)));
      default:
        return static_cast<A>(load_int(offset));
    }
  }
  int64_t load_int(int64_t offset) const {
    if (dtype_ == Dtype::i64) return read<int64_t>(offset);
    if (dtype_ == Dtype::i32) return read<int32_t>(offset);
    return read<uint8_t>(offset);
  }
  template <class A>
  void store(int64_t offset, A value) const {
    if (dtype_ == Dtype::f32) return write(offset, static_cast<float>(value));
    if (dtype_ == Dtype::f64) return write(offset, static_cast<double>(value));
    if (mutant("outputs_truncated") && std::isfinite(value)) return write(offset, cut(value, dtype_));
    if (dtype_ == Dtype::bf16) return write(offset, narrow_bf16(static_cast<float>(value)));
    write(offset, narrow_f16(static_cast<float>(value)));
  }

private:
  template <class T>
  T read(int64_t offset) const {
    T value;
    std::memcpy(&value, data_ + offset * static_cast<int64_t>(sizeof(T)), sizeof(T));
    return value;
  }
  template <class T>
  void write(int64_t offset, T value) const {
    std::memcpy(data_ + offset * static_cast<int64_t>(sizeof(T)), &value, sizeof(T));
  }
  const rlk_tensor* tensor_;
  char* data_ = nullptr;
  Dtype dtype_ = Dtype::other;
};

// A sum in blocks: the rounding errors of equal terms point the same way, and one long chain of them adds up.
template <class A>
class BlockSum {
public:
  void add(A term) {
    block_ += term;
    if (++terms_ % 16 != 0) return;
    total_ += block_;
    block_ = 0;
  }
  A value() const { return total_ + block_; }

private:
  A total_ = 0, block_ = 0;
  int terms_ = 0;
};

constexpr uint32_t kAllClasses =
    RLK_NUMERICS_TOLERANCE | RLK_NUMERICS_ACCURATE | RLK_NUMERICS_DETERMINISTIC | RLK_NUMERICS_BATCH_INVARIANT;

}  // namespace rlk::simple
