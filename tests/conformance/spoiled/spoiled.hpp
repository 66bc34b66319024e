// A plugin whose implementations are another's, with kernels that are wrong where vectors are filled: in a call with a
// tensor of 64 elements or more the last element of the first output is off.
#pragma once

#include <rlk/abi.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

namespace rlk::spoiled {

class Plugin {
public:
  explicit Plugin(const rlk_plugin& honest) : plugin_(honest) {
    for (uint32_t i = 0; i < honest.n_implementations; ++i) {
      rlk_implementation& row = rows_.emplace_back(*honest.implementations[i]);
      row.user = const_cast<rlk_implementation*>(honest.implementations[i]);
      row.query = query;
      row.plan_create = plan_create;
      if (row.plan_prepare != nullptr) row.plan_prepare = plan_prepare;
      row.plan_enqueue = plan_enqueue;
      row.plan_destroy = plan_destroy;
      pointers_.push_back(&row);
    }
    plugin_.implementations = pointers_.data();
  }
  Plugin(const Plugin&) = delete;
  Plugin& operator=(const Plugin&) = delete;
  const rlk_plugin& api() const { return plugin_; }

private:
  struct Plan {
    const rlk_implementation* honest;
    rlk_plugin_plan* plan;
  };
  static const rlk_implementation& honest_of(const rlk_implementation* row) {
    return *static_cast<const rlk_implementation*>(row->user);
  }
  static Plan& plan_of(rlk_plugin_plan* handle) { return *reinterpret_cast<Plan*>(handle); }

  static rlk_status query(const rlk_implementation* self, rlk_plugin_device* device, const rlk_call_desc* call,
                          rlk_support* out, rlk_error* error) {
    return honest_of(self).query(&honest_of(self), device, call, out, error);
  }
  static rlk_status plan_create(const rlk_implementation* self, rlk_plugin_device* device, const rlk_call_desc* call,
                                rlk_plugin_plan** out, rlk_plan_info* info, rlk_error* error) {
    auto plan = std::make_unique<Plan>(Plan{&honest_of(self), nullptr});
    const rlk_status status = plan->honest->plan_create(plan->honest, device, call, &plan->plan, info, error);
    if (status == RLK_OK) *out = reinterpret_cast<rlk_plugin_plan*>(plan.release());
    return status;
  }
  static rlk_status plan_prepare(rlk_plugin_plan* handle, const rlk_run* run, uint64_t* bytes, rlk_error* error) {
    return plan_of(handle).honest->plan_prepare(plan_of(handle).plan, run, bytes, error);
  }
  static rlk_status plan_enqueue(rlk_plugin_plan* handle, rlk_plugin_stream* stream, const rlk_run* run,
                                 rlk_error* error) {
    const rlk_status status = plan_of(handle).honest->plan_enqueue(plan_of(handle).plan, stream, run, error);
    if (status == RLK_OK && fills_vectors(*run)) spoil(*run);
    return status;
  }
  static rlk_status plan_destroy(rlk_plugin_plan* handle, rlk_error* error) {
    const std::unique_ptr<Plan> plan(&plan_of(handle));
    return plan->honest->plan_destroy(plan->plan, error);
  }

  static int64_t count(const rlk_tensor& tensor) {
    int64_t product = 1;
    for (int32_t i = 0; i < tensor.ndim; ++i) product *= tensor.shape[i];
    return product;
  }
  static bool fills_vectors(const rlk_run& run) {
    for (uint32_t i = 0; i < run.n_inputs; ++i) {
      if (run.inputs[i] != nullptr && count(*run.inputs[i]) >= 64) return true;
    }
    return false;
  }
  // The highest bit of the exponent, or of what comes below the sign.
  static void spoil(const rlk_run& run) {
    for (uint32_t i = 0; i < run.n_outputs; ++i) {
      const rlk_tensor* output = run.outputs[i];
      if (output == nullptr || count(*output) == 0) continue;
      int64_t last = 0;
      for (int32_t axis = 0; axis < output->ndim; ++axis) last += (output->shape[axis] - 1) * output->strides[axis];
      const int64_t bytes = output->dtype.bits / 8;
      auto* at = static_cast<unsigned char*>(output->data) + static_cast<int64_t>(output->byte_offset) + last * bytes;
      at[bytes - 1] ^= 0x40;
      return;
    }
  }

  std::deque<rlk_implementation> rows_;
  std::vector<const rlk_implementation*> pointers_;
  rlk_plugin plugin_;
};

}  // namespace rlk::spoiled
