// Do 16-bit conversions round to nearest even, keep NaN, infinities and subnormals, on every instruction set? The judge
// is golden::View and golden::store, which decode by definition.
#include <bit>
#include <cmath>
#include <cstring>

#include "core/cpu/simd/element.hpp"
#include "unit/cpu/support.hpp"
#include "unit/cpu/vector_functions.hpp"

namespace rlk::test {
namespace {

constexpr Dtype kDtypes16[] = {Dtype::bf16, Dtype::f16};

double decode(Dtype dtype, uint16_t bits) {
  const uint64_t element = bits;  // as wide as any dtype: compilers do not know which one is read
  golden::View view;
  view.data = &element;
  view.dtype = dtype;
  return view.load_at(0);
}

uint16_t encode(Dtype dtype, double value) {
  uint16_t bits = 0;
  golden::store(&bits, dtype, value);
  return bits;
}

bool same_number(double a, double b) {
  return std::isnan(a) ? std::isnan(b) : a == b && std::signbit(a) == std::signbit(b);
}

// Every 16-bit number, the midpoints between neighbours, numbers just beside those, and specials, as fp32.
std::vector<float> numbers_around(Dtype dtype) {
  std::vector<float> numbers;
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto number = static_cast<float>(decode(dtype, static_cast<uint16_t>(bits)));
    const auto next = static_cast<float>(decode(dtype, static_cast<uint16_t>(bits + 1)));
    const float middle = number + (next - number) / 2;
    for (float value : {number, middle, std::nextafter(middle, number), std::nextafter(middle, next)}) {
      numbers.push_back(value);
    }
  }
  for (float value : {65519.9f, 65520.0f, 65536.0f, 3.4e38f, -3.4e38f, 1e-45f, -1e-45f, 2.9e-8f, 2.98e-8f, 3.0e-8f}) {
    numbers.push_back(value);
  }
  numbers.push_back(std::bit_cast<float>(0x7FFFFFFFu));  // a NaN whose rounding would carry into the sign
  numbers.push_back(std::bit_cast<float>(0x7F800001u));  // a NaN whose payload would be cut off
  while (numbers.size() % 64 != 0) numbers.push_back(0.0f);
  return numbers;
}

TEST(CpuConvert, LoadsEverySixteenBitNumberExactly) {
  std::vector<uint16_t> all(0x10000);
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint16_t>(i);
  std::vector<float> loaded(all.size());
  for_each_target([&] {
    for (Dtype dtype : kDtypes16) {
      load_16bit(dtype, all.data(), loaded.data(), static_cast<int64_t>(all.size()));
      for (size_t i = 0; i < all.size(); ++i) {
        const double want = decode(dtype, all[i]);
        ASSERT_TRUE(same_number(want, static_cast<double>(loaded[i]))) << name(dtype) << " bits " << i;
        ASSERT_TRUE(same_number(want, cpu::load_element(all.data(), dtype, static_cast<int64_t>(i))));
      }
    }
  });
}

TEST(CpuConvert, StoresRoundToNearestEven) {
  for (Dtype dtype : kDtypes16) {
    const std::vector<float> numbers = numbers_around(dtype);
    std::vector<uint16_t> want(numbers.size()), stored(numbers.size());
    for (size_t i = 0; i < numbers.size(); ++i) want[i] = encode(dtype, static_cast<double>(numbers[i]));
    for_each_target([&] {
      store_16bit(dtype, numbers.data(), stored.data(), static_cast<int64_t>(numbers.size()));
      for (size_t i = 0; i < numbers.size(); ++i) {
        ASSERT_TRUE(same_number(decode(dtype, want[i]), decode(dtype, stored[i])))
            << name(dtype) << " of " << numbers[i] << ": stored " << stored[i] << ", nearest even " << want[i];
      }
    });
  }
}

TEST(CpuConvert, OneElementFromFp64IsRoundedOnce) {
  for (Dtype dtype : kDtypes16) {
    for (uint32_t bits = 0; bits < 0x7F00; ++bits) {
      const double number = decode(dtype, static_cast<uint16_t>(bits));
      const double middle = number + (decode(dtype, static_cast<uint16_t>(bits + 1)) - number) / 2;
      // Just above the midpoint by less than fp32 can tell: rounding twice would give the even neighbour.
      for (double value : {middle, middle * (1 + 1e-13), middle * (1 - 1e-13), -middle * (1 + 1e-13)}) {
        uint16_t stored[4] = {};
        cpu::store_element(stored, dtype, 0, value);
        ASSERT_TRUE(same_number(decode(dtype, encode(dtype, value)), decode(dtype, stored[0])))
            << name(dtype) << " of " << value;
      }
    }
  }
}

TEST(CpuConvert, OneElementFromFp64MayBeNanInfiniteOrTooLarge) {
  const auto full_nan = std::bit_cast<double>(0x7FFFFFFFFFFFFFFFu);  // its rounding would carry into the sign
  for (Dtype dtype : kDtypes16) {
    for (double value :
         {full_nan, std::nan(""), kInfinity, 1e300, 3.39e38, 3.4e38, 65504.0, 65519.9, 65520.0, 65536.0}) {
      for (double number : {value, -value}) {
        uint16_t stored = 0;
        cpu::store_element(&stored, dtype, 0, number);
        EXPECT_TRUE(same_number(decode(dtype, encode(dtype, number)), decode(dtype, stored)))
            << name(dtype) << " of " << number << ": stored " << stored;
      }
    }
  }
}

}  // namespace
}  // namespace rlk::test
