// A test's tensors as the declarations see them.
#include "unit/cpu/operator.hpp"

#include <stdexcept>

#include "core/declaration/declaration.hpp"
#include "core/declaration/validate.hpp"

namespace rlk::test {
namespace {

rlk_tensor abi_tensor(Tensor& tensor) {
  rlk_tensor abi{};
  abi.struct_size = sizeof(abi);
  abi.alignment = static_cast<uint32_t>(sdk::bytes_of(tensor.dtype()));
  abi.data = tensor.data();
  abi.shape = tensor.shape().data();
  abi.strides = tensor.strides().data();
  abi.ndim = static_cast<int32_t>(tensor.shape().size());
  abi.dtype = sdk::abi_of(tensor.dtype());
  return abi;
}

// Descriptors of a list of tensors, and pointers to them; absent ones are null.
struct Descriptors {
  explicit Descriptors(std::span<Tensor* const> tensors) : rows(tensors.size()) {
    for (size_t i = 0; i < tensors.size(); ++i) {
      if (tensors[i]->present()) rows[i] = abi_tensor(*tensors[i]);
      pointers.push_back(tensors[i]->present() ? &rows[i] : nullptr);
    }
  }
  std::vector<rlk_tensor> rows;
  std::vector<const rlk_tensor*> pointers;
};

void expect_ok(rlk_status status, const rlk_error& error) {
  if (status != RLK_OK) throw std::invalid_argument(error.text);
}

}  // namespace

Tensor wanted() {
  Tensor tensor;
  tensor.want();
  return tensor;
}

std::vector<int64_t> complete(const char* op, const void* params, std::span<Tensor* const> inputs,
                              std::span<Tensor* const> outputs) {
  const core::OpDecl& decl = *core::find_declaration(op);
  const Descriptors in(inputs);
  rlk_error error{};
  error.struct_size = sizeof(error);
  uint64_t asked = 0;
  for (size_t i = 0; i < outputs.size(); ++i) {
    asked |= uint64_t{!decl.outputs[i].optional || outputs[i]->present() || outputs[i]->is_wanted()} << i;
  }
  std::vector<core::InferredTensor> inferred;
  expect_ok(core::infer_outputs(decl, params, in.pointers, asked, inferred, &error), error);
  for (size_t i = 0; i < outputs.size(); ++i) {
    const core::InferredTensor& made = inferred[i];
    if ((asked >> i & 1) != 0 && !outputs[i]->present()) *outputs[i] = Tensor(made.dtype, made.shape);
  }
  const Descriptors out(outputs);
  core::BoundCall call;
  std::vector<std::byte> storage(decl.params_size);
  expect_ok(core::validate(decl, params, in.pointers, out.pointers, true, storage, call, &error), error);
  return {call.symbols.begin(), call.symbols.begin() + static_cast<std::ptrdiff_t>(decl.symbols.size())};
}

}  // namespace rlk::test
