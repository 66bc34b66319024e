// Tensors of the tests that call kernels as functions of fibers, in memory with a margin that nothing may write.
#pragma once

#include <rlk/sdk/dtype.hpp>

#include <algorithm>
#include <cstring>
#include <random>
#include <type_traits>
#include <vector>

#include "plugins/simt/element.cuh"

namespace rlk::simt::host {

using sdk::Dtype;
using Sizes = std::vector<int64_t>;

// Calls function(T{}) with the type of a dtype's elements; bool is a byte.
template <class Function>
auto with_type(Dtype dtype, const Function& function) {
  switch (dtype) {
    case Dtype::f32:
      return function(float{});
    case Dtype::f64:
      return function(double{});
    case Dtype::i8:
      return function(int8_t{});
    case Dtype::i16:
      return function(int16_t{});
    case Dtype::u16:
      return function(uint16_t{});
    case Dtype::i32:
      return function(int32_t{});
    case Dtype::u32:
      return function(uint32_t{});
    case Dtype::i64:
      return function(int64_t{});
    case Dtype::u64:
      return function(uint64_t{});
    default:
      return function(uint8_t{});
  }
}
inline double element(const void* at, Dtype dtype) {
  if (dtype == Dtype::bf16) return widen(*static_cast<const bf16*>(at));
  if (dtype == Dtype::f16) return widen(*static_cast<const f16*>(at));
  return with_type(dtype, [at](auto type) { return static_cast<double>(*static_cast<const decltype(type)*>(at)); });
}
// Whole numbers to integers; of a negative one unsigned ones take the low bits.
inline void put(void* at, Dtype dtype, double value) {
  if (dtype == Dtype::bf16) {
    *static_cast<bf16*>(at) = Narrow<bf16>::of(value);
  } else if (dtype == Dtype::f16) {
    *static_cast<f16*>(at) = Narrow<f16>::of(value);
  } else {
    with_type(dtype, [=](auto type) {
      using T = decltype(type);
      *static_cast<T*>(at) =
          std::is_integral_v<T> ? static_cast<T>(static_cast<int64_t>(value)) : static_cast<T>(value);
    });
  }
}

// Whole numbers that every floating dtype holds exactly, in memory with a margin of elements around.
struct Tensor {
  static constexpr int64_t kMargin = 48;

  Tensor(Dtype type, Sizes sizes, Sizes steps = {}, int64_t offset = 0)
      : dtype(type), shape(std::move(sizes)), strides(std::move(steps)), size(sdk::bytes_of(type)) {
    if (strides.size() != shape.size()) {
      strides.assign(shape.size(), 1);
      for (size_t d = shape.size(); d-- > 1;) strides[d - 1] = strides[d] * shape[d];
    }
    int64_t low = 0, high = 0;
    for (size_t d = 0; d < shape.size(); ++d) {
      const int64_t reach = std::max<int64_t>(shape[d] - 1, 0) * strides[d];
      (reach < 0 ? low : high) += reach;
    }
    memory.resize(static_cast<size_t>((high - low + 1 + 2 * kMargin + offset) * size + 32));
    first = align(memory.data()) + (kMargin + offset - low) * size;
    std::mt19937 random(static_cast<unsigned>(high + 7 * size));
    for (char* at = align(memory.data()); at + size <= memory.data() + memory.size(); at += size) {
      put(at, dtype, static_cast<double>(random() % 15) - 7);
    }
    before = memory;
    abi.struct_size = sizeof(abi);
    abi.alignment = 1;
    abi.data = first;
    abi.shape = shape.data();
    abi.strides = strides.data();
    abi.ndim = static_cast<int32_t>(shape.size());
    abi.dtype = sdk::abi_of(dtype);
  }
  Tensor(const Tensor&) = delete;
  Tensor& operator=(const Tensor&) = delete;

  static char* align(char* at) { return at + (16 - reinterpret_cast<uintptr_t>(at) % 16) % 16; }
  // By an index of a tensor that this one is broadcast to.
  char* at(const Sizes& index) const {
    int64_t offset = 0;
    for (size_t d = 0; d < shape.size(); ++d) {
      if (shape[d] != 1) offset += index[d + index.size() - shape.size()] * strides[d];
    }
    return first + offset * size;
  }

  Dtype dtype;
  Sizes shape, strides;
  int64_t size;
  std::vector<char> memory, before;
  char* first = nullptr;
  rlk_tensor abi{};
};

template <class Function>
void for_each_index(const Sizes& shape, const Function& function) {
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return;
  Sizes index(shape.size(), 0);
  for (;;) {
    function(index);
    size_t d = shape.size();
    while (d > 0 && ++index[d - 1] == shape[d - 1]) index[--d] = 0;
    if (d == 0) return;
  }
}

inline constexpr Dtype kEvery[] = {Dtype::f32, Dtype::bf16, Dtype::f16, Dtype::f64};

}  // namespace rlk::simt::host
