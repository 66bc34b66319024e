// An implementation that is another's, and makes its result wrong where a condition on the execution holds: on its
// sizes, its memory, its stream, its thread, or on what the plan has done before.
#pragma once

#include <rlk/abi.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace rlk::core::liars {

inline int64_t elements(const rlk_tensor& tensor) {
  int64_t count = 1;
  for (int32_t i = 0; i < tensor.ndim; ++i) count *= tensor.shape[i];
  return count;
}

inline uint64_t address(const rlk_tensor& tensor) {
  return reinterpret_cast<uint64_t>(tensor.data) + tensor.byte_offset;
}

inline std::byte* element_at(const rlk_tensor& tensor, std::span<const int64_t> index) {
  int64_t at = 0;
  for (size_t i = 0; i < index.size(); ++i) at += index[i] * tensor.strides[i];
  return static_cast<std::byte*>(tensor.data) + tensor.byte_offset + at * (tensor.dtype.bits / 8);
}

// Of every dtype another number that no kernel would round to; 3 as an integer.
inline void spoil(const rlk_tensor& tensor, std::span<const int64_t> index) {
  std::byte* element = element_at(tensor, index);
  element[tensor.dtype.bits / 8 - 1] ^= std::byte{0x40};  // the first bit of the exponent
  element[0] ^= std::byte{3};
}

// What a plan remembers of its executions.
struct PlanMemory {
  std::mutex mutex;
  int64_t calls = 0;
  uint64_t first_output = 0, first_input = 0;  // addresses
  rlk_plugin_stream* first_stream = nullptr;
  std::thread::id first_thread;
  std::atomic<int> inside{0};  // executions that have begun and not ended
};

struct Execution {
  rlk_plugin_stream* stream;
  const rlk_run& run;
  int64_t call;          // of the plan, from 1
  std::byte* workspace;  // kOwnWorkspace bytes behind the honest plan's, where the liar asks for them
};

class Spoiler {
public:
  static constexpr uint64_t kOwnWorkspace = 256;

  // Lives where it was made: the row points to it.
  Spoiler(const rlk_implementation& honest_implementation, std::string liar_kind, std::string liar_name)
      : kind(std::move(liar_kind)),
        name(std::move(liar_name)),
        honest_(&honest_implementation),
        row_(honest_implementation) {
    row_.user = this;
    row_.name = name.c_str();
    row_.query = query;
    row_.plan_create = plan_create;
    row_.plan_prepare = honest_->plan_prepare != nullptr ? plan_prepare : nullptr;
    row_.plan_enqueue = plan_enqueue;
    row_.plan_destroy = plan_destroy;
  }
  Spoiler(const Spoiler&) = delete;
  Spoiler& operator=(const Spoiler&) = delete;
  const rlk_implementation& row() const { return row_; }

  std::string kind;  // of the table
  std::string name;
  std::function<bool(PlanMemory&, const Execution&)> lies;
  // Instead of the last number: what becomes of the first output where the condition holds.
  std::function<void(const rlk_tensor& output)> spoils{};
  bool first_wrong_row_is_64 = false;
  bool has_workspace = false;
  // Before the honest one is asked, or makes a plan.
  std::function<void()> prepares{};

private:
  struct Plan {
    explicit Plan(const Spoiler& owner) : liar(&owner) {}
    const Spoiler* liar;
    rlk_plugin_plan* plan = nullptr;
    PlanMemory memory{};
  };
  static Plan& plan_of(rlk_plugin_plan* handle) { return *reinterpret_cast<Plan*>(handle); }
  static const Spoiler& liar_of(const rlk_implementation* self) { return *static_cast<const Spoiler*>(self->user); }
  uint64_t with_own(uint64_t bytes) const {
    return has_workspace && bytes < UINT64_MAX - kOwnWorkspace ? bytes + kOwnWorkspace : bytes;
  }

  static rlk_status query(const rlk_implementation* self, rlk_plugin_device* device, const rlk_call_desc* call,
                          rlk_support* out, rlk_error* error) {
    const Spoiler& liar = liar_of(self);
    if (liar.prepares) liar.prepares();
    const rlk_status status = liar.honest_->query(liar.honest_, device, call, out, error);
    out->workspace_bound = liar.with_own(out->workspace_bound);
    return status;
  }
  static rlk_status plan_create(const rlk_implementation* self, rlk_plugin_device* device, const rlk_call_desc* call,
                                rlk_plugin_plan** out, rlk_plan_info* info, rlk_error* error) {
    const Spoiler& liar = liar_of(self);
    if (liar.prepares) liar.prepares();
    auto plan = std::make_unique<Plan>(liar);
    const rlk_status status = liar.honest_->plan_create(liar.honest_, device, call, &plan->plan, info, error);
    if (status != RLK_OK) return status;
    info->workspace_bound = liar.with_own(info->workspace_bound);
    *out = reinterpret_cast<rlk_plugin_plan*>(plan.release());
    return RLK_OK;
  }
  static rlk_status plan_prepare(rlk_plugin_plan* handle, const rlk_run* run, uint64_t* bytes, rlk_error* error) {
    const Plan& plan = plan_of(handle);
    const rlk_status status = plan.liar->honest_->plan_prepare(plan.plan, run, bytes, error);
    *bytes = plan.liar->with_own(*bytes);
    return status;
  }
  static rlk_status plan_enqueue(rlk_plugin_plan* handle, rlk_plugin_stream* stream, const rlk_run* run,
                                 rlk_error* error) {
    Plan& plan = plan_of(handle);
    const Spoiler& liar = *plan.liar;
    ++plan.memory.inside;
    rlk_run honest = *run;
    std::byte* own = nullptr;
    if (liar.has_workspace) {
      honest.workspace_bytes -= kOwnWorkspace;
      own = static_cast<std::byte*>(run->workspace) + honest.workspace_bytes;
    }
    // The CPU's work is done when its call returns.
    const rlk_status status = liar.honest_->plan_enqueue(plan.plan, stream, &honest, error);
    const rlk_tensor& output = *run->outputs[0];
    const bool lies = liar.asks(plan.memory, {stream, *run, 0, own});
    if (status == RLK_OK && lies && elements(output) > 0) liar.spoil_output(output);
    --plan.memory.inside;
    return status;
  }
  static rlk_status plan_destroy(rlk_plugin_plan* handle, rlk_error* error) {
    const std::unique_ptr<Plan> plan(&plan_of(handle));
    return plan->liar->honest_->plan_destroy(plan->plan, error);
  }

  static uint64_t input_address(const rlk_run& run) {
    return run.n_inputs > 0 && run.inputs[0] != nullptr ? address(*run.inputs[0]) : 0;
  }

  bool asks(PlanMemory& memory, Execution execution) const {
    {
      const std::lock_guard lock(memory.mutex);
      execution.call = ++memory.calls;
      if (execution.call == 1) {
        memory.first_output = address(*execution.run.outputs[0]);
        memory.first_input = input_address(execution.run);
        memory.first_stream = execution.stream;
        memory.first_thread = std::this_thread::get_id();
      }
    }
    return lies(memory, execution);
  }

  void spoil_output(const rlk_tensor& output) const {
    if (spoils) return spoils(output);
    std::vector<int64_t> index;
    for (int32_t i = 0; i < output.ndim; ++i) index.push_back(output.shape[i] - 1);
    if (first_wrong_row_is_64 && output.ndim > 0 && output.shape[0] > 64) index[0] = 64;
    spoil(output, index);
  }

  const rlk_implementation* honest_;
  rlk_implementation row_;
};

}  // namespace rlk::core::liars
