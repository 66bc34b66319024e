// Do 16-bit conversions round to nearest even, keep NaN, infinities and subnormals, on every instruction set? The judge
// is golden::View and golden::store, which decode by definition.
#include <algorithm>
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

// Ways with vectors, without, and for what is left over, of every dtype that kernels read and write.
template <typename TC>
void expect_elements_at_strides(Dtype dtype, int64_t stride, int64_t count) {
  SCOPED_TRACE(name(dtype) + " " + std::to_string(stride) + " " + std::to_string(count));
  const auto size = static_cast<size_t>(count);
  std::vector<TC> given(size), read(size + 1, TC{-7});
  for (size_t i = 0; i < size; ++i) given[i] = static_cast<TC>(100 * std::sin(1.0 + static_cast<double>(i)));
  if (dtype == Dtype::u8) std::transform(given.begin(), given.end(), given.begin(), [](TC x) { return std::abs(x); });
  std::vector<int64_t> memory(size * 10 + 10, 0x7A7A7A7A7A7A7A7A), right = memory;
  const int64_t first = stride < 0 ? -stride * count : 0;
  for (int64_t i = 0; i < count; ++i) {
    cpu::store_element(right.data(), dtype, first + i * stride, static_cast<double>(given[static_cast<size_t>(i)]));
  }
  store_elements(dtype, given.data(), cpu::element(memory.data(), first, dtype), stride, count);
  EXPECT_EQ(memory, right);
  load_elements(dtype, cpu::element(memory.data(), first, dtype), stride, read.data(), count);
  for (int64_t i = 0; i < count; ++i) {
    const auto number = static_cast<TC>(cpu::load_element(memory.data(), dtype, first + i * stride));
    EXPECT_EQ(read[static_cast<size_t>(i)], number) << i;
  }
  EXPECT_EQ(read[size], TC{-7}) << "written behind the end";
}

TEST(CpuConvert, ElementsAtAStrideAreWhatEachIsAlone) {
  for_each_target([] {
    for (const Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::f16, Dtype::f64, Dtype::i32, Dtype::i64, Dtype::u8}) {
      for (const int64_t stride : {1, 2, 3, 9, -1, -4}) {
        for (const int64_t count : {0, 1, 7, 16, 64, 65, 100, 203}) {
          expect_elements_at_strides<float>(dtype, stride, count);
          expect_elements_at_strides<double>(dtype, stride, count);
        }
      }
    }
  });
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
