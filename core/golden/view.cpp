// How an element of a tensor becomes a number, and back. Formats are decoded by their definition, not by bit tricks.
#include <rlk/sdk/immortal.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/golden/bulk.hpp"

namespace rlk::golden {
namespace {

// A float of 1 sign bit, exponent_bits and mantissa_bits. What the largest exponent means: infinities and NaN as in
// IEEE 754; or, where a format has no infinity (OCP's "fn"), numbers but for the mantissa of all ones, which is NaN;
// or, without NaN too, numbers alone.
struct Format {
  int exponent_bits;
  int mantissa_bits;
  bool has_infinity = true;
  bool has_nan = true;
  int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  int sign_bit() const { return exponent_bits + mantissa_bits; }
};
constexpr Format kBf16{8, 7};
constexpr Format kF16{5, 10};
constexpr Format kE4m3fn{4, 3, false};
constexpr Format kE5m2{5, 2};
constexpr Format kE2m1fn{2, 1, false, false};

double decode(uint16_t bits, Format format) {
  const int mantissa = bits & ((1 << format.mantissa_bits) - 1);
  const int exponent = (bits >> format.mantissa_bits) & ((1 << format.exponent_bits) - 1);
  const double sign = (bits >> format.sign_bit() & 1) != 0 ? -1.0 : 1.0;
  if (exponent == (1 << format.exponent_bits) - 1) {
    const bool is_nan = format.has_infinity ? mantissa != 0 : mantissa == (1 << format.mantissa_bits) - 1;
    if (is_nan && format.has_nan) return std::numeric_limits<double>::quiet_NaN();
    if (format.has_infinity) return sign * std::numeric_limits<double>::infinity();
  }
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - format.bias() - format.mantissa_bits);
  return sign * std::ldexp(mantissa + (1 << format.mantissa_bits), exponent - format.bias() - format.mantissa_bits);
}

// Every number of a 16-bit format: there are few, and they are read again and again.
class Decoded {
public:
  explicit Decoded(Format format) : numbers_(size_t{1} << 16) {
    for (size_t bits = 0; bits < numbers_.size(); ++bits) {
      numbers_[bits] = decode(static_cast<uint16_t>(bits), format);
    }
  }
  double operator[](uint16_t bits) const { return numbers_[bits]; }

private:
  std::vector<double> numbers_;
};

// 2^exponent, for exponents of normal numbers.
double power_of_two(int exponent) {
  return std::bit_cast<double>(static_cast<uint64_t>(exponent + 1023) << 52);
}

// |value| is in [2^exponent, 2 * 2^exponent); far too small for zero and for subnormal numbers.
int exponent_of(double value) {
  return static_cast<int>(std::bit_cast<uint64_t>(value) >> 52 & 0x7ff) - 1023;
}

template <Format format>
uint16_t encode(double value) {
  const int sign = std::signbit(value) ? 1 << format.sign_bit() : 0;
  const int max_exponent = (1 << format.exponent_bits) - 1;
  const int all_ones = (1 << format.mantissa_bits) - 1;
  // What is beyond the largest number is infinity, or NaN where there is none, or else the largest; so is NaN itself.
  const auto beyond =
      static_cast<uint16_t>(sign | (max_exponent << format.mantissa_bits) | (format.has_infinity ? 0 : all_ones));
  if (std::isnan(value)) {
    return static_cast<uint16_t>(beyond | (format.has_infinity ? 1 << (format.mantissa_bits - 1) : 0));
  }
  if (std::isinf(value)) return beyond;
  if (exponent_of(value) > format.bias() + 1) return beyond;
  const int quantum = std::max(exponent_of(value), 1 - format.bias()) - format.mantissa_bits;  // of the last bit
  // In units of the last bit the value is an integer after rounding. Beside 2^52 a sum has no digits behind the point:
  // it is rounded to nearest even.
  constexpr double kNoFraction = 0x1p52;
  auto units = static_cast<int64_t>((std::fabs(value) * power_of_two(-quantum) + kNoFraction) - kNoFraction);
  int stored_exponent = quantum + format.mantissa_bits + format.bias();
  if (units == (int64_t{2} << format.mantissa_bits)) {  // rounded up to the next power of two
    units /= 2;
    ++stored_exponent;
  }
  const int64_t hidden = int64_t{1} << format.mantissa_bits;
  const int largest_exponent = format.has_infinity ? max_exponent - 1 : max_exponent;
  if (stored_exponent > largest_exponent) return beyond;
  if (!format.has_infinity && stored_exponent == max_exponent && units - hidden == all_ones)
    return beyond;                                                 // or it is it
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

double View::converted_at(int64_t element_offset) const {
  static const sdk::Immortal<Decoded> kBf16Numbers(kBf16), kF16Numbers(kF16);
  switch (dtype) {
    case Dtype::f32:
      return static_cast<double>(read<float>(data, element_offset));
    case Dtype::bf16:
      return (*kBf16Numbers)[read<uint16_t>(data, element_offset)];
    case Dtype::f16:
      return (*kF16Numbers)[read<uint16_t>(data, element_offset)];
    case Dtype::f64:
      return read<double>(data, element_offset);
    case Dtype::u64:
      return static_cast<double>(read<uint64_t>(data, element_offset));
    case Dtype::f8_e4m3fn:
      return decode(read<uint8_t>(data, element_offset), kE4m3fn);
    case Dtype::f8_e5m2:
      return decode(read<uint8_t>(data, element_offset), kE5m2);
    case Dtype::f4_e2m1fn:
      return decode(read<uint8_t>(data, element_offset), kE2m1fn);
    default:
      return static_cast<double>(load_int_at(element_offset));
  }
}

void load_all(const void* data, Dtype dtype, std::span<double> values) {
  const auto convert = [&](auto number_at) {
    for (size_t i = 0; i < values.size(); ++i) values[i] = number_at(static_cast<int64_t>(i));
  };
  switch (dtype) {
    case Dtype::f32:
      return convert([=](int64_t i) { return static_cast<double>(read<float>(data, i)); });
    case Dtype::f64:
      return convert([=](int64_t i) { return read<double>(data, i); });
    default: {
      View view;
      view.data = data;
      view.dtype = dtype;
      return convert([&](int64_t i) { return view.load_at(i); });
    }
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
    case Dtype::i8:
      return read<int8_t>(data, element_offset);
    case Dtype::i16:
      return read<int16_t>(data, element_offset);
    case Dtype::u16:
      return read<uint16_t>(data, element_offset);
    case Dtype::u32:
      return read<uint32_t>(data, element_offset);
    case Dtype::u64:
      return static_cast<int64_t>(read<uint64_t>(data, element_offset));
    case Dtype::boolean:
      return read<uint8_t>(data, element_offset);
    default:
      return static_cast<int64_t>(load_at(element_offset));
  }
}

int64_t to_integer(Dtype dtype, double value) {
  if (dtype == Dtype::boolean) return value != 0 ? 1 : 0;
  if (std::isnan(value)) return 0;
  const bool is_signed = dtype == Dtype::i8 || dtype == Dtype::i16 || dtype == Dtype::i32 || dtype == Dtype::i64;
  const int bits = sdk::bits_of(dtype) - (is_signed ? 1 : 0);
  const uint64_t largest = ~uint64_t{0} >> (64 - bits);
  if (value >= std::ldexp(1.0, bits)) return static_cast<int64_t>(largest);
  if (!is_signed) return value <= 0 ? 0 : static_cast<int64_t>(static_cast<uint64_t>(value));
  return value <= -std::ldexp(1.0, bits) ? -static_cast<int64_t>(largest) - 1 : static_cast<int64_t>(value);
}

void store(void* element, Dtype dtype, double value) {
  const auto write = [element](auto number) { std::memcpy(element, &number, sizeof(number)); };
  switch (dtype) {
    case Dtype::f32:
      return write(static_cast<float>(value));
    case Dtype::bf16:
      return write(encode<kBf16>(value));
    case Dtype::f16:
      return write(encode<kF16>(value));
    case Dtype::f64:
      return write(value);
    case Dtype::i32:
      return write(static_cast<int32_t>(to_integer(dtype, value)));
    case Dtype::i64:
      return write(static_cast<int64_t>(to_integer(dtype, value)));
    case Dtype::u8:
      return write(static_cast<uint8_t>(to_integer(dtype, value)));
    case Dtype::i8:
      return write(static_cast<int8_t>(to_integer(dtype, value)));
    case Dtype::i16:
      return write(static_cast<int16_t>(to_integer(dtype, value)));
    case Dtype::u16:
      return write(static_cast<uint16_t>(to_integer(dtype, value)));
    case Dtype::u32:
      return write(static_cast<uint32_t>(to_integer(dtype, value)));
    case Dtype::u64:
      return write(static_cast<uint64_t>(to_integer(dtype, value)));
    case Dtype::boolean:
      return write(static_cast<uint8_t>(to_integer(dtype, value)));
    case Dtype::f8_e4m3fn:
      return write(static_cast<uint8_t>(encode<kE4m3fn>(value)));
    case Dtype::f8_e5m2:
      return write(static_cast<uint8_t>(encode<kE5m2>(value)));
    case Dtype::f4_e2m1fn:
      return write(static_cast<uint8_t>(encode<kE2m1fn>(value)));
    case Dtype::other:  // no declaration has it
      return;
  }
}

}  // namespace rlk::golden
