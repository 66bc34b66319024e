// Conversions written from the formats' definitions: obvious, and shared with no other code.
#include "elements.hpp"

#include <limits>

namespace golden_plugin {
namespace {

using rlk::sdk::Dtype;

template <class T>
T get(const char* data, int64_t offset) {
  T value;
  std::memcpy(&value, data + offset * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return value;
}

template <class T>
void put(char* data, int64_t offset, T value) {
  std::memcpy(data + offset * static_cast<int64_t>(sizeof(T)), &value, sizeof(T));
}

// bf16 is the upper half of an fp32.
double from_bf16(uint16_t bits) {
  const uint32_t word = static_cast<uint32_t>(bits) << 16;
  float value;
  std::memcpy(&value, &word, sizeof(value));
  return static_cast<double>(value);
}

// The exponent of f16 has 5 bits and a bias of 15, its fraction 10 bits.
double from_f16(uint16_t bits) {
  const int exponent = (bits >> 10) & 31;
  const int fraction = bits & 1023;
  double magnitude;
  if (exponent == 31) {
    magnitude = fraction == 0 ? std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
  } else if (exponent == 0) {
    magnitude = std::ldexp(fraction, -24);
  } else {
    magnitude = std::ldexp(1024 + fraction, exponent - 25);
  }
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

// value rounded once, to nearest even, to a float with `precision` significant bits whose smallest subnormal is
// 2^lowest.
double rounded(double value, int precision, int lowest) {
  if (value == 0 || !std::isfinite(value)) return value;
  int exponent;
  std::frexp(value, &exponent);  // value = [0.5, 1) * 2^exponent
  const int last_bit = exponent - precision > lowest ? exponent - precision : lowest;
  return std::ldexp(std::nearbyint(std::ldexp(value, -last_bit)), last_bit);
}

uint16_t to_bf16(double value) {
  if (std::isnan(value)) return 0x7fc0;
  const float exact = static_cast<float>(rounded(value, 8, -133));  // beyond the largest: infinity
  uint32_t word;
  std::memcpy(&word, &exact, sizeof(word));
  return static_cast<uint16_t>(word >> 16);
}

uint16_t to_f16(double value) {
  const int sign = std::signbit(value) ? 0x8000 : 0;
  if (std::isnan(value)) return 0x7e00;
  const double magnitude = std::fabs(rounded(value, 11, -24));
  if (magnitude >= 65536) return static_cast<uint16_t>(sign | 0x7c00);
  if (magnitude < std::ldexp(1.0, -14))
    return static_cast<uint16_t>(sign | static_cast<int>(std::ldexp(magnitude, 24)));
  int exponent;
  const double half_to_one = std::frexp(magnitude, &exponent);
  const int fraction = static_cast<int>(std::ldexp(half_to_one, 11)) - 1024;
  return static_cast<uint16_t>(sign | ((exponent + 14) << 10) | fraction);
}

}  // namespace

double Elements::real_at(int64_t offset) const {
  switch (dtype_) {
    case Dtype::f32:
      return static_cast<double>(get<float>(data_, offset));
    case Dtype::f64:
      return get<double>(data_, offset);
    case Dtype::bf16:
      return from_bf16(get<uint16_t>(data_, offset));
    case Dtype::f16:
      return from_f16(get<uint16_t>(data_, offset));
    default:
      return static_cast<double>(integer_at(offset));
  }
}

int64_t Elements::integer_at(int64_t offset) const {
  switch (dtype_) {
    case Dtype::i32:
      return get<int32_t>(data_, offset);
    case Dtype::i64:
      return get<int64_t>(data_, offset);
    case Dtype::u8:
      return get<uint8_t>(data_, offset);
    default:
      throw rlk::sdk::Error(RLK_INTERNAL, std::string(name_of(dtype_)) + " is read as an integer");
  }
}

void Elements::set_at(double value, int64_t offset) const {
  switch (dtype_) {
    case Dtype::f32:
      return put(data_, offset, static_cast<float>(value));
    case Dtype::f64:
      return put(data_, offset, value);
    case Dtype::bf16:
      return put(data_, offset, to_bf16(value));
    case Dtype::f16:
      return put(data_, offset, to_f16(value));
    default:
      throw rlk::sdk::Error(RLK_INTERNAL, std::string(name_of(dtype_)) + " is written as a real number");
  }
}

}  // namespace golden_plugin
