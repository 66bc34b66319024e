// A stream as the host sees it: life, workspace, capture. Its answers are in stream_answer.cpp.
#include "core/dispatch/device/stream.hpp"

#include <algorithm>
#include <new>
#include <utility>

#include "core/declaration/error.hpp"
#include "core/dispatch/call/data_error.hpp"
#include "core/dispatch/trust/release.hpp"
#include "core/dispatch/trust/trace.hpp"

namespace rlk::core {

Stream::Stream(DeviceState& device, Counters& counters, bool wrapped)
    : device_(device),
      counters_(counters),
      wrapped_(wrapped),
      clock_(std::make_shared<StreamClock>(device.runs_inline)),
      suspects_(std::make_shared<SuspectList>(wrapped)) {
  device.add_stream(clock_, suspects_);  // the last step: a stream that was added is removed by the destructor alone
}

rlk_status Stream::create(DeviceState& device, Counters& counters, int32_t priority, std::unique_ptr<Stream>* out,
                          rlk_error* error) {
  std::unique_ptr<Stream> stream(new Stream(device, counters, false));
  const Trace first = trace({device.api.id, {}, {}, {}, "stream create", &device.api});
  struct Creating : TimedCall {
    rlk_plugin_stream* handle = nullptr;
  };
  const auto creating = std::make_shared<Creating>();
  const auto create = [creating, &api = device.api, handle = device.handle, priority] {
    creating->status =
        call_of(api, "stream create", api.stream->create, handle, priority, &creating->handle, &creating->error);
  };
  rlk_status status = call_with_timeout(kOpenSeconds, device.api, "stream create", creating, create, error);
  if (status == RLK_OK) stream->handle_ = creating->handle;
  status = check_made(status, stream->handle_, "stream create", error);
  if (status == RLK_OK) status = stream->start(error);
  if (status != RLK_OK) return status;
  *out = std::move(stream);
  return RLK_OK;
}

rlk_status Stream::wrap(DeviceState& device, Counters& counters, void* native, std::unique_ptr<Stream>* out,
                        rlk_error* error) {
  std::unique_ptr<Stream> stream(new Stream(device, counters, true));
  const Trace first = trace({device.api.id, {}, {}, {}, "stream wrap", &device.api});
  rlk_status status =
      call_of(device.api, "stream wrap", device.api.stream->wrap, device.handle, native, &stream->handle_, error);
  status = check_made(status, stream->handle_, "stream wrap", error);
  if (status == RLK_OK) status = stream->start(error);
  if (status != RLK_OK) return status;
  *out = std::move(stream);
  return RLK_OK;
}

rlk_status Stream::start(rlk_error* error) {
  clock_->native = call_plugin(device_.api.stream->native, handle_);
  return device_.records.take(&record_, error);
}

rlk_status Stream::finish(rlk_error* error) {
  if (capturing_) {
    return failf(error, RLK_INVALID_ARGUMENT, "stream %s is capturing a graph; end the capture before destroying it",
                 name().c_str());
  }
  // The vendor waits for the work of a wrapped stream; only failures of host functions would be lost.
  rlk_status status = RLK_OK;
  try {
    status = wrapped_ ? query(error) : synchronize(UINT64_MAX, error);
  } catch (const std::bad_alloc&) {
    // The answer cannot be put into words; the work is over all the same.
    status = fail(error, RLK_OUT_OF_MEMORY, "host memory is exhausted: what the stream had to tell is lost");
  }
  if (status == RLK_NOT_READY) return RLK_OK;
  if (status != RLK_INVALID_ARGUMENT) return status;
  // The backend itself answered INVALID_ARGUMENT, for a native stream that is already destroyed for example. The
  // caller's argument was fine.
  if (error != nullptr) error->status = RLK_BACKEND_ERROR;
  return RLK_BACKEND_ERROR;
}

Stream::~Stream() {
  if (handle_ == nullptr) {  // was never made
    device_.remove_stream(clock_, Fence(), nullptr);
    return;
  }
  // An event that is recorded while the stream captures is part of the graph, and cannot be asked.
  bool capturing = false;
  static_cast<void>(is_capturing(&capturing, nullptr));
  leave_capture();
  if (workspace_ != nullptr) device_.memory.deallocate(workspace_, fence(!capturing), nullptr);
  Fence end = wrapped_ ? fence(!capturing) : Fence();
  for (const auto& [candidate, handle] : wrappers_)
    release_by(*candidate->plugin->api, "stream destroy", candidate->plugin->api->stream->destroy, handle);
  release_by(device_.api, "stream destroy", device_.api.stream->destroy, handle_);
  if (!wrapped_) {
    clock_->pass(UINT64_MAX);
    device_.pending.drop(clock_.get());
  }
  device_.remove_stream(clock_, std::move(end), record_);
}

rlk_status Stream::handle_for(const Candidate& candidate, rlk_plugin_stream** out, rlk_error* error) {
  *out = handle_;
  if (candidate.device == device_.entry.device.get()) return RLK_OK;
  for (const auto& [owner, handle] : wrappers_) {
    if (owner->plugin->api != candidate.plugin->api || owner->device != candidate.device) continue;
    *out = handle;
    return RLK_OK;
  }
  wrappers_.reserve(wrappers_.size() + 1);
  void* native = call_plugin(device_.api.stream->native, handle_);
  *out = nullptr;
  rlk_status status = call_of(*candidate.plugin->api, "stream wrap", candidate.plugin->api->stream->wrap,
                              candidate.device->handle(), native, out, error);
  status = check_made(status, *out, "stream wrap", error);
  if (status == RLK_OK) wrappers_.emplace_back(candidate.shared_from_this(), *out);
  return status;
}

Fence Stream::fence(bool with_event) noexcept {
  return Fence(clock_, &device_.events, &device_.api, handle_, with_event);
}

uint32_t Stream::note_call(const Candidate& candidate, Dtype dtype) {
  clock_->issue();
  const uint32_t tag = last_tag_ = make_tag(*candidate.decl, ++calls_);
  // Work on another device cannot have caused a failure of this one.
  if (candidate.on == &device_.entry) {
    suspects_->add(candidate, dtype);
  } else {
    suspects_->add_unknown();
  }
  return tag;
}

uint32_t Stream::note_staged_call(const OpDecl& decl) {
  clock_->issue();
  suspects_->add_unknown();
  return make_tag(decl, ++calls_);
}

// ---- workspace

rlk_status Stream::workspace(uint64_t bytes, bool capturing, void** out, rlk_error* error) {
  if (capturing) return captured_workspace(bytes, out, error);
  *out = workspace_;
  if (bytes <= workspace_bytes_) return RLK_OK;
  const uint64_t grown = std::max(bytes, workspace_bytes_ + workspace_bytes_ / 2);
  void* memory = nullptr;
  rlk_status status = device_.memory.allocate(*clock_, grown, &memory, error);
  uint64_t size = grown;
  if (status == RLK_OUT_OF_MEMORY && grown > bytes) {
    size = bytes;
    status = device_.memory.allocate(*clock_, bytes, &memory, error);
  }
  if (status != RLK_OK) return status;
  if (workspace_ != nullptr) device_.memory.deallocate(workspace_, fence(true), nullptr);
  workspace_ = *out = memory;
  workspace_bytes_ = size;
  uint64_t warm = device_.warm_workspace_bytes.load(std::memory_order_relaxed);
  while (warm < size && !device_.warm_workspace_bytes.compare_exchange_weak(warm, size, std::memory_order_relaxed)) {
  }
  return RLK_OK;
}

// A capture takes over the workspace that the calls before it warmed up, or gets one as large of its own when an
// earlier capture took that, or when they were made on another stream: torch.cuda.graph captures on one of its own. It
// has one workspace for all its calls, hence the largest that there is, whatever its first call needs.
rlk_status Stream::captured_workspace(uint64_t bytes, void** out, rlk_error* error) {
  GraphResources& captured = capture_->resources;
  const uint64_t warm = device_.warm_workspace_bytes.load(std::memory_order_relaxed);
  if (captured.workspace == nullptr && bytes <= std::max(workspace_bytes_, warm)) {
    rlk_status status = RLK_OK;
    if (workspace_bytes_ < warm) {
      status = device_.memory.allocate_in_capture(*clock_, warm, &captured.workspace, error);
      if (status == RLK_OK) captured.workspace_bytes = warm;
    }
    if (captured.workspace == nullptr && bytes <= workspace_bytes_) {
      captured.workspace = std::exchange(workspace_, nullptr);
      captured.workspace_bytes = std::exchange(workspace_bytes_, 0);
    } else if (status != RLK_OK) {
      return status;
    }
  }
  *out = captured.workspace;
  if (captured.workspace != nullptr && bytes <= captured.workspace_bytes) return RLK_OK;
  return failf(error, RLK_CAPTURE_FORBIDS,
               "a workspace of %llu bytes is needed and %llu are here; a workspace does not grow while a graph is "
               "captured. Make the call once before the capture begins",
               static_cast<unsigned long long>(bytes),
               static_cast<unsigned long long>(captured.workspace != nullptr ? captured.workspace_bytes
                                                                             : std::max(workspace_bytes_, warm)));
}

// ---- capture

rlk_status Stream::is_capturing(bool* out, rlk_error* error) {
  *out = capturing_;
  if (capturing_ || !(wrapped_ || may_be_joined_) || !device_.capture_ids) return RLK_OK;
  uint64_t id = 0;
  const rlk_status status = call_plugin(device_.api.stream->capture_id, handle_, &id, error);
  if (device_.capture_ids.learn(status)) return RLK_OK;
  if (status != RLK_OK) return status;
  const uint64_t before = std::exchange(vendor_capture_, id);
  if (before != id) leave_capture();
  *out = id != 0;
  return RLK_OK;
}

rlk_status Stream::prepare_capture(rlk_error* error) {
  if (capture_ == nullptr) {
    if (const rlk_status status = open_capture(error); status != RLK_OK) return status;
  }
  auto& plans = capture_->resources.plans;
  if (plans.size() == plans.capacity()) plans.reserve(2 * plans.size() + 1);
  return RLK_OK;
}

rlk_status Stream::open_capture(rlk_error* error) {
  auto capture = std::make_shared<Capture>();
  capture->id = vendor_capture_;
  // The device learns of the vendor's captures first: it would not release one that it does not know.
  if (!capturing_) device_.add_capture(capture);
  const rlk_status status = device_.records.take(&capture->resources.record, error);
  if (status != RLK_OK) {
    capture->ended = capture->dead = true;  // nothing of it was captured
    return status;
  }
  capture_ = std::move(capture);
  return capturing_ ? RLK_OK : retain(error);
}

// Without a word from the plugin the capture's resources are kept as long as the device's state.
rlk_status Stream::retain(rlk_error* error) {
  if (!device_.capture_retains) return RLK_OK;
  auto user = std::make_unique<std::shared_ptr<Capture>>(capture_);
  const rlk_status status =
      call_plugin(device_.api.stream->capture_retain, handle_, &Capture::tell_dead, user.get(), error);
  if (device_.capture_retains.learn(status)) return RLK_OK;
  if (status == RLK_OK) static_cast<void>(user.release());
  return status;
}

// The vendor's capture is over, or another one has begun.
void Stream::leave_capture() {
  if (capture_ == nullptr) return;
  const bool capturing_now = capturing_ || vendor_capture_ != 0;
  capture_->resources.before = fence(/*with_event=*/!capturing_now);
  capture_->ended.store(true, std::memory_order_release);
  capture_ = nullptr;
}

void Stream::keep_for_graph(std::shared_ptr<CachedPlan> plan, CachedPlan::Instance* instance) noexcept {
  InsidePlan inside = InsidePlan::enter_again(*plan);
  capture_->resources.plans.push_back({{std::move(plan), std::move(inside)}, instance});
}

rlk_status Stream::begin_capture(rlk_error* error) {
  bool capturing = false;
  if (const rlk_status status = is_capturing(&capturing, error); status != RLK_OK) return status;
  if (capturing) {
    return failf(error, RLK_INVALID_ARGUMENT, "stream %s is capturing already; end that capture first", name().c_str());
  }
  if (device_.graph_api == nullptr) {
    return failf(error, RLK_UNSUPPORTED, "the backend %s cannot capture graphs; make the calls directly",
                 device_.entry.backend.c_str());
  }
  const rlk_status status = call_plugin(device_.graph_api->begin_capture, handle_, error);
  capturing_ = status == RLK_OK;
  return status;
}

rlk_status Stream::end_capture(rlk_plugin_graph** graph, GraphResources* resources, rlk_error* error) {
  if (!capturing_) {
    return failf(error, RLK_INVALID_ARGUMENT, "stream %s is not capturing; begin a capture first", name().c_str());
  }
  const rlk_status status = call_plugin(device_.graph_api->end_capture, handle_, graph, error);
  capturing_ = false;
  GraphResources captured;
  if (capture_ != nullptr) captured = std::move(capture_->resources);
  capture_ = nullptr;
  captured.before = fence(/*with_event=*/true);
  if (status != RLK_OK) {  // nothing of it was ever run
    captured.release(device_);
    return status;
  }
  *resources = std::move(captured);
  return RLK_OK;
}

void Stream::note_launch(const std::shared_ptr<GraphRecord>& graph) {
  if (std::find(launched_.begin(), launched_.end(), graph) == launched_.end()) launched_.push_back(graph);
}

void Stream::help_collect() {
  if (device_.runs_inline || !device_.has_something_to_collect()) return;
  if (!collect_point_.reached()) return;
  collect_point_ = fence(true);
  device_.collect();
}

}  // namespace rlk::core
