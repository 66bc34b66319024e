// Reading what the host passes: tensors, the description of a call, one execution.
#pragma once

#include <rlk/abi.h>
#include <rlk/sdk/dtype.hpp>
#include <rlk/sdk/error.hpp>

#include <cstdint>
#include <cstring>
#include <type_traits>

namespace rlk::sdk {

inline int64_t element_count(const rlk_tensor& tensor) noexcept {
  uint64_t count = 1;  // unsigned: of an empty tensor the other sizes may have any product
  for (int32_t i = 0; i < tensor.ndim; ++i) count *= static_cast<uint64_t>(tensor.shape[i]);
  return static_cast<int64_t>(count);
}

// Row-major without gaps; dimensions of size 1 (and empty tensors) have any stride.
inline bool is_contiguous(const rlk_tensor& tensor) noexcept {
  if (element_count(tensor) == 0) return true;
  int64_t expected = 1;
  for (int32_t i = tensor.ndim - 1; i >= 0; --i) {
    if (tensor.shape[i] != 1 && tensor.strides[i] != expected) return false;
    expected *= tensor.shape[i];
  }
  return true;
}

// The first element; nullptr for an absent argument and for an empty tensor without memory.
template <class T = void>
T* data_of(const rlk_tensor* tensor) noexcept {
  if (tensor == nullptr || tensor->data == nullptr) return nullptr;
  return reinterpret_cast<T*>(static_cast<char*>(tensor->data) + tensor->byte_offset);
}

namespace detail {

inline const rlk_private_params* find_private_params(const rlk_ext* next) noexcept {
  for (; next != nullptr; next = next->next) {
    if ((next->type & ~RLK_EXT_REQUIRED) != RLK_EXT_PRIVATE_PARAMS) continue;
    if (next->struct_size >= sizeof(rlk_private_params)) return reinterpret_cast<const rlk_private_params*>(next);
  }
  return nullptr;
}

}  // namespace detail

// A call description of operator Op (rlk::sdk::ops::*).
template <class Op>
class Call {
public:
  explicit Call(const rlk_call_desc& desc) noexcept : desc_(&desc) {
    // The host may know more or fewer parameters than this plugin: take the common ones, defaults for the others. (The
    // host has declined for us any parameter that we do not know and that is not at its default.)
    uint32_t size = 0;
    std::memcpy(&size, desc.params, sizeof(size));
    std::memcpy(static_cast<void*>(&params_), desc.params, size < sizeof(params_) ? size : sizeof(params_));
    params_.struct_size = sizeof(params_);
  }
  const typename Op::Params& params() const noexcept { return params_; }
  const rlk_tensor* input(uint32_t i) const noexcept { return i < desc_->n_inputs ? desc_->inputs[i] : nullptr; }
  const rlk_tensor* output(uint32_t i) const noexcept { return i < desc_->n_outputs ? desc_->outputs[i] : nullptr; }
  int64_t symbol(uint32_t i) const noexcept { return i < desc_->n_symbols ? desc_->symbols[i] : -1; }
  // The input whose memory output i is, or -1.
  int32_t alias(uint32_t i) const noexcept { return i < desc_->n_outputs ? desc_->output_alias[i] : -1; }
  uint32_t numerics() const noexcept { return desc_->numerics; }
  const rlk_call_desc& desc() const noexcept { return *desc_; }
  // This plugin's own parameters, nullptr without them: the host passes no others on.
  const rlk_private_params* private_params() const noexcept { return detail::find_private_params(desc_->next); }
  // The same as the plugin's own struct, to which fields are only ever appended: what the caller's is too short for
  // keeps its default.
  template <class T>
  T private_params(T defaults) const {
    static_assert(std::is_trivially_copyable<T>::value, "private parameters are copied byte for byte");
    const rlk_private_params* given = private_params();
    if (given == nullptr) return defaults;
    if (given->bytes > sizeof(T)) {
      throw Error(RLK_INVALID_ARGUMENT, format("%llu bytes of private parameters; this version of the plugin knows %zu",
                                               static_cast<unsigned long long>(given->bytes), sizeof(T)));
    }
    std::memcpy(&defaults, given->data, given->bytes);
    return defaults;
  }

private:
  const rlk_call_desc* desc_;
  typename Op::Params params_ = Op::defaults();
};

// The execution of a planned call.
class Run {
public:
  explicit Run(const rlk_run& run) noexcept : run_(&run) {}
  const rlk_tensor* input(uint32_t i) const noexcept { return i < run_->n_inputs ? run_->inputs[i] : nullptr; }
  const rlk_tensor* output(uint32_t i) const noexcept { return i < run_->n_outputs ? run_->outputs[i] : nullptr; }
  // Values on the host of an input that the plan asked for, contiguous; nullptr otherwise.
  const void* host_input(uint32_t i) const noexcept { return i < run_->n_inputs ? run_->host_inputs[i] : nullptr; }
  int64_t symbol(uint32_t i) const noexcept { return i < run_->n_symbols ? run_->symbols[i] : -1; }
  void* workspace() const noexcept { return run_->workspace; }
  uint64_t workspace_bytes() const noexcept { return run_->workspace_bytes; }
  uint32_t tag() const noexcept { return run_->tag; }
  rlk_data_error_record* data_error_record() const noexcept { return run_->data_error_record; }
  // The plan's own device memory, Plan::persistent_bytes of it; to be filled by the execution that finds it new.
  void* persistent() const noexcept { return run_->persistent; }
  bool is_persistent_new() const noexcept { return (run_->flags & RLK_RUN_NEW_PERSISTENT) != 0; }
  bool is_capturing() const noexcept { return (run_->flags & RLK_RUN_CAPTURING) != 0; }
  const rlk_run& raw() const noexcept { return *run_; }

private:
  const rlk_run* run_;
};

// The answer to "can you run this call?".
struct Support {
  int32_t level = RLK_SUPPORT_NO;
  uint32_t numerics = RLK_NUMERICS_TOLERANCE;
  uint32_t flags = 0;
  uint64_t workspace_bound = 0;
  uint64_t host_inputs = 0;
  double cost_us = 0;
  std::string variant;
  std::string reason_code;
  std::string reason;

  static Support yes(std::string variant, uint32_t numerics, int32_t level = RLK_SUPPORT_OK) {
    Support answer;
    answer.level = level;
    answer.numerics = numerics | RLK_NUMERICS_TOLERANCE;
    answer.variant = std::move(variant);
    return answer;
  }
  static Support no(std::string code, std::string reason, uint32_t flags = 0) {
    Support answer;
    answer.flags = flags;
    answer.reason_code = std::move(code);
    answer.reason = std::move(reason);
    return answer;
  }
};

}  // namespace rlk::sdk
