// Simulated task topologies: the framework's graphs, with CNRT's answers to what it forbids (cnrt.h and the programming
// guide).
#include <map>
#include <utility>

#include "tests/fakes/runtime/bridge.hpp"

using namespace fake;

#define API FAKE_EXPORT int

namespace {

constexpr int kArgsInvalid = 100006, kIllegalState = 100015, kWrongThread = 100362, kUnmatched = 100366;
constexpr int kGlobal = 0, kRelaxed = 2;  // the mode between them is "not supported yet"

// The end of the last invocation of each entity: the next waits for it, on whichever queue it is.
struct Invocations {
  std::mutex mutex;
  std::map<void*, std::shared_ptr<Mark>> last;
};
Invocations& invocations() {
  static auto* const only = new Invocations;
  return *only;
}

void require_whole(void* topology, const char* call) {
  graphs().get(topology, call);
  if (is_being_captured(topology)) violation("CAPTURING", std::string(call) + ": the topology is being captured");
}

// What is destroyed is gone also when the call was made to fail: no caller can destroy it any more, and the memory that
// it used is to be freed all the same.
template <class Destroy>
int destroy(Handles<Graph>& table, void* handle, const char* call, const Destroy& destroy) {
  if (const int code = enter(call, Needs::kDevice)) return table.remove(handle), code;
  return destroy();
}

}  // namespace

#if !defined(RLK_FAKE_CNRT_6_0)
API cnrtThreadExchangeQueueCaptureMode(int* mode) {
  FAKE_ENTER("cnrtThreadExchangeQueueCaptureMode", kNothing);
  if (mode == nullptr || (*mode != kGlobal && *mode != kRelaxed)) return kArgsInvalid;
  return std::swap(*mode, capture_mode()), 0;
}
#endif

API cnrtQueueBeginCapture(void* queue, int mode) {
  FAKE_ENTER("cnrtQueueBeginCapture", kDevice);
  if (queue == nullptr || (mode != kGlobal && mode != kRelaxed)) return kArgsInvalid;
  if (stream_of(queue, "cnrtQueueBeginCapture")->capture != nullptr) return kIllegalState;
  return begin_capture(queue, mode, "cnrtQueueBeginCapture");
}
API cnrtQueueEndCapture(void* queue, void** topology) {
  FAKE_ENTER("cnrtQueueEndCapture", kDevice);
  if (queue == nullptr || topology == nullptr) return kArgsInvalid;
  const auto own = stream_of(queue, "cnrtQueueEndCapture");
  const auto capture = own->capture;
  if (capture == nullptr) return kIllegalState;
  if (capture->origin != own.get()) return kUnmatched;
  const bool wrong_thread = capture->thread != std::this_thread::get_id() && capture->mode != kRelaxed;
  if (wrong_thread) capture->broken = true;
  const int code = end_capture(queue, topology, "cnrtQueueEndCapture");
  return wrong_thread ? kWrongThread : code;
}
API cnrtQueueGetCaptureInfo(void* queue, int* status, uint64_t* number, void** topology, void* const** dependencies,
                            size_t* n_dependencies) {
  FAKE_ENTER("cnrtQueueGetCaptureInfo", kDevice);
  if (queue == nullptr || status == nullptr || dependencies != nullptr || n_dependencies != nullptr)
    return kArgsInvalid;  // nodes are not simulated
  return capture_info(queue, status, number, "cnrtQueueGetCaptureInfo", topology);
}

API cnrtTaskTopoInstantiate(void** entity, void* topology, void** error_node, char* log, size_t log_bytes) {
  FAKE_ENTER_SAFE("cnrtTaskTopoInstantiate");
  if (entity == nullptr || error_node != nullptr || (log == nullptr) != (log_bytes == 0)) return kArgsInvalid;
  require_whole(topology, "cnrtTaskTopoInstantiate");
  return instantiate(topology, entity, "cnrtTaskTopoInstantiate");
}
API cnrtTaskTopoDestroy(void* topology) {
  return destroy(graphs(), topology, "cnrtTaskTopoDestroy", [&] {
    require_whole(topology, "cnrtTaskTopoDestroy");
    return destroy_graph(topology, "cnrtTaskTopoDestroy");
  });
}
API cnrtTaskTopoEntityInvoke(void* entity, void* queue) {
  constexpr const char* kName = "cnrtTaskTopoEntityInvoke";
  FAKE_ENTER(kName, kDevice);
  const auto graph = executables().get(entity, kName);
  const auto own = stream_of(queue, kName);
  if (own->capture != nullptr) return own->capture->broken = true, runtime().capture_forbids;
  const std::lock_guard lock(invocations().mutex);
  std::shared_ptr<Mark>& last = invocations().last[entity];
  if (last != nullptr) own->submit({kName, [before = last] { return before->wait(), 0; }, {}, true});
  for (const Command& command : graph->work) own->submit(command);
  last = std::make_shared<Mark>();
  own->submit({kName, [end = last] { return end->finish(0), 0; }, {}, true});
  return 0;
}
// One that runs comes to its end.
API cnrtTaskTopoEntityDestroy(void* entity) {
  return destroy(executables(), entity, "cnrtTaskTopoEntityDestroy", [&] {
    const std::lock_guard lock(invocations().mutex);
    invocations().last.erase(entity);
    return destroy_executable(entity, "cnrtTaskTopoEntityDestroy");
  });
}
