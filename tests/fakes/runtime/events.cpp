// Events, captures and graphs.
#include "streams.hpp"

#include <algorithm>

namespace fake {

FAKE_HANDLES(Event, events, 2, "event")
FAKE_HANDLES(Graph, graphs, 3, "graph")
FAKE_HANDLES(Graph, executables, 4, "executable graph")

void Mark::finish(int with) {
  const std::lock_guard lock(mutex);
  done = true;
  code = with;
  time = std::chrono::steady_clock::now();
  changed.notify_all();
}
int Mark::wait(int64_t timeout_ms) {
  std::unique_lock lock(mutex);
  if (timeout_ms < 0) {
    changed.wait(lock, [&] { return done; });
  } else if (!changed.wait_for(lock, std::chrono::milliseconds(timeout_ms), [&] { return done; })) {
    return fail(runtime().event_timeout, "event not done after " + std::to_string(timeout_ms) + " ms");
  }
  return code == 0 ? 0 : fail(code, "the stream had failed when it came to the event");
}

namespace {

// With the event's lock: the end of what it was recorded after. nullptr: it was not, where a vendor lets that pass.
std::shared_ptr<Mark> mark_of(const Event& event, unsigned use, const char* call) {
  if (runtime().events_are_strict && (event.uses & use) != use) {
    violation("EVENT_FLAG", std::string(call) + " on an event that was made for other uses");
  }
  if (runtime().events_are_strict && event.mark == nullptr) {
    violation("EVENT_NOT_RECORDED", std::string(call) + " on an event never recorded");
  }
  return event.mark;
}

}  // namespace

int create_event(void** out, unsigned uses) {
  auto created = std::make_shared<Event>();
  created->device = current_device();
  created->context = current_context();
  created->uses = uses;
  return *out = events().add(created), 0;
}

int destroy_event(void* event, const char* call) {
  events().take(event, call);
  return 0;
}

int record_event(void* handle, void* stream_handle, const char* call) {
  const auto event = events().get(handle, call);
  const auto stream = stream_of(stream_handle, call);
  if (event->device != stream->device) {
    violation("WRONG_DEVICE", std::string(call) + ": an event of device " + std::to_string(event->device) +
                                  " on a stream of device " + std::to_string(stream->device));
  }
  const std::lock_guard lock(event->mutex);
  if ((event->capture = stream->capture) != nullptr) {
    event->covers = stream->covers;
    event->covers[stream.get()] = event->capture->captured[stream.get()];
    return 0;
  }
  event->mark = std::make_shared<Mark>();
  stream->submit({call,
                  [mark = event->mark, stream] { return mark->finish(lost() != 0 ? lost() : stream->error()), 0; },
                  {},
                  true});
  return 0;
}

int wait_for_event(void* stream_handle, void* handle, const char* call) {
  const auto event = events().get(handle, call);
  const auto stream = stream_of(stream_handle, call);
  const std::lock_guard lock(event->mutex);
  if (event->capture != nullptr) {
    if (event->capture->graph == nullptr) return runtime().event_in_capture;  // one that has ended
    for (const auto& [other, work] : event->covers) {
      if (other != stream.get()) stream->covers[other] = std::max(stream->covers[other], work);
    }
    ++event->capture->captured[stream.get()];
    return stream->capture = event->capture, 0;  // joins it
  }
  const auto mark = mark_of(*event, kOrder, call);
  if (mark == nullptr) return 0;
  return enqueue(stream_handle, call, {call, [mark] { return mark->wait(), 0; }, {}});
}

int query_event(void* handle, const char* call) {
  const auto event = events().get(handle, call);
  const std::lock_guard lock(event->mutex);
  if (event->capture != nullptr) return runtime().event_in_capture;
  const auto mark = mark_of(*event, kQuery, call);
  if (mark == nullptr) return 0;
  const std::lock_guard done(mark->mutex);
  return mark->done ? mark->code : runtime().not_ready;
}

int synchronize_event(void* handle, const char* call, int64_t timeout_ms) {
  const auto event = events().get(handle, call);
  std::shared_ptr<Mark> mark;
  {
    const std::lock_guard lock(event->mutex);
    if (event->capture != nullptr) return runtime().event_in_capture;
    mark = mark_of(*event, 0, call);
  }
  return mark == nullptr ? 0 : mark->wait(timeout_ms);
}

int elapsed(void* start, void* end, float* ms, const char* call) {
  const auto from = events().get(start, call), to = events().get(end, call);
  std::chrono::steady_clock::time_point times[2];
  for (int i = 0; i < 2; ++i) {
    Event& event = i == 0 ? *from : *to;
    const std::lock_guard event_lock(event.mutex);
    const auto mark = mark_of(event, kTime, call);
    if ((event.uses & kTime) == 0 || mark == nullptr) return runtime().invalid_handle;
    const std::lock_guard lock(mark->mutex);
    if (!mark->done) return runtime().not_ready;
    times[i] = mark->time;
  }
  return *ms = std::chrono::duration<float, std::milli>(times[1] - times[0]).count(), 0;
}

// --- captures --------------------------------------------------------------------------------------------------------

namespace {

struct Captures {
  std::mutex mutex;
  uint64_t last_id = 0;
  std::vector<std::weak_ptr<Capture>> all;
};
Captures& captures() {
  static auto* const only = new Captures;
  return *only;
}

}  // namespace

namespace {

void* handle_of(Capture& capture) {
  if (capture.handle == nullptr) capture.handle = graphs().add(capture.graph);
  return capture.handle;
}

}  // namespace

int& capture_mode() {
  thread_local int mode = 0;
  return mode;
}

bool is_safe() {
  if (capture_mode() == 2) return true;
  const std::lock_guard lock(captures().mutex);
  bool safe = true;
  for (const auto& weak : captures().all) {
    const auto capture = weak.lock();
    if (capture == nullptr || capture->graph == nullptr || capture->mode == 2) continue;  // graph: until it ends
    if (capture->thread != std::this_thread::get_id() && (capture->mode == 1 || capture_mode() == 1)) continue;
    capture->broken = true;
    safe = false;
  }
  return safe;
}

int begin_capture(void* handle, int mode, const char* call) {
  if (handle == nullptr) return runtime().capture_forbids;
  const auto stream = stream_of(handle, call);
  if (stream->capture != nullptr) return runtime().capture_forbids;
  if (mode < 0 || mode > 2) return runtime().invalid_value;
  const std::lock_guard lock(captures().mutex);
  stream->capture = std::make_shared<Capture>();
  stream->capture->id = ++captures().last_id;
  stream->capture->origin = stream.get();
  stream->capture->mode = mode;
  stream->capture->thread = std::this_thread::get_id();
  captures().all.push_back(stream->capture);
  return 0;
}

int end_capture(void* handle, void** graph, const char* call) {
  const auto stream = stream_of(handle, call);
  const std::shared_ptr<Capture> capture = stream->capture;
  if (capture == nullptr) return runtime().capture_forbids;
  int code = capture->broken ? runtime().capture_broken : 0;
  for (const auto& [member, work] : capture->captured) {
    if (code == 0 && member != capture->origin && stream->covers[member] < work) code = runtime().unjoined;
  }
  for (const auto& other : streams().all()) {
    if (other->capture != capture) continue;
    other->capture = nullptr;
    other->covers.clear();
  }
  *graph = code != 0 ? nullptr : handle_of(*capture);
  if (code != 0 && capture->handle != nullptr) graphs().remove(capture->handle);
  capture->graph = nullptr;  // an event may still know the capture
  return code;
}

int capture_info(void* handle, int* status, uint64_t* id, const char* call, void** graph) {
  const auto stream = stream_of(handle, call);
  *status = stream->capture == nullptr ? 0 : stream->capture->broken ? 2 : 1;
  if (*status == 1 && id != nullptr) *id = stream->capture->id;
  if (*status == 1 && graph != nullptr) *graph = handle_of(*stream->capture);
  return 0;
}

namespace {

template <class Is>
std::string recorded(const Is& is) {
  for (auto* table : {&graphs(), &executables()}) {
    for (const auto& graph : table->all()) {
      for (const Command& command : graph->work) {
        if (is(command)) return command.name;
      }
    }
  }
  return {};
}

}  // namespace

std::string recorded_use(const Range& range) {
  return recorded([&](const Command& command) {
    return std::any_of(command.uses.begin(), command.uses.end(), [&](const Range& use) { return use.overlaps(range); });
  });
}
std::string recorded_with(const void* handle) {
  return recorded([&](const Command& command) { return command.with == handle; });
}

bool is_being_captured(const void* graph) {
  const auto all = streams().all();
  return std::any_of(all.begin(), all.end(), [&](const auto& stream) {
    return stream->capture != nullptr && stream->capture->handle == graph;
  });
}

int instantiate(void* graph, void** out, const char* call) {
  return *out = executables().add(std::make_shared<Graph>(*graphs().get(graph, call))), 0;
}

int launch_graph(void* executable, void* stream, const char* call) {
  const auto graph = executables().get(executable, call);
  for (const Command& command : graph->work) {
    if (const int code = enqueue(stream, call, command)) return code;
  }
  return 0;
}

int destroy_executable(void* executable, const char* call) {
  return executables().take(executable, call), 0;
}
int destroy_graph(void* graph, const char* call) {
  return graphs().take(graph, call), 0;
}

}  // namespace fake
