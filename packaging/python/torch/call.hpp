// A call of an operator with torch's tensors, for torch's dispatcher (operator.cpp) and for Python (direct.cpp).
#pragma once

#include <array>
#include <string>
#include <utility>

#include "operator.hpp"
#include "streams.hpp"

namespace rlk::torch {

// What torch gave into our hands.
template <class T, int32_t (*Shim::*Delete)(T*)>
class Handle {
public:
  Handle() = default;
  explicit Handle(T* handle) : handle_(handle) {}
  Handle(Handle&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Handle& operator=(Handle&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  ~Handle() {
    if (handle_ != nullptr) (shim.*Delete)(handle_);
  }
  T* get() const { return handle_; }
  T* release() { return std::exchange(handle_, nullptr); }
  explicit operator bool() const { return handle_ != nullptr; }

private:
  T* handle_ = nullptr;
};
using Tensor = Handle<AtenTensorOpaque, &Shim::aoti_torch_delete_tensor_object>;
using Tensors = std::array<Tensor, kMaxArguments>;
using Handles = std::array<AtenTensorOpaque*, kMaxArguments>;  // of others, or nullptr

// Throws for last_error to tell: RuntimeError in Python, of which rlk.torch makes rlk's own class.
[[noreturn]] void refuse(const std::string& text);

class Call {
public:
  // Takes the inputs as memory; refuses what no operator takes.
  Call(const Operator& op, const Handles& given);

  Device device() const { return device_; }
  const rlk_tensor* input(size_t i) const { return inputs_[i]; }

  // Makes the outputs of the mask and enqueues the work on torch's current stream. params is as rlk_call takes it.
  // Gives the outputs in declared order, with gaps.
  Tensors& run(const void* params, uint64_t wanted, const rlk_call_options& options);

private:
  void make_outputs(const void* params, uint64_t wanted);

  const Operator& op_;
  Device device_;
  std::array<rlk_tensor, 2 * kMaxArguments> tensors_;
  std::array<const rlk_tensor*, kMaxArguments> inputs_{}, outputs_{};
  std::array<std::array<int64_t, RLK_MAX_NDIM>, kMaxArguments> strides_;
  Tensors made_;
};

}  // namespace rlk::torch
