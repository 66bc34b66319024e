// Operators in tests, by argument name:
//
//   CallOf<ops::Whiten> call;
//   call.x = random_tensor(Dtype::bf16, {3, 7}, 1, 1);
//   call.params.std = Std::population;
//   const auto result = run(call);          // result.y, result.error
//   const auto right = golden_answer(call); // right.y is a golden::Output
//
// Outputs that the test leaves alone are made as the declaration infers them, optional ones when marked by wanted(). A
// call that the declaration refuses throws std::invalid_argument with its text.
#pragma once

#include <algorithm>
#include <span>
#include <type_traits>
#include <vector>

#include "core/cpu/simd/operator.hpp"
#include "core/cpu/tbb_parallel.hpp"
#include "core/golden/operator.hpp"
#include "unit/cpu/support.hpp"

namespace rlk::sdk::ops {}  // namespace rlk::sdk::ops

namespace rlk::test {

namespace ops = sdk::ops;

template <class Op>
using CallOf = typename Op::template Args<Tensor>;

// An optional output that is asked for.
Tensor wanted();

// Makes the outputs, checks the call against its declaration, and finds its symbols (in declared order).
std::vector<int64_t> complete(const char* op, const void* params, std::span<Tensor* const> inputs,
                              std::span<Tensor* const> outputs);

inline cpu::Array array_of(const Tensor& tensor) {
  cpu::Array array;
  if (!tensor.present()) return array;
  array.data = const_cast<Tensor&>(tensor).data();
  array.dtype = tensor.dtype();
  array.ndim = static_cast<int32_t>(tensor.shape().size());
  for (size_t axis = 0; axis < tensor.shape().size(); ++axis) {
    array.shape[axis] = tensor.shape()[axis];
    array.strides[axis] = tensor.stride(static_cast<int>(axis));
  }
  return array;
}

template <class Args>
void complete(Args& call) {
  std::vector<Tensor*> inputs, outputs;
  Args::each_input(call, [&](Tensor& tensor) { inputs.push_back(&tensor); });
  Args::each_output(call, [&](Tensor& tensor) { outputs.push_back(&tensor); });
  const std::vector<int64_t> symbols = complete(Args::Op::kName, &call.params, inputs, outputs);
  size_t i = 0;
  Args::each_symbol(call, [&](int64_t& symbol) { symbol = symbols[i++]; });
}

template <class Args>
struct Result : Args {
  sdk::DataError error;
};

// By the built-in kernel. The workspace is poisoned, and nothing behind it may be written. An output can be told to be
// written in the memory of an input.
template <class Args>
Result<Args> run(const Args& given, const cpu::ParallelFor& parallel = cpu::serial_parallel(),
                 Tensor std::type_identity_t<Args>::*output = nullptr,
                 Tensor std::type_identity_t<Args>::*input = nullptr) {
  using Op = typename Args::Op;
  Result<Args> result{given, {}};
  complete(static_cast<Args&>(result));
  cpu::CallOf<Op> call;
  std::vector<cpu::Array> arrays;
  Args::each_input(result, [&](const Tensor& tensor) { arrays.push_back(array_of(tensor)); });
  Args::each_output(result, [&](const Tensor& tensor) {
    const bool in_place = output != nullptr && &tensor == &(result.*output);
    arrays.push_back(array_of(in_place ? result.*input : tensor));
  });
  size_t i = 0;
  const auto take = [&](cpu::Array& array) { array = arrays[i++]; };
  cpu::CallOf<Op>::each_input(call, take);
  cpu::CallOf<Op>::each_output(call, take);
  std::vector<int64_t> symbols;
  Args::each_symbol(result, [&](int64_t symbol) { symbols.push_back(symbol); });
  i = 0;
  cpu::CallOf<Op>::each_symbol(call, [&](int64_t& symbol) { symbol = symbols[i++]; });
  call.params = result.params;
  const int64_t bytes = cpu::workspace_bytes<Op>(call, parallel.threads);
  std::vector<unsigned char> workspace(static_cast<size_t>(bytes) + 512, 0xA5);
  const auto address = (reinterpret_cast<uintptr_t>(workspace.data()) + 255) / 256 * 256;
  result.error = cpu::kernel<Op>().run(call, {parallel, reinterpret_cast<void*>(address)});
  if (output != nullptr) result.*output = result.*input;
  const auto* behind = reinterpret_cast<const unsigned char*>(address) + bytes;
  EXPECT_TRUE(std::all_of(behind, behind + 256, [](unsigned char byte) { return byte == 0xA5; }))
      << Op::kName << " writes behind its workspace";
  return result;
}

template <class Op>
struct GoldenResult : Op::template Args<golden::View, golden::Output> {
  golden::DataError error;
};

// Every output is asked for that `given` has or would get.
template <class Args>
GoldenResult<typename Args::Op> golden_answer(const Args& given, golden::Rounding rounding = {}) {
  using Op = typename Args::Op;
  Args call = given;
  complete(call);
  std::vector<golden::View> inputs;
  std::vector<int64_t> symbols;
  uint64_t asked = 0;
  int output = 0;
  Args::each_input(call, [&](const Tensor& tensor) { inputs.push_back(tensor.view()); });
  Args::each_output(call, [&](const Tensor& tensor) { asked |= uint64_t{tensor.present()} << output++; });
  Args::each_symbol(call, [&](int64_t symbol) { symbols.push_back(symbol); });
  const bool in_f64 =
      std::any_of(inputs.begin(), inputs.end(), [](const golden::View& view) { return view.dtype == Dtype::f64; });
  const double epsilon = in_f64 ? 0x1p-53 : 0x1p-24;
  golden::Answer answer = golden::find(Op::kName)({inputs, &call.params, asked, rounding, symbols, epsilon});
  GoldenResult<Op> result;
  result.error = answer.error;
  size_t i = 0;
  GoldenResult<Op>::each_output(result, [&](golden::Output& out) { out = std::move(answer.outputs[i++]); });
  return result;
}

}  // namespace rlk::test
