// Tensors of Python's become the inputs of a call, and its outputs tensors of Python's.
#pragma once

#include <optional>

#include "call.hpp"
#include "python.hpp"

namespace rlk::torch {

class Taken {
public:
  // False where the call is the dispatcher's, which says what is wrong, or knows better; or with an exception of
  // Python's. The request is an rlk_torch_request with its parameters, as bytes. Those given from place `gradients` on
  // are made contiguous for a device: sum() and mean() give one number for all elements, with strides of 0, which
  // kernels of devices decline.
  bool take(const Operator& op, _object* request, _object* pin, _object* const* given, ptrdiff_t n,
            ptrdiff_t gradients);

  const Call& call() const { return *call_; }

  // The outputs as a tuple, or nothing with an exception of Python's. request: of these inputs in any order.
  Object run(_object* request);

private:
  bool read(size_t i, _object* x);

  rlk_call_options options_ = RLK_CALL_OPTIONS_INIT;
  Handles inputs_{};
  std::array<void*, kMaxArguments> cells_;
  Tensors owned_;
  std::array<Object, kMaxArguments> dense_;
  std::optional<Call> call_;
};

inline const rlk_torch_request& request_of(const char* bytes) {
  return *reinterpret_cast<const rlk_torch_request*>(bytes);
}

}  // namespace rlk::torch
