// Tensors of Python's become the inputs of a call, and its outputs tensors of Python's.
#pragma once

#include <optional>

#include "call.hpp"
#include "python.hpp"

namespace rlk::torch {

class Taken {
public:
  // False where the call is the dispatcher's, which says what is wrong, or knows better; or with an exception of
  // Python's. Behind the request stand the parameters. Those given from place `gradients` on
  // are made contiguous for a device: sum() and mean() give one number for all elements, with strides of 0, which
  // kernels of devices decline.
  bool take(const Operator& op, const rlk_torch_request& asked, _object* pin, _object* const* given, ptrdiff_t n,
            ptrdiff_t gradients);

  const Call& call() const { return *call_; }

  // The outputs as a tuple, or nothing with an exception of Python's. request: of these inputs in any order.
  Object run(const rlk_torch_request& request);

private:
  bool read(size_t i, _object* x);

  rlk_call_options options_ = RLK_CALL_OPTIONS_INIT;
  Handles inputs_{};
  std::array<void*, kMaxArguments> cells_;
  Tensors owned_;
  std::array<Object, kMaxArguments> dense_;
  std::optional<Call> call_;
};

// Of bytes that Python made.
inline const rlk_torch_request& request_of(_object* bytes) {
  return *reinterpret_cast<const rlk_torch_request*>(python.PyBytes_AsString(bytes));
}

}  // namespace rlk::torch
