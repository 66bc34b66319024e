// One element of any dtype, to fp64 and back, floating ones rounded to nearest even. For numbers that come one at a
// time (a row's log-probability, its gradient); vectors of them use convert-inl.hpp.
#pragma once

#include <bit>
#include <cmath>

#include "core/cpu/simd/kernel.hpp"

namespace rlk::cpu {

// base advanced by `index` elements; nullptr stays nullptr.
inline const void* element(const void* base, int64_t index, Dtype dtype) {
  return base == nullptr ? nullptr : static_cast<const char*>(base) + index * size_of(dtype);
}
inline void* element(void* base, int64_t index, Dtype dtype) {
  return base == nullptr ? nullptr : static_cast<char*>(base) + index * size_of(dtype);
}

// Whether fp32 holds a factor, and products with it, as well as other numbers. Where not, kernels compute in fp64.
inline bool fits_f32(double factor) {
  const double magnitude = std::fabs(factor);
  return magnitude == 0 || (magnitude > 0x1p-100 && magnitude < 0x1p100);
}

// Rounds to fp32 so that a second rounding to a 16-bit format gives what one rounding would have: to odd, which keeps
// the information on which side of every midpoint the value lies.
inline uint32_t to_f32_odd(double value) {
  const auto nearest = static_cast<float>(value);
  auto bits = std::bit_cast<uint32_t>(nearest);
  if (static_cast<double>(nearest) == value || !std::isfinite(nearest)) return bits;
  if (std::fabs(static_cast<double>(nearest)) > std::fabs(value)) --bits;  // truncated towards zero, then made odd
  return bits | 1u;
}

inline uint16_t to_bf16(double value) {
  const uint32_t bits = to_f32_odd(value);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}

inline uint16_t to_f16(double value) {
  const uint32_t bits = to_f32_odd(value);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) return static_cast<uint16_t>(sign | 0x7E00u);
  if (magnitude >= 0x47800000u) return static_cast<uint16_t>(sign | 0x7C00u);  // 65536 and more
  if (magnitude < 0x38800000u) {                                               // below 2^-14: units of 2^-24
    return static_cast<uint16_t>(sign | static_cast<uint32_t>(std::nearbyint(std::fabs(value) * 0x1p24)));
  }
  return static_cast<uint16_t>(sign | ((magnitude - ((127u - 15u) << 23) + 0xFFFu + ((magnitude >> 13) & 1u)) >> 13));
}

inline double from_f16(uint16_t bits) {
  const uint32_t sign = (bits & 0x8000u) << 16;
  const uint32_t magnitude = bits & 0x7FFFu;
  if (magnitude < 0x0400u) return std::copysign(magnitude * 0x1p-24, sign != 0 ? -1.0 : 1.0);
  const uint32_t exponent = magnitude > 0x7BFFu ? 0x7F800000u : 0u;  // infinities and NaN
  const uint32_t rebias = magnitude > 0x7BFFu ? 0u : (127u - 15u) << 23;
  return static_cast<double>(std::bit_cast<float>(sign | exponent | ((magnitude << 13) + rebias)));
}

// An element of an integer dtype.
inline int64_t load_integer(const void* base, Dtype dtype, int64_t index) {
  switch (dtype) {
    case Dtype::i32:
      return static_cast<const int32_t*>(base)[index];
    case Dtype::i64:
    case Dtype::u64:
      return static_cast<const int64_t*>(base)[index];
    case Dtype::i16:
      return static_cast<const int16_t*>(base)[index];
    case Dtype::u16:
      return static_cast<const uint16_t*>(base)[index];
    case Dtype::u32:
      return static_cast<const uint32_t*>(base)[index];
    case Dtype::i8:
      return static_cast<const int8_t*>(base)[index];
    default:
      return static_cast<const uint8_t*>(base)[index];
  }
}

inline double load_element(const void* base, Dtype dtype, int64_t index) {
  switch (dtype) {
    case Dtype::f32:
      return static_cast<double>(static_cast<const float*>(base)[index]);
    case Dtype::bf16: {
      const uint32_t bits = static_cast<const uint16_t*>(base)[index];
      return static_cast<double>(std::bit_cast<float>(bits << 16));
    }
    case Dtype::f16:
      return from_f16(static_cast<const uint16_t*>(base)[index]);
    case Dtype::f64:
      return static_cast<const double*>(base)[index];
    default:
      return static_cast<double>(load_integer(base, dtype, index));
  }
}

inline void store_element(void* base, Dtype dtype, int64_t index, double value) {
  switch (dtype) {
    case Dtype::f32:
      static_cast<float*>(base)[index] = static_cast<float>(value);
      return;
    case Dtype::bf16:
      static_cast<uint16_t*>(base)[index] = to_bf16(value);
      return;
    case Dtype::f16:
      static_cast<uint16_t*>(base)[index] = to_f16(value);
      return;
    case Dtype::f64:
      static_cast<double*>(base)[index] = value;
      return;
    case Dtype::i64:
      static_cast<int64_t*>(base)[index] = static_cast<int64_t>(value);
      return;
    case Dtype::i32:
      static_cast<int32_t*>(base)[index] = static_cast<int32_t>(value);
      return;
    default:  // no operator writes other dtypes through here
      static_cast<uint8_t*>(base)[index] = static_cast<uint8_t>(value);
      return;
  }
}

}  // namespace rlk::cpu
