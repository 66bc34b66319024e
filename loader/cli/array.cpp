// Memory, element access and casts of host tensors. Numbers are read and rounded by the golden reference's own code.
#include "loader/cli/array.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <new>

#include "core/declaration/validate.hpp"
#include "core/golden/golden.hpp"
#include "loader/cli/verb.hpp"

namespace rlk::cli {
namespace {

constexpr std::align_val_t kAlignment{64};

// Both enumerations list the same dtypes in the same order.
golden::Dtype golden_of(core::Dtype dtype) {
  static_assert(static_cast<int>(core::Dtype::f4_e2m1fn) == static_cast<int>(golden::Dtype::f4_e2m1fn));
  return static_cast<golden::Dtype>(dtype);
}

golden::View view_of(const void* data, core::Dtype dtype) {
  golden::View view;
  view.data = data;
  view.dtype = golden_of(dtype);
  view.ndim = 0;
  return view;
}

struct Range {
  int64_t low, high;
};
// Calls use(a number of the integer dtype's type).
template <class Use>
auto with_integer(core::Dtype dtype, Use&& use) {
  switch (dtype) {
    case core::Dtype::u8:
      return use(uint8_t{});
    case core::Dtype::i8:
      return use(int8_t{});
    case core::Dtype::i16:
      return use(int16_t{});
    case core::Dtype::u16:
      return use(uint16_t{});
    case core::Dtype::i32:
      return use(int32_t{});
    case core::Dtype::u32:
      return use(uint32_t{});
    default:
      return use(int64_t{});
  }
}

Range range_of(core::Dtype dtype) {
  if (dtype == core::Dtype::boolean) return {0, 1};
  if (dtype == core::Dtype::u64) return {0, std::numeric_limits<int64_t>::max()};  // what an int64_t holds of it
  return with_integer(dtype, [](auto number) {
    using Limits = std::numeric_limits<decltype(number)>;
    return Range{static_cast<int64_t>(Limits::min()), static_cast<int64_t>(Limits::max())};
  });
}

}  // namespace

void Array::Release::operator()(std::byte* memory) const {
  ::operator delete(memory, kAlignment);
}

Array::Array(core::Dtype dtype, std::vector<int64_t> shape)
    : dtype_(dtype), shape_(std::move(shape)), strides_(contiguous_strides(shape_)) {
  if (core::bits_of(dtype) < 8) {
    throw Failure(std::string("tensors of ") + core::name_of(dtype) +
                  ", of which several elements share a byte, are not read, written or made up by the command line");
  }
  const std::optional<int64_t> count = element_count(shape_);
  if (!count || *count > std::numeric_limits<int64_t>::max() / core::size_of(dtype))
    throw Failure("a tensor of shape " + shape_text(shape_) + " is larger than any memory");
  count_ = *count;
  void* memory = ::operator new(std::max<uint64_t>(bytes(), 1), kAlignment, std::nothrow);
  if (memory == nullptr) {
    throw Failure(fmt::format("no host memory for a tensor of shape {} and dtype {} ({} bytes)", shape_text(shape_),
                              core::name_of(dtype), bytes()));
  }
  data_.reset(static_cast<std::byte*>(memory));
}

uint64_t Array::bytes() const {
  return static_cast<uint64_t>(count_) * static_cast<uint64_t>(core::size_of(dtype_));
}

double Array::number(int64_t i) const {
  return view_of(data_.get(), dtype_).load_at(i);
}

int64_t Array::integer(int64_t i) const {
  return view_of(data_.get(), dtype_).load_int_at(i);
}

void Array::set(int64_t i, double value) {
  golden::store(data_.get() + i * core::size_of(dtype_), golden_of(dtype_), value);
}

void Array::set_integer(int64_t i, int64_t value) {
  std::byte* element = data_.get() + i * core::size_of(dtype_);
  if (dtype_ == core::Dtype::boolean) {
    *element = std::byte{value != 0};
    return;
  }
  with_integer(dtype_, [&](auto number) {
    number = static_cast<decltype(number)>(value);
    std::memcpy(element, &number, sizeof(number));
  });
}

Array cast(const Array& from, core::Dtype to) {
  Array out(to, from.shape());
  if (to == from.dtype()) {
    std::memcpy(out.data(), from.data(), from.bytes());
    return out;
  }
  const auto refuse = [&](int64_t i, const std::string& value, const char* why) {
    throw UsageError(fmt::format("element {} is {}, which {} {}", i, value, why, core::name_of(to)));
  };
  if (is_floating(from.dtype())) {
    if (is_floating(to)) {
      for (int64_t i = 0; i < from.count(); ++i) out.set(i, from.number(i));
      return out;
    }
    const Range range = range_of(to);
    for (int64_t i = 0; i < from.count(); ++i) {
      const double value = from.number(i);
      // The limits of 64 bits are no doubles: one beyond the upper one is.
      const bool fits = value >= static_cast<double>(range.low) && value < static_cast<double>(range.high) + 1;
      if (!fits || value != std::floor(value)) {
        char text[32];
        std::snprintf(text, sizeof(text), "%.9g", value);
        refuse(i, text, fits ? "is not whole, as numbers are of" : "does not fit into");
      }
      out.set_integer(i, static_cast<int64_t>(value));
    }
    return out;
  }
  const Range range = range_of(to);
  for (int64_t i = 0; i < from.count(); ++i) {
    const int64_t value = from.integer(i);
    if (is_floating(to)) {
      out.set(i, static_cast<double>(value));
      const double stored = out.number(i);
      // 2^63 is beyond the integers, and no integer rounds below -2^63.
      if (stored >= 0x1p63 || static_cast<int64_t>(stored) != value) {
        refuse(i, std::to_string(value), "is not a number of");
      }
      continue;
    }
    if (value < range.low || value > range.high) refuse(i, std::to_string(value), "does not fit into");
    out.set_integer(i, value);
  }
  return out;
}

Array reshaped(Array from, std::vector<int64_t> shape) {
  from.shape_ = std::move(shape);
  from.strides_ = contiguous_strides(from.shape_);
  return from;
}

Array repeated(Array from, const std::vector<int64_t>& shape) {
  if (from.shape() == shape) return from;
  std::vector<int64_t> strides = from.strides();
  for (size_t axis = 0; axis < shape.size(); ++axis) {
    if (from.shape()[axis] == 1) strides[axis] = 0;
  }
  return gathered(from, shape, strides);
}

Array gathered(const Array& from, const std::vector<int64_t>& shape, const std::vector<int64_t>& strides) {
  Array out(from.dtype(), shape);
  const auto size = static_cast<size_t>(core::size_of(from.dtype()));
  std::vector<int64_t> index(shape.size(), 0);
  const auto* source = static_cast<const std::byte*>(from.data());
  auto* target = static_cast<std::byte*>(out.data());
  for (int64_t i = 0; i < out.count(); ++i) {
    int64_t offset = 0;
    for (size_t axis = 0; axis < shape.size(); ++axis) offset += index[axis] * strides[axis];
    std::memcpy(target + static_cast<size_t>(i) * size, source + static_cast<size_t>(offset) * size, size);
    for (size_t axis = shape.size(); axis-- > 0;) {
      if (++index[axis] < shape[axis]) break;
      index[axis] = 0;
    }
  }
  return out;
}

std::vector<int64_t> contiguous_strides(const std::vector<int64_t>& shape) {
  std::vector<int64_t> strides(shape.size());
  int64_t step = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    strides[i] = step;
    // Code that counts the elements refuses a shape that overflows; here the strides must only be defined.
    step = static_cast<int64_t>(static_cast<uint64_t>(step) * static_cast<uint64_t>(std::max<int64_t>(shape[i], 1)));
  }
  return strides;
}

std::optional<int64_t> element_count(const std::vector<int64_t>& shape) {
  int64_t count = 1;
  bool empty = false;
  for (int64_t size : shape) {
    if (size < 0) return std::nullopt;
    empty |= size == 0;
    if (size != 0 && __builtin_mul_overflow(count, size, &count)) return std::nullopt;
  }
  return empty ? 0 : count;
}

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  return text + "]";
}

}  // namespace rlk::cli
