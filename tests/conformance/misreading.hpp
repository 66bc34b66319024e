// Plugins that read an input otherwise than it is: the CPU's implementation over a changed input, which is as it was
// when the call is done.
#pragma once

#include <cstring>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "conformance/liars.hpp"
#include "core/declaration/validate.hpp"

namespace rlk::core::liars {

// One element of an integer tensor.
struct Element {
  int64_t index;  // row-major
  char* at;
  int64_t bytes;

  int64_t get() const {
    if (bytes == 8) return *reinterpret_cast<const int64_t*>(at);
    if (bytes == 4) return *reinterpret_cast<const int32_t*>(at);
    return *reinterpret_cast<const uint8_t*>(at);
  }
};

inline std::vector<Element> elements_of(const rlk_tensor* tensor) {
  std::vector<Element> list;
  if (tensor == nullptr || tensor->data == nullptr) return list;
  const int64_t bytes = tensor->dtype.bits / 8;
  int64_t count = 1;
  for (int32_t axis = 0; axis < tensor->ndim; ++axis) count *= tensor->shape[axis];
  for (int64_t i = 0; i < count; ++i) {
    int64_t rest = i, offset = 0;
    for (int32_t axis = tensor->ndim; axis-- > 0; rest /= tensor->shape[axis])
      offset += rest % tensor->shape[axis] * tensor->strides[axis];
    list.push_back({i, static_cast<char*>(tensor->data) + tensor->byte_offset + offset * bytes, bytes});
  }
  return list;
}

// What was changed for the time of a call.
class Edits {
public:
  Edits() = default;
  ~Edits() {
    for (size_t i = kept_.size(); i-- > 0;) std::memcpy(kept_[i].first.at, &kept_[i].second, bytes_of(kept_[i].first));
  }
  Edits(const Edits&) = delete;
  Edits& operator=(const Edits&) = delete;

  void set(const Element& element, int64_t value) {
    int64_t before = 0;
    std::memcpy(&before, element.at, bytes_of(element));
    kept_.emplace_back(element, before);
    std::memcpy(element.at, &value, bytes_of(element));
  }

private:
  static size_t bytes_of(const Element& element) { return static_cast<size_t>(element.bytes); }
  std::vector<std::pair<Element, int64_t>> kept_;
};

struct Misreading {
  const OpDecl* decl = nullptr;
  const rlk_implementation* honest = nullptr;
  std::string name{};
  // What it takes the inputs for. The symbols are those of the call, the parameters those of its plan.
  std::function<void(const Misreading&, const Values&, const rlk_run&, Edits&)> misread{};
  std::vector<std::string> occasions{};  // words of the cases in which it may lie
  rlk_implementation row{};
};

namespace misreading {

struct Plan {
  const Misreading* liar;
  std::vector<std::byte> params;
  rlk_plugin_plan* plan;
};
inline Plan& plan_of(rlk_plugin_plan* handle) {
  return *reinterpret_cast<Plan*>(handle);
}
inline const Misreading& liar_of(const rlk_implementation* row) {
  return *static_cast<const Misreading*>(row->user);
}

inline rlk_status query(const rlk_implementation* self, rlk_plugin_device* device, const rlk_call_desc* call,
                        rlk_support* out, rlk_error* error) {
  return liar_of(self).honest->query(liar_of(self).honest, device, call, out, error);
}
inline rlk_status plan_create(const rlk_implementation* self, rlk_plugin_device* device, const rlk_call_desc* call,
                              rlk_plugin_plan** out, rlk_plan_info* info, rlk_error* error) {
  const Misreading& liar = liar_of(self);
  const auto* params = static_cast<const std::byte*>(call->params);
  auto plan = std::make_unique<Plan>(Plan{&liar, {params, params + liar.decl->params_size}, nullptr});
  const rlk_status status = liar.honest->plan_create(liar.honest, device, call, &plan->plan, info, error);
  if (status == RLK_OK) *out = reinterpret_cast<rlk_plugin_plan*>(plan.release());
  return status;
}
inline rlk_status plan_prepare(rlk_plugin_plan* handle, const rlk_run* run, uint64_t* bytes, rlk_error* error) {
  return plan_of(handle).liar->honest->plan_prepare(plan_of(handle).plan, run, bytes, error);
}
inline rlk_status plan_enqueue(rlk_plugin_plan* handle, rlk_plugin_stream* stream, const rlk_run* run,
                               rlk_error* error) {
  const Plan& plan = plan_of(handle);
  Edits edits;
  plan.liar->misread(*plan.liar, {run->symbols, plan.params.data(), 0}, *run, edits);
  return plan.liar->honest->plan_enqueue(plan.plan, stream, run, error);  // of the CPU, which has computed on return
}
inline rlk_status plan_destroy(rlk_plugin_plan* handle, rlk_error* error) {
  const std::unique_ptr<Plan> plan(&plan_of(handle));
  return plan->liar->honest->plan_destroy(plan->plan, error);
}

}  // namespace misreading

// Makes it a row of a plugin; it stays where it is.
inline void complete(Misreading& liar) {
  liar.row = *liar.honest;
  liar.row.user = &liar;
  liar.row.name = liar.name.c_str();
  liar.row.query = misreading::query;
  liar.row.plan_create = misreading::plan_create;
  liar.row.plan_prepare = liar.honest->plan_prepare != nullptr ? misreading::plan_prepare : nullptr;
  liar.row.plan_enqueue = misreading::plan_enqueue;
  liar.row.plan_destroy = misreading::plan_destroy;
}

// Every value of every mask but 1 is taken for 0.
inline void count_ones_alone(const Misreading& liar, const Values&, const rlk_run& run, Edits& edits) {
  for (uint32_t i = 0; i < run.n_inputs; ++i) {
    if (liar.decl->inputs[i].domain.kind != Domain::mask) continue;
    for (const Element& element : elements_of(run.inputs[i])) {
      if (element.get() != 1) edits.set(element, 0);
    }
  }
}

// The rows of a plugin that has these alone.
inline rlk_plugin plugin_of(const std::vector<const rlk_implementation*>& rows) {
  rlk_plugin plugin = cpu_plugin();
  plugin.implementations = rows.data();
  plugin.n_implementations = static_cast<uint32_t>(rows.size());
  return plugin;
}

}  // namespace rlk::core::liars
