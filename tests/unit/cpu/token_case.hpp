// What the tests of operators with one number per token share: tensors from lists, arrays from tensors, and golden by
// the operator's name.
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

inline cpu::Mask mask_of(Tensor& tensor) {
  cpu::Mask mask;
  if (!tensor.present()) return mask;
  mask.data = static_cast<const uint8_t*>(tensor.data());
  for (size_t axis = 0; axis < tensor.shape().size(); ++axis)
    mask.strides[axis] = tensor.stride(static_cast<int>(axis));
  return mask;
}

// The golden answer of an operator; inputs in declared order, nullptr for an absent one, every output wanted unless
// said otherwise.
template <typename Params>
golden::Answer golden_answer(const char* op, const Params& params, const std::vector<const Tensor*>& inputs,
                             uint64_t wanted = ~uint64_t{0}) {
  std::vector<golden::View> views;
  for (const Tensor* input : inputs) views.push_back(input != nullptr ? input->view() : golden::View());
  return golden::find(op)({views, &params, wanted});
}

// Every way to run a parallel-for that must give the same bits as the serial one.
inline std::vector<cpu::ParallelFor> other_hooks() {
  return {cpu::tbb_parallel(), backwards_parallel()};
}

// [rows, columns] of fp64 by the kernel of whiten.
inline Tensor whitened(const Tensor& x, const Tensor& mask, const ops::whiten::Params& params = {}) {
  CallOf<ops::Whiten> call;
  call.x = x;
  call.mask = mask;
  call.params = params;
  return run(call).y;
}

}  // namespace rlk::test
