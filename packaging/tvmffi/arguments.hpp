// tvm-ffi's arguments of one call as the C API takes them, and errors the other way.
#pragma once

#include <rlk/rlk.h>

#include <array>
#include <string>
#include <vector>

#include "operators.hpp"
#include "plugins/tvmffi/abi.hpp"

namespace rlk::tvmffi {

// An error in tvm-ffi's form; kind is the name of Python's class.
struct Raised {
  const char* kind;
  std::string text;
};

// Throws what the status says; RLK_OK and RLK_NOT_READY do not.
void check(rlk_status status, const rlk_error& error);

// "logits, ids, bias=None, ..., logp, lse=None, ..., temperature=1.0": the arguments by place, None where optional.
std::string signature(const Operator& op);

constexpr size_t largest(const Operator* begin, const Operator* end, size_t (*of)(const Operator&)) {
  size_t most = 1;
  for (const Operator* op = begin; op != end; ++op) most = of(*op) > most ? of(*op) : most;
  return most;
}
constexpr size_t kMostTensors = largest(std::begin(kOperators), std::end(kOperators), [](const Operator& op) -> size_t {
  return op.n_inputs > op.n_outputs ? op.n_inputs : op.n_outputs;
});
constexpr size_t kMostParameterBytes =
    largest(std::begin(kOperators), std::end(kOperators), [](const Operator& op) -> size_t { return op.params_size; });

// Borrows what the arguments lead to. Throws Raised.
class Arguments {
public:
  Arguments(const Operator& op, const Any* arguments, int32_t count);
  Arguments(const Arguments&) = delete;
  Arguments& operator=(const Arguments&) = delete;

  const void* params() const { return params_.data(); }
  const rlk_tensor* const* inputs() const { return inputs_.data(); }
  const rlk_tensor* const* outputs() const { return outputs_.data(); }
  DlDevice device() const { return device_; }  // of all tensors; the CPU for memory of the host
  const void* data() const { return data_; }   // of the first tensor that has elements; nullptr: none has

private:
  const rlk_tensor* tensor(const Argument& argument, const Any& value);
  void parameter(const Parameter& parameter, const Any& value);
  [[noreturn]] void fail(const char* kind, const char* argument, const std::string& text) const;

  const Operator& op_;
  DlDevice device_ = {0, 0};
  const void* data_ = nullptr;
  alignas(8) std::array<char, kMostParameterBytes> params_;
  std::array<const rlk_tensor*, kMostTensors> inputs_{}, outputs_{};
  std::array<rlk_tensor, 2 * kMostTensors> tensors_;
  std::array<std::array<int64_t, RLK_MAX_NDIM>, 2 * kMostTensors> strides_;
  size_t used_ = 0;
};

}  // namespace rlk::tvmffi
