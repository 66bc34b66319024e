// A planned call's way: the memory that it is given, its launch, its result.
#include "core/conformance/harness.hpp"

#include <fmt/core.h>
#include <rlk/abi/ext/draft/graph.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "core/conformance/device_call.hpp"
#include "core/conformance/plugin_status.hpp"
#include "core/declaration/error.hpp"
#include "core/declaration/plugin_call.hpp"
#include "core/declaration/text.hpp"

namespace rlk::core::conformance {
namespace {

constexpr uint64_t kDeadlineNs = 30'000'000'000u;
constexpr uint64_t kLargestBound = uint64_t{1} << 28;  // bytes; a larger bound of a plan is not allocated blindly
constexpr uint64_t kLargestWorkspace = uint64_t{1} << 30;
constexpr uint64_t kUsualShift = uint64_t{64} * 256;  // bytes that a call may move without moving the memory
constexpr uint64_t kRoom = 4096;                      // bytes, for the red zones of the workspace
constexpr std::chrono::microseconds kLater(500);      // for what is written too late to show
constexpr std::chrono::milliseconds kMuchLater(200);  // for what is written too late, once that is suspected

}  // namespace

void Harness::release_memory() {
  if (device_memory_ != nullptr) release(RLK_MEMORY_DEVICE, device_memory_);
  if (pinned_memory_ != nullptr) release(RLK_MEMORY_PINNED, pinned_memory_);
  device_memory_ = pinned_memory_ = nullptr;
  capacity_ = 0;
}

std::optional<Failure> Harness::reserve(uint64_t bytes) {
  if (bytes <= capacity_) return std::nullopt;
  release_memory();
  const rlk_device_api& device = *target_.owner->device;
  const uint64_t capacity = bytes + bytes / 2;
  rlk_error error = no_error();
  rlk_status status =
      call_plugin(device.allocate, target_.owner_device, RLK_MEMORY_DEVICE, capacity, &device_memory_, &error);
  if (status != RLK_OK) return failed(status, "NO_MEMORY", "allocating device memory", error);
  status = call_plugin(device.allocate, target_.owner_device, RLK_MEMORY_PINNED, 2 * capacity, &pinned_memory_, &error);
  if (status != RLK_OK) return failed(status, "NO_MEMORY", "allocating pinned memory", error);
  if (reinterpret_cast<uintptr_t>(device_memory_) % 256 != 0) {
    return Failure{"NO_MEMORY", "the device's memory is not aligned to 256 bytes"};
  }
  capacity_ = capacity;
  return std::nullopt;
}

// A number that no memory can hold is a mistake, not a request; UINT64_MAX says that only prepare can tell.
std::optional<Failure> Harness::workspace_fits(uint64_t bytes, const ConcreteCall& call, const char* whose) const {
  uint64_t tensors = 0;
  for (const Argument& input : call.inputs) tensors += static_cast<uint64_t>(input.present ? input.byte_count() : 0);
  for (const Argument& output : call.outputs)
    tensors += static_cast<uint64_t>(output.present ? output.byte_count() : 0);
  if (bytes == UINT64_MAX || bytes <= std::min(memory_bytes_, std::max(kLargestWorkspace, 4 * tensors))) {
    return std::nullopt;
  }
  return Failure{
      "WORKSPACE_BOUND",
      fmt::format("{} names {} bytes of workspace for a call whose tensors have {} bytes, on a device of {}: "
                  "more than can be given",
                  whose, bytes, tensors, memory_bytes_)};
}

// The workspace that this execution is given.
std::optional<Failure> Harness::prepare(const OwnedPlan& plan, const ConcreteCall& call, const RunSettings& settings,
                                        const rlk_run& run, uint64_t& bytes) const {
  const rlk_plan_info& info = plan.info();
  const bool bound_is_known = info.workspace_bound != UINT64_MAX;
  const bool demanded = (info.flags & RLK_PLAN_PREPARE) != 0 || !bound_is_known || info.workspace_bound > kLargestBound;
  bytes = info.workspace_bound;
  if (plan.implementation_->plan_prepare == nullptr) {
    if (demanded) return Failure{"CONTRADICTION", "the plan needs prepare for its workspace, but has no such slot"};
    return std::nullopt;
  }
  if (!settings.prepare && !demanded) return std::nullopt;
  rlk_error error = no_error();
  const rlk_status status = call_plugin(plan.implementation_->plan_prepare, plan.plan_, &run, &bytes, &error);
  if (status != RLK_OK) {
    return Failure{code_of(status, "PREPARE_FAILED"),
                   fmt::format("plan_prepare answered {}: {}", name_of_status(status), text_of(error.text))};
  }
  const auto exceeds = [&](uint64_t bound, const char* whose) {
    return Failure{"WORKSPACE_BOUND", fmt::format("plan_prepare asks for {} bytes of workspace, {} promised at most {}",
                                                  bytes, whose, bound)};
  };
  if (bytes > info.workspace_bound) return exceeds(info.workspace_bound, "the plan");
  if (settings.is_planned && bytes > plan.workspace_limit_) return exceeds(plan.workspace_limit_, "query");
  if (bytes == UINT64_MAX) {
    return Failure{"WORKSPACE_BOUND", "plan_prepare asks for UINT64_MAX bytes of workspace; it must name the bytes"};
  }
  return workspace_fits(bytes, call, "plan_prepare");
}

Outcome Harness::run(const OwnedPlan& plan, const ConcreteCall& call, const RunSettings& settings) {
  return land(launch(plan, call, settings));
}

DeviceCallPointer Harness::launch(const OwnedPlan& plan, const ConcreteCall& call, const RunSettings& settings) {
  DeviceCallPointer device_call(new DeviceCall(call, settings));
  Outcome& outcome = device_call->outcome;
  outcome.tag = next_tag_++;
  uint64_t workspace = 0;
  // The harness enqueues what it has prepared, addresses included: when the memory must grow, it asks prepare again.
  const uint64_t needed = device_call->image.size() + std::max(settings.shift, kUsualShift);
  for (uint64_t reserved = needed;; reserved = needed + workspace + kRoom) {
    if ((outcome.failure = reserve(reserved))) return device_call;
    device_call->place(memory() + settings.shift, plan.info());
    device_call->run.tag = outcome.tag;
    device_call->run.data_error_record = record_;
    device_call->run.flags = settings.capture ? RLK_RUN_CAPTURING : 0;
    if ((outcome.failure = prepare(plan, call, settings, device_call->run, workspace))) return device_call;
    if (needed + workspace + kRoom <= capacity_ || (workspace == 0 && needed <= capacity_)) break;
  }
  device_call->image.add_workspace(workspace);
  fill_workspace(settings.workspace, outcome.tag, device_call->image.workspace());
  outcome.workspace_bytes = workspace;
  device_call->run.workspace_bytes = workspace;
  if (workspace > 0) device_call->run.workspace = memory() + settings.shift + device_call->image.workspace_at();
  plan.give_persistent(device_call->run);
  if (settings.capture && (device_call->run.flags & RLK_RUN_NEW_PERSISTENT) != 0) {
    // The first execution fills the persistent memory; a captured one might never run.
    device_call->run.flags &= ~RLK_RUN_CAPTURING;
    Outcome ignored;
    outcome.failure = execute(plan, *device_call);
    if (auto waited = wait(false, ignored); waited && !outcome.failure) outcome.failure = waited;
    if (outcome.failure) return device_call;
    device_call->run.flags = RLK_RUN_CAPTURING;
  }
  outcome.failure = settings.capture ? replay(plan, *device_call) : execute(plan, *device_call);
  return device_call;
}

Outcome Harness::land(DeviceCallPointer device_call) {
  Outcome& outcome = device_call->outcome;
  // Whatever went wrong, nothing may be in flight when the memory is used again.
  std::optional<Failure> waited = wait(device_call->settings.poll, outcome);
  if (!outcome.failure) outcome.failure = waited;
  if (outcome.failure) return std::move(outcome);
  outcome.failure = device_call->image.collect(device_call->call, fetched(), outcome.outputs);
  return std::move(outcome);
}

Outcome Harness::land_inline(DeviceCallPointer device_call) {
  Outcome& outcome = device_call->outcome;
  if (outcome.failure) return land(std::move(device_call));
  outcome.failure = device_call->image.collect(device_call->call, fetched(), outcome.outputs);
  // Memory that is the host's again keeps what the host writes there.
  const uint64_t bytes = device_call->image.size();
  std::memset(sent(), 0x3c, bytes);
  std::optional<Failure> after = copy(memory() + device_call->settings.shift, sent(), bytes, RLK_COPY_HOST_TO_DEVICE);
  std::this_thread::sleep_for(kLater);
  if (!after) after = copy(fetched(), memory() + device_call->settings.shift, bytes, RLK_COPY_DEVICE_TO_HOST);
  if (std::optional<Failure> waited = wait(false, outcome); waited && !after) after = waited;
  if (!after && std::memcmp(sent(), fetched(), bytes) != 0) {
    after = Failure{"NOT_INLINE", "memory was written to after plan_enqueue had returned"};
  }
  if (!outcome.failure) outcome.failure = after;
  return std::move(outcome);
}

Outcome Harness::look_again(const ConcreteCall& call, const RunSettings& settings) {
  DeviceCallPointer device_call(new DeviceCall(call, settings));
  std::this_thread::sleep_for(kMuchLater);
  if (broken_ || device_call->image.size() + settings.shift > capacity_) {
    device_call->outcome.failure = Failure{"ENGINE", "there is nothing to look at"};
    return std::move(device_call->outcome);
  }
  device_call->outcome.failure = fetch(*device_call);
  return land(std::move(device_call));
}

std::optional<Failure> Harness::copy(void* to, const void* from, uint64_t bytes, int32_t kind) {
  rlk_error error = no_error();
  const rlk_status status = call_plugin(target_.owner->stream->copy, stream_, to, from, bytes, kind, &error);
  if (status != RLK_OK) return failed(status, "COPY_FAILED", "copying", error);
  return std::nullopt;
}

std::optional<Failure> Harness::send(const DeviceCall& device_call) {
  const Image& image = device_call.image;
  std::byte* to = memory() + device_call.settings.shift;
  std::memcpy(sent(), image.bytes(), image.size());
  if (device_call.settings.workspace != WorkspaceContent::kept || image.workspace_bytes() == 0) {
    return copy(to, sent(), image.size(), RLK_COPY_HOST_TO_DEVICE);
  }
  const uint64_t behind = image.workspace_at() + image.workspace_bytes();
  if (auto failure = copy(to, sent(), image.workspace_at(), RLK_COPY_HOST_TO_DEVICE)) return failure;
  return copy(to + behind, sent() + behind, image.size() - behind, RLK_COPY_HOST_TO_DEVICE);
}

std::optional<Failure> Harness::fetch(const DeviceCall& device_call) {
  return copy(fetched(), memory() + device_call.settings.shift, device_call.image.size(), RLK_COPY_DEVICE_TO_HOST);
}

std::optional<Failure> Harness::enqueue(const OwnedPlan& plan, const rlk_run& run) {
  rlk_error error = no_error();
  const rlk_status status = call_plugin(plan.implementation_->plan_enqueue, plan.plan_, op_stream_, &run, &error);
  if (status != RLK_OK) return failed(status, "ENQUEUE_FAILED", "plan_enqueue", error);
  return std::nullopt;
}

std::optional<Failure> Harness::execute(const OwnedPlan& plan, DeviceCall& device_call) {
  if (auto failure = send(device_call)) return failure;
  if (auto failure = enqueue(plan, device_call.run)) return failure;
  return fetch(device_call);
}

// Captured once, launched twice, the memory made anew before each launch.
std::optional<Failure> Harness::replay(const OwnedPlan& plan, DeviceCall& device_call) {
  rlk_error error = no_error();
  rlk_status status = call_plugin(graph_->begin_capture, stream_, &error);
  if (status != RLK_OK) return failed(status, "GRAPH_REPLAY", "begin_capture", error);
  const rlk_status enqueued =
      call_plugin(plan.implementation_->plan_enqueue, plan.plan_, op_stream_, &device_call.run, &error);
  rlk_error end_error = no_error();
  rlk_plugin_graph* graph = nullptr;
  status = call_plugin(graph_->end_capture, stream_, &graph, &end_error);
  std::optional<Failure> failure;
  if (enqueued != RLK_OK) {
    failure =
        failed(enqueued, "GRAPH_REPLAY", "plan_enqueue during capture, of a plan that says it is capturable,", error);
  } else if (status != RLK_OK) {
    failure = failed(status, "GRAPH_REPLAY", "end_capture", end_error);
  }
  if (!failure && (plan.info().flags & RLK_PLAN_CAPTURED_APART) != 0) {
    // What was captured needs nothing that another execution, elsewhere, changes.
    RunSettings beside = device_call.settings;
    beside.capture = false;
    beside.shift = beside.shift == kUsualShift ? 0 : kUsualShift;
    failure = run(plan, device_call.call, beside).failure;
  }
  for (int launch = 0; launch < 2 && !failure; ++launch) {
    if ((failure = send(device_call))) break;
    status = call_plugin(graph_->launch, graph, stream_, &error);
    if (status != RLK_OK) failure = failed(status, "GRAPH_REPLAY", "launch", error);
    if (!failure) failure = fetch(device_call);
  }
  // What the launches tell is judged with the call's values.
  if (auto waited = wait(false, device_call.outcome); waited && !failure) failure = waited;
  if (graph != nullptr) releases_->call("graph destroy", graph_->destroy, graph);
  return failure;
}

// Waits, and asks again after a data error, which the stream must report only once.
std::optional<Failure> Harness::wait(bool poll, Outcome& outcome) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::nanoseconds(kDeadlineNs);
  for (int asked = 0; asked < 4;) {
    rlk_error error = no_error();
    rlk_data_error told{};
    told.struct_size = sizeof(told);
    const rlk_stream_api& streams = *target_.owner->stream;
    const rlk_status status = poll ? call_plugin(streams.query, stream_, &told, &error)
                                   : call_plugin(streams.synchronize, stream_, kDeadlineNs, &told, &error);
    if (status == RLK_NOT_READY) {
      if (std::chrono::steady_clock::now() > deadline) {
        return failed(RLK_TIMEOUT, "TIMEOUT", "waiting by query", error);
      }
      std::this_thread::yield();
      continue;
    }
    if (status == RLK_OK) {
      if (record_ == nullptr || record_->state == 0) return std::nullopt;
      outcome.told.push_back({record_->kind, record_->row, record_->value});
      outcome.tags.push_back(record_->tag);
      *record_ = {};
      ++asked;
      continue;
    }
    if (status != RLK_DATA_ERROR) return failed(status, "ASYNC_FAILURE", "the stream", error);
    outcome.told.push_back({told.kind, told.row, told.value});
    outcome.tags.push_back(told.tag);
    ++asked;
  }
  return std::nullopt;
}

}  // namespace rlk::core::conformance
