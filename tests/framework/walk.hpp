// A plugin when the n-th call of its runtime, or the n-th command of its streams, fails, for every n: each entry
// returns a status with the runtime's own words, nothing is used after it is gone (the simulated runtime would abort),
// and afterwards everything works.
#pragma once

#include <rlk/ops/add.h>

#include <cstring>
#include <string>

#include "framework/plugin_fixture.hpp"

extern "C" void fakeResetCalls();
extern "C" uint64_t fakeCallCount(const char* call);

namespace rlk::test {

struct Step {
  rlk_status worst = RLK_OK;
  std::string text;
  bool is_declined = false;  // by the operator, which says why
  bool done = false;         // every step was taken

  bool has(int code) const { return text.find(std::to_string(code)) != std::string::npos; }
  // Of a function that returns NULL and no code, only the text tells what happened.
  bool has_status(rlk_status expected) const {
    return worst == expected || text.find("returned NULL") != std::string::npos;
  }
};

// What a host does with a device, until something fails; what was made is taken down in any case. With an operator, it
// plans, prepares and enqueues `add`, and compares the sum; with graphs, it captures that, or else a copy, and launches
// it.
class Tour {
public:
  struct Kind {
    const rlk_graph_api* graphs = nullptr;
    bool has_operator = false;
  };

  Tour(const rlk_plugin& api, rlk_plugin_instance* instance, Kind kind) : api_(api), kind_(kind), instance_(instance) {
    for (const rlk_implementation* const* row = api.implementations; *row != nullptr; ++row) {
      if (std::strcmp((*row)->op, "add") == 0) add_ = *row;
    }
  }

  Step run() {
    step_.done = tour();
    // What is taken down is not in use.
    if (stream_ != nullptr) api_.stream->synchronize(stream_, UINT64_MAX, nullptr, &error_);
    if (graph_ != nullptr) kind_.graphs->destroy(graph_, &error_);
    if (plan_ != nullptr) add_->plan_destroy(plan_, &error_);
    if (event_ != nullptr) api_.event->destroy(event_, &error_);
    if (pinned_ != nullptr) api_.device->deallocate(device_, RLK_MEMORY_PINNED, pinned_, &error_);
    if (memory_ != nullptr) api_.device->deallocate(device_, RLK_MEMORY_DEVICE, memory_, &error_);
    if (workspace_ != nullptr) api_.device->deallocate(device_, RLK_MEMORY_DEVICE, workspace_, &error_);
    if (stream_ != nullptr) api_.stream->destroy(stream_, &error_);
    if (device_ != nullptr) api_.device_close(device_, &error_);
    return step_;
  }

private:
  static constexpr int64_t kElements = 64;
  static constexpr uint64_t kBytes = kElements * sizeof(float);

  bool good(rlk_status status) {
    if (status == RLK_OK) return true;
    step_.worst = status;
    step_.text = error_.text;
    return false;
  }
  bool tour() {
    rlk_device_properties properties{};
    properties.struct_size = sizeof(properties);
    uint64_t available = 0, total = 0;
    if (!good(api_.device_describe(instance_, 0, &properties, &error_)) ||
        !good(api_.device_open(instance_, 0, &device_, &error_)) ||
        !good(api_.stream->create(device_, 0, &stream_, &error_)) ||
        !good(api_.device->memory_info(device_, &available, &total, &error_)) ||
        !good(api_.device->allocate(device_, RLK_MEMORY_DEVICE, 3 * kBytes, &memory_, &error_)) ||
        !good(api_.device->allocate(device_, RLK_MEMORY_PINNED, kBytes, &pinned_, &error_)) ||
        !good(api_.event->create(device_, RLK_EVENT_TIMING, &event_, &error_)) ||
        !good(api_.stream->fill(stream_, memory_, 0x5a, kBytes, &error_)) || !(kind_.has_operator ? sum() : copy()) ||
        !good(api_.event->record(event_, stream_, &error_)) ||
        !good(api_.event->synchronize(event_, UINT64_MAX, &error_)) ||
        !good(api_.stream->synchronize(stream_, UINT64_MAX, nullptr, &error_))) {
      return false;
    }
    float expected = 0;
    std::memset(&expected, 0x5a, sizeof(expected));
    if (kind_.has_operator) expected += expected;
    for (int64_t i = 0; i < kElements; ++i) EXPECT_EQ(static_cast<float*>(pinned_)[i], expected) << i;
    return true;
  }
  bool copy() {
    return captured(
        [&] { return good(api_.stream->copy(stream_, pinned_, memory_, kBytes, RLK_COPY_DEVICE_TO_HOST, &error_)); });
  }
  template <class Work>
  bool captured(const Work& work) {
    if (kind_.graphs == nullptr) return work();
    if (!good(kind_.graphs->begin_capture(stream_, &error_))) return false;
    const bool worked = work();
    const Step first = step_;  // what failed, and not what came of it
    const bool ended = good(kind_.graphs->end_capture(stream_, &graph_, &error_));
    if (!worked) step_ = first;
    return worked && ended && good(kind_.graphs->launch(graph_, stream_, &error_));
  }
  bool sum() {
    auto* const bytes = static_cast<char*>(memory_);
    if (!good(api_.stream->copy(stream_, bytes + kBytes, memory_, kBytes, RLK_COPY_DEVICE_TO_DEVICE, &error_)) ||
        !add(memory_, bytes + kBytes, bytes + 2 * kBytes)) {
      return false;
    }
    return good(api_.stream->copy(stream_, pinned_, bytes + 2 * kBytes, kBytes, RLK_COPY_DEVICE_TO_HOST, &error_));
  }
  bool add(void* a, void* b, void* out) {
    const int64_t shape[1] = {kElements}, strides[1] = {1};
    const rlk_dtype f32{RLK_DTYPE_FLOAT, 32, 1};
    const rlk_tensor x{sizeof(rlk_tensor), 64, a, 0, shape, strides, 1, f32};
    const rlk_tensor y{sizeof(rlk_tensor), 64, b, 0, shape, strides, 1, f32};
    const rlk_tensor z{sizeof(rlk_tensor), 64, out, 0, shape, strides, 1, f32};
    const rlk_tensor *inputs[] = {&x, &y}, *outputs[] = {&z};
    const void* host_inputs[2] = {};
    const int32_t aliases[] = {-1};
    const rlk_add_params params = RLK_ADD_PARAMS_INIT;
    rlk_call_desc desc{};
    desc.struct_size = sizeof(desc);
    desc.op_revision = 1;
    desc.op = "add";
    desc.params = &params;
    desc.n_inputs = 2;
    desc.n_outputs = 1;
    desc.inputs = inputs;
    desc.outputs = outputs;
    desc.output_alias = aliases;
    rlk_run run{};
    run.struct_size = sizeof(run);
    run.n_inputs = desc.n_inputs;
    run.n_outputs = desc.n_outputs;
    run.inputs = inputs;
    run.outputs = outputs;
    run.host_inputs = host_inputs;
    rlk_plan_info info{};
    info.struct_size = sizeof(info);
    rlk_support support{};
    support.struct_size = sizeof(support);
    if (!good(add_->query(add_, device_, &desc, &support, &error_))) return false;
    if (support.level == RLK_SUPPORT_NO) {
      step_.is_declined = true;
      step_.text = support.reason;
      return false;
    }
    if (!good(add_->plan_create(add_, device_, &desc, &plan_, &info, &error_)) ||
        (add_->plan_prepare != nullptr && !good(add_->plan_prepare(plan_, &run, &run.workspace_bytes, &error_))) ||
        (run.workspace_bytes > 0 &&
         !good(api_.device->allocate(device_, RLK_MEMORY_DEVICE, run.workspace_bytes, &workspace_, &error_)))) {
      return false;
    }
    run.workspace = workspace_;
    run.flags = kind_.graphs != nullptr ? RLK_RUN_CAPTURING : 0;
    return captured([&] { return good(add_->plan_enqueue(plan_, stream_, &run, &error_)); });
  }

  const rlk_plugin& api_;
  const Kind kind_;
  const rlk_implementation* add_ = nullptr;
  rlk_plugin_instance* instance_;
  rlk_error error_ = no_error();
  rlk_plugin_device* device_ = nullptr;
  rlk_plugin_stream* stream_ = nullptr;
  rlk_plugin_event* event_ = nullptr;
  rlk_plugin_graph* graph_ = nullptr;
  rlk_plugin_plan* plan_ = nullptr;
  void *memory_ = nullptr, *pinned_ = nullptr, *workspace_ = nullptr;
  Step step_;
};

// variable: ..._FAIL of the simulated runtime. A call that fails may be one whose failure is no error; every other one
// keeps its code's meaning, but for a device that is not counted, which is absent, an operator that declines a call
// because its kernels could not be had, and a function that returns NULL and no code. after: each tour, and whether it
// was taken to its end.
inline void walk(const rlk_plugin& api, rlk_plugin_instance* instance, Tour::Kind kind, const char* variable, int code,
                 rlk_status expected, void (*after)(uint64_t n, bool done) = nullptr) {
  fakeResetCalls();
  const Step whole = Tour(api, instance, kind).run();
  ASSERT_TRUE(whole.done) << whole.text;
  const uint64_t calls = fakeCallCount("*");
  int failures = 0;
  for (uint64_t n = 1; n <= calls; ++n) {
    fakeResetCalls();
    const std::string list = "*:" + std::to_string(n) + ":" + std::to_string(code);
    const Variable fail(variable, list.c_str());
    const Step step = Tour(api, instance, kind).run();
    if (after != nullptr) after(n, step.done);
    if (step.done) continue;
    ++failures;
    EXPECT_TRUE(step.worst == expected || step.worst == RLK_ABSENT ||
                (step.has(code) && (step.is_declined || step.has_status(expected))))
        << n << ": " << step.worst << " " << step.text;
    EXPECT_FALSE(step.text.empty()) << n;
  }
  EXPECT_GE(failures, 14);
  fakeResetCalls();
  EXPECT_TRUE(Tour(api, instance, kind).run().done);
}

// The same of the commands of streams, which fail after their calls have returned. variable: ..._ASYNC_FAIL.
inline void walk_commands(const rlk_plugin& api, rlk_plugin_instance* instance, Tour::Kind kind, const char* variable,
                          int code, rlk_status expected) {
  uint64_t n = 1;
  for (; n < 100; ++n) {
    fakeResetCalls();
    const std::string list = "*:" + std::to_string(n) + ":" + std::to_string(code);
    const Variable fail(variable, list.c_str());
    const Step step = Tour(api, instance, kind).run();
    if (step.done) break;  // there are fewer commands
    EXPECT_TRUE(step.has_status(expected) && step.has(code)) << n << ": " << step.worst << " " << step.text;
  }
  EXPECT_GE(n, 4u);
  EXPECT_LT(n, 100u);
  fakeResetCalls();
  EXPECT_TRUE(Tour(api, instance, kind).run().done);
}

}  // namespace rlk::test
