// Building blocks of the CPU kernels' tests: tensors of any dtype and stride, the golden comparison, every instruction
// set that the machine has, ways to run a parallel-for.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "core/cpu/simd/kernel.hpp"
#include "core/golden/golden.hpp"

namespace rlk::test {

using golden::Dtype;
using List = std::vector<double>;
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// How a tensor lies in memory: row-major; with gaps after every element and row; or walked backwards with gaps.
enum class Strides { contiguous, gaps, reversed };

class Tensor {
public:
  Tensor() = default;  // absent
  Tensor(Dtype dtype, std::vector<int64_t> shape, Strides strides = Strides::contiguous);

  bool present() const { return present_; }
  int64_t size() const;  // elements
  Dtype dtype() const { return dtype_; }
  const std::vector<int64_t>& shape() const { return shape_; }
  const std::vector<int64_t>& strides() const { return strides_; }
  int64_t stride(int axis) const { return strides_[static_cast<size_t>(axis)]; }
  void* data();  // of the first element; nullptr when absent
  golden::View view() const;

  // Of an absent output: to be made.
  void want() { wanted_ = true; }
  bool is_wanted() const { return wanted_; }

  // Elements in row-major order.
  double get(int64_t flat) const;
  int64_t get_int(int64_t flat) const;
  Tensor& set(int64_t flat, double value);
  // An integer as it is.
  Tensor& set_int(int64_t flat, int64_t value);
  Tensor& fill(const std::function<double(int64_t flat)>& value);
  // Every byte of the allocation, gaps included: for bit comparisons.
  const std::vector<unsigned char>& bytes() const { return bytes_; }
  // The bits of row-major elements [begin, end).
  std::vector<unsigned char> bits(int64_t begin, int64_t end) const;

private:
  int64_t offset(int64_t flat) const;  // in elements from the allocation's start

  bool present_ = false, wanted_ = false;
  Dtype dtype_ = Dtype::f32;
  std::vector<int64_t> shape_, strides_;
  int64_t first_ = 0;
  std::vector<unsigned char> bytes_;
};

// Normal numbers of a scale, reproducible.
Tensor random_tensor(Dtype dtype, std::vector<int64_t> shape, double scale, uint32_t seed,
                     Strides strides = Strides::contiguous);

inline Dtype accumulator(Dtype dtype) {
  return dtype == Dtype::f64 ? Dtype::f64 : Dtype::f32;
}
std::string name(Dtype dtype);

// The distance between neighbouring numbers of the dtype at value.
double ulp(Dtype dtype, double value);

// The golden rule: 1 ulp + kConditionFactor * eps * cond, eps of what `computed_in` accumulates in. When it holds for
// every element, *worst (optional) becomes at least the largest (error - 1 ulp) / (eps * cond).
::testing::AssertionResult matches(const Tensor& got, const golden::Output& expected, Dtype computed_in,
                                   double* worst = nullptr);

// Runs body once for every Highway target of this machine that the kernels were compiled for, with a trace of its name.
void for_each_target(const std::function<void()>& body);

// The first dtypes' loop of most tests.
inline const std::vector<Dtype> kFloatDtypes = {Dtype::f32, Dtype::bf16, Dtype::f16, Dtype::f64};

// A hook that cuts ranges into single grains and runs them last first: the opposite of the serial one.
cpu::ParallelFor backwards_parallel();

// A hook of 1 to 8 threads, which take grains as they come.
cpu::ParallelFor threads_parallel(int64_t threads);

}  // namespace rlk::test
