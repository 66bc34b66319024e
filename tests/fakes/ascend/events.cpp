// How do simulated events, callbacks and host functions run? All are commands of a stream; an event remembers its
// latest recording.
#include <pthread.h>

#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>

#include "handles.h"
#include "runtime.h"

namespace fake_ascend {
namespace {

using Clock = std::chrono::steady_clock;

// One recording of an event: what a wait, a query or an elapsed time refers to.
struct Recording {
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  Clock::time_point time;

  bool wait(int64_t timeout_ms) {
    std::unique_lock lock(mutex);
    if (timeout_ms < 0) {
      changed.wait(lock, [&] { return done; });
      return true;
    }
    return changed.wait_for(lock, std::chrono::milliseconds(timeout_ms), [&] { return done; });
  }
  bool is_done() {
    const std::lock_guard lock(mutex);
    return done;
  }
};

struct Event {
  uint32_t flags;
  std::mutex mutex;
  std::shared_ptr<Recording> last;
  std::shared_ptr<Recording> recording() {
    const std::lock_guard lock(mutex);
    return last;
  }
};

HandleTable<Event>& events() {
  static auto* const table = new HandleTable<Event>(3, "event");
  return *table;
}

// Callbacks waiting for a thread in aclrtProcessReport.
struct Report {
  aclrtCallback fn;
  void* user_data;
  std::shared_ptr<Recording> done;
};

struct Reports {
  std::mutex mutex;
  std::condition_variable changed;
  std::map<const Stream*, uint64_t> subscriber;
  std::map<uint64_t, std::deque<Report>> waiting;
};

Reports& reports() {
  static auto* const instance = new Reports;
  return *instance;
}

void complete(Recording& recording) {
  const std::lock_guard lock(recording.mutex);
  recording.done = true;
  recording.time = Clock::now();
  recording.changed.notify_all();
}

// The event's latest recording after checking handle and flag; null: return `code`.
std::shared_ptr<Recording> recording_of(aclrtEvent handle, uint32_t flag, const char* call, int* code) {
  const auto event = events().get(handle, call);
  *code = ACL_ERROR_RT_INVALID_HANDLE;
  if (event == nullptr) return nullptr;
  if (flag != 0 && (event->flags & flag) == 0) {
    *code = violation("EVENT_FLAG", std::string(call) + " on an event created without flag " + std::to_string(flag));
    return nullptr;
  }
  auto last = event->recording();
  if (last == nullptr) *code = violation("EVENT_NOT_RECORDED", std::string(call) + " on an event never recorded");
  return last;
}

aclError create_event(aclrtEvent* event, uint32_t flags) {
  auto created = std::make_shared<Event>();
  created->flags = flags;
  *event = events().add(created);
  return ACL_SUCCESS;
}

}  // namespace
}  // namespace fake_ascend

using namespace fake_ascend;

aclError aclrtStreamWaitEvent(aclrtStream stream, aclrtEvent event) {
  FAKE_ASCEND_ENTER(kDevice);
  int code = 0;
  const auto target = stream_of(stream, __func__, &code);
  if (target == nullptr) return code;
  const auto recording = recording_of(event, ACL_EVENT_SYNC, __func__, &code);
  if (recording == nullptr) return code;
  submit(*target, {"aclrtStreamWaitEvent",
                   [recording] {
                     recording->wait(-1);
                     return 0;
                   },
                   {}});
  return ACL_SUCCESS;
}

aclError aclrtCreateEvent(aclrtEvent* event) {
  FAKE_ASCEND_ENTER(kDevice);
  return create_event(event, ACL_EVENT_SYNC | ACL_EVENT_CAPTURE_STREAM_PROGRESS | ACL_EVENT_TIME_LINE);
}

aclError aclrtCreateEventWithFlag(aclrtEvent* event, uint32_t flag) {
  FAKE_ASCEND_ENTER(kDevice);
  return create_event(event, flag);
}

aclError aclrtCreateEventExWithFlag(aclrtEvent* event, uint32_t flag) {
  FAKE_ASCEND_ENTER(kDevice);
  return create_event(event, flag);
}

aclError aclrtDestroyEvent(aclrtEvent event) {
  FAKE_ASCEND_ENTER(kDevice);
  if (events().get(event, __func__) == nullptr) return ACL_ERROR_RT_INVALID_HANDLE;
  events().remove(event);
  return ACL_SUCCESS;
}

aclError aclrtRecordEvent(aclrtEvent handle, aclrtStream stream) {
  FAKE_ASCEND_ENTER(kDevice);
  int code = 0;
  const auto target = stream_of(stream, __func__, &code);
  if (target == nullptr) return code;
  const auto event = events().get(handle, __func__);
  if (event == nullptr) return ACL_ERROR_RT_INVALID_HANDLE;
  auto recording = std::make_shared<Recording>();
  {
    const std::lock_guard lock(event->mutex);
    event->last = recording;
  }
  submit(*target, {"aclrtRecordEvent",
                   [recording] {
                     complete(*recording);
                     return 0;
                   },
                   {}});
  return ACL_SUCCESS;
}

aclError aclrtQueryEventStatus(aclrtEvent event, int32_t* status) {
  FAKE_ASCEND_ENTER(kDevice);
  int code = 0;
  const auto recording = recording_of(event, ACL_EVENT_CAPTURE_STREAM_PROGRESS, __func__, &code);
  if (recording == nullptr) return code;
  *status = recording->is_done() ? ACL_EVENT_RECORDED_STATUS_COMPLETE : ACL_EVENT_RECORDED_STATUS_NOT_READY;
  return ACL_SUCCESS;
}

aclError aclrtSynchronizeEvent(aclrtEvent event) {
  FAKE_ASCEND_ENTER(kDevice);
  int code = 0;
  const auto recording = recording_of(event, 0, __func__, &code);
  if (recording == nullptr) return code;
  recording->wait(-1);
  return ACL_SUCCESS;
}

aclError aclrtSynchronizeEventWithTimeout(aclrtEvent event, int32_t timeout_ms) {
  FAKE_ASCEND_ENTER(kDevice);
  int code = 0;
  const auto recording = recording_of(event, 0, __func__, &code);
  if (recording == nullptr) return code;
  if (recording->wait(timeout_ms)) return ACL_SUCCESS;
  return fail(ACL_ERROR_RT_EVENT_SYNC_TIMEOUT, "event not done after " + std::to_string(timeout_ms) + " ms");
}

aclError aclrtEventElapsedTime(float* ms, aclrtEvent start, aclrtEvent end) {
  FAKE_ASCEND_ENTER(kDevice);
  int code = 0;
  const auto first = recording_of(start, ACL_EVENT_TIME_LINE, __func__, &code);
  if (first == nullptr) return code;
  const auto second = recording_of(end, ACL_EVENT_TIME_LINE, __func__, &code);
  if (second == nullptr) return code;
  if (!first->is_done() || !second->is_done()) {
    return fail(ACL_ERROR_RT_PARAM_INVALID, "aclrtEventElapsedTime: an event is not complete");
  }
  *ms = std::chrono::duration<float, std::milli>(second->time - first->time).count();
  return ACL_SUCCESS;
}

aclError aclrtSubscribeReport(uint64_t thread_id, aclrtStream stream) {
  FAKE_ASCEND_ENTER(kDevice);
  int code = 0;
  const auto target = stream_of(stream, __func__, &code);
  if (target == nullptr) return code;
  const std::lock_guard lock(reports().mutex);
  reports().subscriber[target.get()] = thread_id;
  return ACL_SUCCESS;
}

aclError aclrtUnSubscribeReport(uint64_t thread_id, aclrtStream stream) {
  FAKE_ASCEND_ENTER(kDevice);
  int code = 0;
  const auto target = stream_of(stream, __func__, &code);
  if (target == nullptr) return code;
  const std::lock_guard lock(reports().mutex);
  const auto found = reports().subscriber.find(target.get());
  if (found == reports().subscriber.end() || found->second != thread_id) {
    return fail(ACL_ERROR_RT_PARAM_INVALID, "aclrtUnSubscribeReport: not subscribed");
  }
  reports().subscriber.erase(found);
  return ACL_SUCCESS;
}

aclError aclrtLaunchCallback(aclrtCallback fn, void* user_data, int32_t block_type, aclrtStream stream) {
  FAKE_ASCEND_ENTER(kDevice);
  int code = 0;
  const auto target = stream_of(stream, __func__, &code);
  if (target == nullptr) return code;
  uint64_t thread_id = 0;
  {
    const std::lock_guard lock(reports().mutex);
    const auto found = reports().subscriber.find(target.get());
    if (found == reports().subscriber.end()) {
      return violation("NOT_SUBSCRIBED", "aclrtLaunchCallback on a stream without aclrtSubscribeReport");
    }
    thread_id = found->second;
  }
  submit(*target, {"aclrtLaunchCallback",
                   [=] {
                     const auto done = std::make_shared<Recording>();
                     {
                       const std::lock_guard lock(reports().mutex);
                       reports().waiting[thread_id].push_back({fn, user_data, done});
                       reports().changed.notify_all();
                     }
                     if (block_type == ACL_CALLBACK_BLOCK) done->wait(-1);
                     return 0;
                   },
                   {}});
  return ACL_SUCCESS;
}

aclError aclrtProcessReport(int32_t timeout_ms) {
  FAKE_ASCEND_ENTER(kInit);
  const auto self = static_cast<uint64_t>(pthread_self());
  Report report{};
  {
    std::unique_lock lock(reports().mutex);
    auto& waiting = reports().waiting[self];
    const auto ready = [&] { return !waiting.empty(); };
    if (timeout_ms < 0)
      reports().changed.wait(lock, ready);
    else if (!reports().changed.wait_for(lock, std::chrono::milliseconds(timeout_ms), ready)) {
      return fail(ACL_ERROR_RT_REPORT_TIMEOUT, "aclrtProcessReport: no callback in time");
    }
    report = waiting.front();
    waiting.pop_front();
  }
  report.fn(report.user_data);
  complete(*report.done);
  return ACL_SUCCESS;
}

namespace {

aclError launch_host_func(aclrtStream stream, void (*fn)(void*), void* user_data) {
  if (const int code = enter("aclrtLaunchHostFunc", Needs::kDevice)) return code;
  int code = 0;
  const auto target = stream_of(stream, "aclrtLaunchHostFunc", &code);
  if (target == nullptr) return code;
  submit(*target, {"aclrtLaunchHostFunc",
                   [=] {
                     fn(user_data);
                     return 0;
                   },
                   {}});
  return ACL_SUCCESS;
}

}  // namespace

// An indirect function: dlsym runs the resolver and returns null for runtimes before 9.x, where the symbol is absent.
extern "C" {
aclrtLaunchHostFuncType resolve_launch_host_func() {
  const char* version = std::getenv("RLK_FAKE_ASCEND_VERSION");
  return version != nullptr && version[0] == '9' ? launch_host_func : nullptr;
}
FAKE_ASCEND_API aclError aclrtLaunchHostFunc(aclrtStream stream, void (*fn)(void*), void* user_data)
    __attribute__((ifunc("resolve_launch_host_func")));
}
