// What is the right answer? Every operator in fp64, written for obviousness: serial, no SIMD, no shared mathematics
// with any kernel. Every other implementation is measured against these functions, fed the same (rounded) inputs.
//
// Calling rules: shapes, dtypes and parameters have been validated against the operator's declaration; only the values
// in tensors may be wrong, and those are reported as a DataError. Functions are pure and thread-safe; they throw
// nothing but std::bad_alloc.
//
// How an implementation is judged. Each output element comes with a condition `cond`, and
//     |got - value| <= 1 ulp of the output dtype at value + kConditionFactor * eps * cond
// with eps = 2^-23 for implementations that accumulate in fp32 and 2^-52 for those that accumulate in fp64. NaN asks
// for NaN and an infinity for the same infinity; cond is 0 there. An infinite cond asks for nothing: what the element
// is depends on what an implementation flushes to zero. Each cond is the first-order effect on the element of one-eps
// relative errors in every intermediate that a sensible fp32 implementation rounds: the formula stands where it is
// computed. kTiny inside a cond lets an implementation flush subnormal intermediates to zero; what is only added has
// none, and keeps results that are subnormal.
//
// That is class `accurate`. Class `tolerance` allows `rounded` besides: for the intermediates that the declaration
// permits to be rounded to the tensors' dtype, how far the element moves when each of them is off by half an ulp, all
// in the worst direction. An implementation rounds an intermediate as it has it, which may be a multiple of the
// formula's (softmax weights before they are divided by their sum), so half an ulp is taken at its largest:
// Rounding::of.
#pragma once

#include <rlk/sdk/data_error.hpp>
#include <rlk/sdk/dtype.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

namespace rlk::golden {

constexpr double kConditionFactor = 8.0;
constexpr double kTiny = 0x1p-103;  // kTiny * eps(fp32) = 2^-126, the smallest normal fp32

// Elements of less than a byte have one each here, in its low bits.
using Dtype = sdk::Dtype;

// A borrowed strided tensor. An absent optional argument has ndim -1; an empty tensor has ndim >= 0 and may have null
// data.
struct View {
  const void* data = nullptr;
  Dtype dtype = Dtype::f32;
  int ndim = -1;
  const int64_t* shape = nullptr;
  const int64_t* strides = nullptr;  // in elements; may be 0 or negative

  bool present() const { return ndim >= 0; }

  // The element at an index of ndim numbers, exactly.
  template <typename... Index>
  double load(Index... index) const {
    return load_at(offset(index...));
  }
  // The same for integer tensors, where a double would lose bits.
  template <typename... Index>
  int64_t load_int(Index... index) const {
    return load_int_at(offset(index...));
  }

  double load_at(int64_t element_offset) const {
    if (dtype != Dtype::f64) return converted_at(element_offset);
    double number = 0;
    std::memcpy(&number, static_cast<const double*>(data) + element_offset, sizeof(number));
    return number;
  }
  int64_t load_int_at(int64_t element_offset) const;

private:
  double converted_at(int64_t element_offset) const;
  template <typename... Index>
  int64_t offset(Index... index) const {
    int64_t sum = 0;
    int axis = 0;
    ((sum += static_cast<int64_t>(index) * strides[axis++]), ...);
    return sum;
  }
};

// The number without its fraction as an integer dtype has it: the nearest that it has where it is out of range, 0 for
// NaN; a bool says whether it is not 0. Of u64 the bits.
int64_t to_integer(Dtype dtype, double value);

// Writes value to one element of a floating dtype, rounded once to nearest even; integers are those of to_integer.
void store(void* element, Dtype dtype, double value);

// The first (lowest row).
using sdk::DataError;
using enum sdk::DataErrorKind;

// A dtype that intermediates may be rounded to, to nearest.
struct Rounding {
  int mantissa_bits = 0;  // stored ones; 0: nothing may be rounded
  int min_exponent = 0;   // of the smallest normal number

  explicit operator bool() const { return mantissa_bits > 0; }
  // How far a number may be from itself, rounded: half an ulp relative to the smallest number of its binade and, below
  // the smallest normal number, half the distance of subnormals, or all of it.
  double of(double x) const {
    if (mantissa_bits == 0) return 0;
    const double magnitude = std::fabs(x);
    return std::max(std::ldexp(magnitude, -mantissa_bits - 1),
                    std::min(magnitude, std::ldexp(1.0, min_exponent - mantissa_bits - 1)));
  }
};

// Row-major values and conditions; both empty when the output was not asked for.
struct Output {
  std::vector<double> value;
  std::vector<double> cond;
  std::vector<double> rounded{};  // what class `tolerance` allows beside `cond`; empty: 0 everywhere
  std::vector<int64_t> exact{};   // integers, beside `value`, where a double loses bits; empty: `value` has them all
  // Of an output in the memory of an input: true where the operator does not write, so that the input's bits stay.
  // Empty: everything is written.
  std::vector<bool> kept{};
  bool wanted = false;       // asked for
  Dtype dtype = Dtype::f32;  // of the caller's tensor, where the call says it
};

// Makes the output `size` times the same exact number.
inline void fill(Output& output, int64_t size, double value) {
  output.value.assign(static_cast<size_t>(size), value);
  output.cond.assign(static_cast<size_t>(size), 0.0);
}

// A call of any operator as its declaration has it.
struct Request {
  std::span<const View> inputs;        // in declared order; an absent one is a View that is not present
  const void* params = nullptr;        // rlk_<op>_params, complete
  uint64_t wanted = 0;                 // bit i: output i is asked for
  Rounding rounding{};                 // of the intermediates in [numerics] rounded
  std::span<const int64_t> symbols{};  // in declared order
  double epsilon = 0x1p-24;            // half an ulp of 1 in the arithmetic that is judged: views do not tell it
  std::span<const Dtype> dtypes{};     // of the outputs; empty: no matter

  const View& operator[](int input) const { return inputs[static_cast<size_t>(input)]; }
  bool wants(int output) const { return (wanted >> output & 1) != 0; }
};
struct Answer {
  std::vector<Output> outputs;  // one per declared output
  DataError error;
};
// The function answer_<op> of core/golden/<op>.cpp; nullptr for a name that no declaration has.
using Function = Answer (*)(const Request& call);
Function find(std::string_view op);

}  // namespace rlk::golden
