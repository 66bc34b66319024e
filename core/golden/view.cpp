// How an element of a tensor becomes a number, and back. Formats are decoded by their definition, not by bit tricks.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/golden/golden.hpp"

namespace rlk::golden {
namespace {

// An IEEE-style 16-bit float: 1 sign bit, exponent_bits, the rest mantissa.
struct Format {
  int exponent_bits;
  int mantissa_bits;
  int bias() const { return (1 << (exponent_bits - 1)) - 1; }
};
constexpr Format kBf16{8, 7};
constexpr Format kF16{5, 10};

double decode(uint16_t bits, Format format) {
  const int mantissa = bits & ((1 << format.mantissa_bits) - 1);
  const int exponent = (bits >> format.mantissa_bits) & ((1 << format.exponent_bits) - 1);
  const double sign = (bits & 0x8000) != 0 ? -1.0 : 1.0;
  if (exponent == (1 << format.exponent_bits) - 1) {
    return mantissa != 0 ? std::numeric_limits<double>::quiet_NaN() : sign * std::numeric_limits<double>::infinity();
  }
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - format.bias() - format.mantissa_bits);
  return sign * std::ldexp(mantissa + (1 << format.mantissa_bits), exponent - format.bias() - format.mantissa_bits);
}

uint16_t encode(double value, Format format) {
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const int max_exponent = (1 << format.exponent_bits) - 1;
  const auto infinity = static_cast<uint16_t>(sign | (max_exponent << format.mantissa_bits));
  if (std::isnan(value)) return static_cast<uint16_t>(infinity | (1 << (format.mantissa_bits - 1)));
  if (std::isinf(value)) return infinity;
  int exponent = 0;
  std::frexp(value, &exponent);  // |value| = [0.5, 1) * 2^exponent
  const int quantum = std::max(exponent - 1, 1 - format.bias()) - format.mantissa_bits;  // exponent of the last bit
  // In units of the last bit the value is an integer after rounding; nearbyint rounds to nearest even.
  auto units = static_cast<int64_t>(std::nearbyint(std::ldexp(std::fabs(value), -quantum)));
  int stored_exponent = quantum + format.mantissa_bits + format.bias();
  if (units == (int64_t{2} << format.mantissa_bits)) {  // rounded up to the next power of two
    units /= 2;
    ++stored_exponent;
  }
  if (stored_exponent >= max_exponent) return infinity;
  const int64_t hidden = int64_t{1} << format.mantissa_bits;
  if (units < hidden) return static_cast<uint16_t>(sign | units);  // subnormal or zero
  return static_cast<uint16_t>(sign | (stored_exponent << format.mantissa_bits) | (units - hidden));
}

template <typename T>
T read(const void* data, int64_t index) {
  T element;
  std::memcpy(&element, static_cast<const T*>(data) + index, sizeof(T));
  return element;
}

}  // namespace

double View::load_at(int64_t element_offset) const {
  switch (dtype) {
    case Dtype::f32:
      return static_cast<double>(read<float>(data, element_offset));
    case Dtype::bf16:
      return decode(read<uint16_t>(data, element_offset), kBf16);
    case Dtype::f16:
      return decode(read<uint16_t>(data, element_offset), kF16);
    case Dtype::f64:
      return read<double>(data, element_offset);
    default:
      return static_cast<double>(load_int_at(element_offset));
  }
}

int64_t View::load_int_at(int64_t element_offset) const {
  switch (dtype) {
    case Dtype::i32:
      return read<int32_t>(data, element_offset);
    case Dtype::i64:
      return read<int64_t>(data, element_offset);
    case Dtype::u8:
      return read<uint8_t>(data, element_offset);
    default:
      return static_cast<int64_t>(load_at(element_offset));
  }
}

void store(void* element, Dtype dtype, double value) {
  const auto write = [element](auto number) { std::memcpy(element, &number, sizeof(number)); };
  switch (dtype) {
    case Dtype::f32:
      return write(static_cast<float>(value));
    case Dtype::bf16:
      return write(encode(value, kBf16));
    case Dtype::f16:
      return write(encode(value, kF16));
    case Dtype::f64:
      return write(value);
    case Dtype::i32:
      return write(static_cast<int32_t>(value));
    case Dtype::i64:
      return write(static_cast<int64_t>(value));
    case Dtype::u8:
      return write(static_cast<uint8_t>(value));
  }
}

}  // namespace rlk::golden
