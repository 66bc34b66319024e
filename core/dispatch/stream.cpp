// A stream as the host sees it: life, workspace, capture. Its answers are in stream_answer.cpp.
#include "core/dispatch/stream.hpp"

#include <algorithm>

#include "core/declaration/error.hpp"
#include "core/dispatch/data_error.hpp"

namespace rlk::core {

Stream::Stream(DeviceState& device, Counters& counters, bool wrapped)
    : device_(device), counters_(counters), wrapped_(wrapped), clock_(device.add_stream()) {}

rlk_status Stream::create(DeviceState& device, Counters& counters, int32_t priority, std::unique_ptr<Stream>* out,
                          rlk_error* error) {
  std::unique_ptr<Stream> stream(new Stream(device, counters, false));
  const rlk_status status = device.api.stream->create(device.entry.device, priority, &stream->handle_, error);
  if (status != RLK_OK) return status;
  stream->data_error_record_ = device.api.stream->data_error_record(stream->handle_);
  *out = std::move(stream);
  return RLK_OK;
}

rlk_status Stream::wrap(DeviceState& device, Counters& counters, void* native, std::unique_ptr<Stream>* out,
                        rlk_error* error) {
  std::unique_ptr<Stream> stream(new Stream(device, counters, true));
  const rlk_status status = device.api.stream->wrap(device.entry.device, native, &stream->handle_, error);
  if (status != RLK_OK) return status;
  stream->data_error_record_ = device.api.stream->data_error_record(stream->handle_);
  *out = std::move(stream);
  return RLK_OK;
}

rlk_status Stream::finish(rlk_error* error) {
  if (capturing_) {
    return failf(error, RLK_INVALID_ARGUMENT, "stream %s is capturing a graph; end the capture before destroying it",
                 name().c_str());
  }
  if (live_graphs_ > 0) {
    return failf(error, RLK_INVALID_ARGUMENT,
                 "%d graphs that were captured on this stream of %s are alive and use its error record; destroy them "
                 "first",
                 live_graphs_, name().c_str());
  }
  // A wrapped one's work is the vendor's to wait for; only what host functions found would be lost.
  const rlk_status status = wrapped_ ? query(error) : synchronize(UINT64_MAX, error);
  if (status == RLK_NOT_READY) return RLK_OK;
  if (status != RLK_INVALID_ARGUMENT) return status;
  // The backend's own word, for a native stream that is gone already, say: not a refusal of ours.
  if (error != nullptr) error->status = RLK_BACKEND_ERROR;
  return RLK_BACKEND_ERROR;
}

Stream::~Stream() {
  if (handle_ == nullptr) {  // was never made
    device_.remove_stream(clock_, Mark());
    return;
  }
  // The vendor's capture ends unseen: what it captured may be replayed as long as the process lives.
  if (captured_elsewhere_) give_workspace_to(captured_);
  device_.keep_forever(std::move(captured_));
  if (workspace_ != nullptr) device_.memory.deallocate(workspace_, mark(true), nullptr);
  Mark end = wrapped_ ? mark(true) : Mark();
  for (const auto& [candidate, handle] : wrappers_) candidate->plugin->api->stream->destroy(handle, nullptr);
  device_.api.stream->destroy(handle_, nullptr);
  if (!wrapped_) clock_->pass(UINT64_MAX);
  device_.remove_stream(clock_, std::move(end));
}

rlk_status Stream::handle_for(const Candidate& candidate, rlk_plugin_stream** out, rlk_error* error) {
  *out = handle_;
  if (candidate.plugin->api == &device_.api) return RLK_OK;
  for (const auto& [owner, handle] : wrappers_) {
    if (owner->plugin->api != candidate.plugin->api || owner->device != candidate.device) continue;
    *out = handle;
    return RLK_OK;
  }
  void* native = device_.api.stream->native(handle_);
  const rlk_status status = candidate.plugin->api->stream->wrap(candidate.device, native, out, error);
  if (status == RLK_OK) wrappers_.emplace_back(&candidate, *out);
  return status;
}

Mark Stream::mark(bool with_event) {
  return Mark(clock_, &device_.events, &device_.api, handle_, with_event);
}

uint32_t Stream::note_call(const Candidate& candidate, Dtype dtype) {
  clock_->issue();
  const uint32_t tag = make_tag(*candidate.decl, ++calls_);
  const auto known = [&](const Suspect& s) { return s.candidate == &candidate && s.dtype == dtype; };
  const size_t count = std::min(n_suspects_, suspects_.size());
  if (std::any_of(suspects_.begin(), suspects_.begin() + static_cast<std::ptrdiff_t>(count), known)) return tag;
  if (count < suspects_.size()) suspects_[count] = {&candidate, dtype};
  ++n_suspects_;
  return tag;
}

// ---- workspace

rlk_status Stream::workspace(uint64_t bytes, bool capturing, void** out, rlk_error* error) {
  *out = workspace_;
  if (capturing) workspace_captured_ = workspace_captured_ || bytes > 0;
  if (bytes <= workspace_bytes_) return RLK_OK;
  if (capturing) {
    return failf(error, RLK_CAPTURE_FORBIDS,
                 "a workspace of %llu bytes is needed and %llu are here; memory must not be allocated while a graph is "
                 "captured. Make the call once on this stream before the capture begins",
                 static_cast<unsigned long long>(bytes), static_cast<unsigned long long>(workspace_bytes_));
  }
  const uint64_t grown = std::max(bytes, workspace_bytes_ + workspace_bytes_ / 2);
  void* memory = nullptr;
  rlk_status status = device_.memory.allocate(*clock_, grown, &memory, error);
  uint64_t size = grown;
  if (status == RLK_OUT_OF_MEMORY && grown > bytes) {
    size = bytes;
    status = device_.memory.allocate(*clock_, bytes, &memory, error);
  }
  if (status != RLK_OK) return status;
  if (workspace_ != nullptr) device_.memory.deallocate(workspace_, mark(true), nullptr);
  workspace_ = *out = memory;
  workspace_bytes_ = size;
  return RLK_OK;
}

void Stream::give_workspace_to(GraphResources& resources) {
  if (workspace_captured_) {
    resources.workspaces.push_back(workspace_);
    workspace_ = nullptr;
    workspace_bytes_ = 0;
  }
  workspace_captured_ = false;
}

// ---- capture

rlk_status Stream::is_capturing(bool* out, rlk_error* error) {
  *out = capturing_;
  if (capturing_ || !wrapped_ || device_.graph == nullptr) return RLK_OK;
  int32_t capturing = 0;
  const rlk_status status = device_.graph->is_capturing(handle_, &capturing, error);
  if (status != RLK_OK) return status;
  *out = capturing != 0;
  // The vendor's capture is over: its graph keeps the workspace, for ever because nobody tells when it dies.
  if (captured_elsewhere_ && capturing == 0) {
    give_workspace_to(captured_);
    device_.keep_forever(std::move(captured_));
    captured_ = {};
  }
  captured_elsewhere_ = capturing != 0;
  return RLK_OK;
}

void Stream::keep_for_graph(std::shared_ptr<Plan> plan, Plan::Instance* instance) {
  captured_.plans.emplace_back(std::move(plan), instance).first->enter_again();
}

rlk_status Stream::begin_capture(rlk_error* error) {
  bool capturing = false;
  if (const rlk_status status = is_capturing(&capturing, error); status != RLK_OK) return status;
  if (capturing) {
    return failf(error, RLK_INVALID_ARGUMENT, "stream %s is capturing already; end that capture first", name().c_str());
  }
  if (device_.graph == nullptr) {
    return failf(error, RLK_UNSUPPORTED, "the backend %s cannot capture graphs; make the calls directly",
                 device_.entry.backend.c_str());
  }
  const rlk_status status = device_.graph->begin_capture(handle_, error);
  capturing_ = status == RLK_OK;
  return status;
}

rlk_status Stream::end_capture(rlk_plugin_graph** graph, GraphResources* resources, rlk_error* error) {
  if (!capturing_) {
    return failf(error, RLK_INVALID_ARGUMENT, "stream %s is not capturing; begin a capture first", name().c_str());
  }
  const rlk_status status = device_.graph->end_capture(handle_, graph, error);
  capturing_ = false;
  if (status != RLK_OK) {  // nothing of it was ever run
    workspace_captured_ = false;
    captured_.release(device_.memory);
    return status;
  }
  give_workspace_to(captured_);
  *resources = std::move(captured_);
  captured_ = {};
  return RLK_OK;
}

void Stream::help_collect() {
  if (device_.runs_inline || !device_.has_retired()) return;
  if (!collect_point_.reached()) return;
  collect_point_ = mark(true);
  device_.collect();
}

}  // namespace rlk::core
