// Numbers of fp16 in the simulated CNNL.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

namespace fake_cnnl {

inline float from_half(uint16_t bits) {
  const int exponent = bits >> 10 & 31, digits = bits & 1023;
  float size = exponent == 0 ? std::ldexp(static_cast<float>(digits), -24)
                             : std::ldexp(static_cast<float>(digits + 1024), exponent - 25);
  if (exponent == 31)
    size = digits != 0 ? std::numeric_limits<float>::quiet_NaN() : std::numeric_limits<float>::infinity();
  return (bits & 0x8000) != 0 ? -size : size;
}
// To the nearest, ties to even; beyond the largest number infinity, as IEEE 754 has it.
inline uint16_t to_half(float x) {
  const uint16_t sign = std::signbit(x) ? 0x8000 : 0;
  if (std::isnan(x)) return sign | 0x7e00;
  const float size = std::fabs(x);
  if (size >= 65520.0F) return sign | 0x7c00;
  if (size < 0x1p-14F) return sign | static_cast<uint16_t>(std::nearbyint(std::ldexp(size, 24)));
  const int exponent = std::ilogb(size);
  // Rounded up to the next power of two, the digits carry into the exponent.
  const int digits = static_cast<int>(std::nearbyint(std::ldexp(size, 10 - exponent))) - 1024;
  return static_cast<uint16_t>(sign | (((exponent + 15) << 10) + digits));
}

}  // namespace fake_cnnl
