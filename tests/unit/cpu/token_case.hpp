// What the tests of operators with one number per token share: tensors from lists and lists from tensors.
#pragma once

#include "core/cpu/tbb_parallel.hpp"
#include "unit/cpu/operator.hpp"

namespace rlk::test {

inline Tensor numbers(const std::vector<double>& list, std::vector<int64_t> shape = {}, Dtype dtype = Dtype::f64,
                      Strides strides = Strides::contiguous) {
  if (shape.empty()) shape = {static_cast<int64_t>(list.size())};
  return Tensor(dtype, std::move(shape), strides).fill([&](int64_t i) { return list[static_cast<size_t>(i)]; });
}
inline Tensor integers(const std::vector<int64_t>& list, Dtype dtype = Dtype::i64) {
  Tensor tensor(dtype, {static_cast<int64_t>(list.size())});
  for (size_t i = 0; i < list.size(); ++i) tensor.set_int(static_cast<int64_t>(i), list[i]);
  return tensor;
}
inline Tensor flags(const std::vector<int>& list, std::vector<int64_t> shape = {}) {
  if (shape.empty()) shape = {static_cast<int64_t>(list.size())};
  Tensor tensor(Dtype::u8, std::move(shape));
  for (size_t i = 0; i < list.size(); ++i) tensor.set_int(static_cast<int64_t>(i), list[i]);
  return tensor;
}
inline std::vector<double> list_of(const Tensor& tensor) {
  std::vector<double> list;
  for (int64_t i = 0; i < tensor.size(); ++i) list.push_back(tensor.get(i));
  return list;
}

// Every way to run a parallel-for that must give the same bits as the serial one.
inline std::vector<cpu::ParallelFor> other_hooks() {
  return {cpu::tbb_parallel(), backwards_parallel()};
}

}  // namespace rlk::test
