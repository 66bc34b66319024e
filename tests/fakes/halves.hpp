// Numbers of 16 bits in the simulated runtimes: fp16 and bf16, rounded to the nearest, of two the even one; beyond the
// largest number they are infinite, as IEEE 754 has it.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace fake {

inline float float_of_bf16(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}
inline uint16_t bf16_of_float(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if (std::isnan(value)) return static_cast<uint16_t>(bits >> 16 | 0x40);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

inline float float_of_f16(uint16_t bits) {
  const int exponent = bits >> 10 & 31, digits = bits & 1023;
  float size = exponent == 0 ? std::ldexp(static_cast<float>(digits), -24)
                             : std::ldexp(static_cast<float>(digits + 1024), exponent - 25);
  if (exponent == 31)
    size = digits != 0 ? std::numeric_limits<float>::quiet_NaN() : std::numeric_limits<float>::infinity();
  return (bits & 0x8000) != 0 ? -size : size;
}
inline uint16_t f16_of_float(float value) {
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  if (std::isnan(value)) return sign | 0x7e00;
  const float size = std::fabs(value);
  if (size >= 65520.0F) return sign | 0x7c00;
  if (size < 0x1p-14F) return sign | static_cast<uint16_t>(std::nearbyint(std::ldexp(size, 24)));
  const int exponent = std::ilogb(size);
  // Rounded up to the next power of two, the digits carry into the exponent.
  const int digits = static_cast<int>(std::nearbyint(std::ldexp(size, 10 - exponent))) - 1024;
  return static_cast<uint16_t>(sign | (((exponent + 15) << 10) + digits));
}

}  // namespace fake
