// A tensor on the host that the command line reads, casts, makes up and writes.
#pragma once

#include <rlk/abi/tensor.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/declaration/validate.hpp"

namespace rlk::cli {

// Row-major, aligned to 64 bytes. The memory of a fresh array is not initialised.
class Array {
public:
  Array() = default;
  // Throws Failure when the size does not fit into 63 bits or into memory.
  Array(core::Dtype dtype, std::vector<int64_t> shape);

  core::Dtype dtype() const { return dtype_; }
  const std::vector<int64_t>& shape() const { return shape_; }
  const std::vector<int64_t>& strides() const { return strides_; }  // in elements
  int64_t count() const { return count_; }
  uint64_t bytes() const;
  void* data() { return data_.get(); }
  const void* data() const { return data_.get(); }
  template <class T>
  T* as() {
    return reinterpret_cast<T*>(data_.get());
  }

  double number(int64_t i) const;     // any dtype; 64-bit integers lose bits
  int64_t integer(int64_t i) const;   // integer dtypes
  void set(int64_t i, double value);  // rounded once to nearest even
  void set_integer(int64_t i, int64_t value);

private:
  friend Array reshaped(Array from, std::vector<int64_t> shape);
  struct Release {
    void operator()(std::byte* memory) const;
  };
  core::Dtype dtype_ = core::Dtype::f32;
  std::vector<int64_t> shape_;
  std::vector<int64_t> strides_;
  int64_t count_ = 0;
  std::unique_ptr<std::byte, Release> data_;
};

// Floating to floating rounds once; between integers and floating point, and among integers, every value must be one of
// the other dtype. Throws UsageError for a value that is not, naming it.
Array cast(const Array& from, core::Dtype to);

// The same elements; `shape` has as many.
Array reshaped(Array from, std::vector<int64_t> shape);
// Sizes of 1 repeated to those of `shape`, which has as many dimensions.
Array repeated(Array from, const std::vector<int64_t>& shape);
// The elements of `from` at the given strides, which may be 0, in the order of `shape`.
Array gathered(const Array& from, const std::vector<int64_t>& shape, const std::vector<int64_t>& strides);

std::vector<int64_t> contiguous_strides(const std::vector<int64_t>& shape);
// Elements of the shape; nothing when it does not fit into 63 bits or a size is negative.
std::optional<int64_t> element_count(const std::vector<int64_t>& shape);
std::string shape_text(const std::vector<int64_t>& shape);  // "[2, 3]"

}  // namespace rlk::cli
