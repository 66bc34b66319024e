// Simulated AscendCL's events and host functions, which are the framework's, and its callbacks, which no other vendor
// has: a stream hands them to a thread that the program has subscribed, and that waits in aclrtProcessReport.
#include <pthread.h>

#include "state.h"

using namespace fake;

namespace {

struct Report {
  aclrtCallback fn;
  void* user_data;
  std::shared_ptr<Mark> done;
};

struct Reports {
  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::shared_ptr<Stream>, uint64_t> subscriber;
  std::map<uint64_t, std::deque<Report>> waiting;
};

Reports& reports() {
  static Reports* const instance = new Reports;
  return *instance;
}

// Of the Ex kind, the only one that a capture takes.
constexpr unsigned kEx = 8;

unsigned uses_of(uint32_t flags) {
  return ((flags & ACL_EVENT_SYNC) != 0 ? kOrder : 0u) |
         ((flags & ACL_EVENT_CAPTURE_STREAM_PROGRESS) != 0 ? kQuery : 0u) |
         ((flags & ACL_EVENT_TIME_LINE) != 0 ? kTime : 0u);
}

}  // namespace

aclError aclrtStreamWaitEvent(aclrtStream stream, aclrtEvent event) {
  constexpr const char* kName = "aclrtStreamWaitEvent";
  return call(kName, Needs::kDevice, [&] {
    const auto waited = events().get(event, kName);
    const auto capture = stream_of(stream, kName)->capture;
    if (capture == nullptr || waited->capture == capture) return wait_for_event(stream, event, kName);
    if (waited->capture != nullptr) return fail(ACL_ERROR_STREAM_CAPTURE_CONFLICT, "the event is another capture's");
    if ((waited->uses & kEx) == 0) return fail(ACL_ERROR_RT_FEATURE_NOT_SUPPORT, "a capture takes Ex events only");
    return fail(ACL_ERROR_RT_CAPTURE_DEPENDENCY, "aclrtStreamWaitEvent: the event was recorded outside the capture");
  });
}

aclError aclrtCreateEvent(aclrtEvent* event) {
  return call("aclrtCreateEvent", Needs::kDevice, [&] { return create_event(event, kEveryUse); });
}

aclError aclrtCreateEventWithFlag(aclrtEvent* event, uint32_t flag) {
  return call("aclrtCreateEventWithFlag", Needs::kDevice, [&] { return create_event(event, uses_of(flag)); });
}

aclError aclrtCreateEventExWithFlag(aclrtEvent* event, uint32_t flag) {
  return call("aclrtCreateEventExWithFlag", Needs::kDevice, [&] { return create_event(event, uses_of(flag) | kEx); });
}

aclError aclrtDestroyEvent(aclrtEvent event) {
  return call("aclrtDestroyEvent", Needs::kDevice, [&] { return destroy_event(event, "aclrtDestroyEvent"); });
}

aclError aclrtRecordEvent(aclrtEvent event, aclrtStream stream) {
  return call("aclrtRecordEvent", Needs::kDevice, [&] {
    const bool captures = stream_of(stream, "aclrtRecordEvent")->capture != nullptr;
    if (captures && (events().get(event, "aclrtRecordEvent")->uses & kEx) == 0) {
      return fail(ACL_ERROR_RT_FEATURE_NOT_SUPPORT, "aclrtRecordEvent: a capture takes Ex events only");
    }
    return record_event(event, stream, "aclrtRecordEvent");
  });
}

aclError aclrtQueryEventStatus(aclrtEvent event, int32_t* status) {
  return call("aclrtQueryEventStatus", Needs::kDevice, [&] {
    const int code = query_event(event, "aclrtQueryEventStatus");
    *status = code == runtime().not_ready ? ACL_EVENT_RECORDED_STATUS_NOT_READY : ACL_EVENT_RECORDED_STATUS_COMPLETE;
    return code == runtime().not_ready ? 0 : code;
  });
}

aclError aclrtSynchronizeEvent(aclrtEvent event) {
  return call("aclrtSynchronizeEvent", Needs::kDevice,
              [&] { return synchronize_event(event, "aclrtSynchronizeEvent"); });
}

aclError aclrtSynchronizeEventWithTimeout(aclrtEvent event, int32_t timeout_ms) {
  return call("aclrtSynchronizeEventWithTimeout", Needs::kDevice,
              [&] { return synchronize_event(event, "aclrtSynchronizeEventWithTimeout", timeout_ms); });
}

aclError aclrtEventElapsedTime(float* ms, aclrtEvent start, aclrtEvent end) {
  return call("aclrtEventElapsedTime", Needs::kDevice, [&] {
    const int code = elapsed(start, end, ms, "aclrtEventElapsedTime");
    if (code != runtime().not_ready) return code;
    return fail(ACL_ERROR_RT_PARAM_INVALID, "aclrtEventElapsedTime: an event is not complete");
  });
}

aclError aclrtSubscribeReport(uint64_t thread_id, aclrtStream stream) {
  return call("aclrtSubscribeReport", Needs::kDevice, [&] {
    const auto target = stream_of(stream, "aclrtSubscribeReport");
    const std::lock_guard lock(reports().mutex);
    reports().subscriber[target] = thread_id;
    return 0;
  });
}

aclError aclrtUnSubscribeReport(uint64_t thread_id, aclrtStream stream) {
  return call("aclrtUnSubscribeReport", Needs::kDevice, [&] {
    const auto target = stream_of(stream, "aclrtUnSubscribeReport");
    const std::lock_guard lock(reports().mutex);
    const auto found = reports().subscriber.find(target);
    if (found == reports().subscriber.end() || found->second != thread_id) {
      return fail(ACL_ERROR_RT_PARAM_INVALID, "aclrtUnSubscribeReport: not subscribed");
    }
    reports().subscriber.erase(found);
    return 0;
  });
}

aclError aclrtLaunchCallback(aclrtCallback fn, void* user_data, int32_t block_type, aclrtStream stream) {
  return call("aclrtLaunchCallback", Needs::kDevice, [&] {
    const auto target = stream_of(stream, "aclrtLaunchCallback");
    uint64_t thread_id = 0;
    {
      const std::lock_guard lock(reports().mutex);
      const auto found = reports().subscriber.find(target);
      if (found == reports().subscriber.end()) {
        violation("NOT_SUBSCRIBED", "aclrtLaunchCallback on a stream without aclrtSubscribeReport");
      }
      thread_id = found->second;
    }
    const auto hand_over = [=] {
      const auto done = std::make_shared<Mark>();
      {
        const std::lock_guard lock(reports().mutex);
        reports().waiting[thread_id].push_back({fn, user_data, done});
        reports().changed.notify_all();
      }
      if (block_type == ACL_CALLBACK_BLOCK) done->wait();
      return 0;
    };
    return enqueue(stream, "aclrtLaunchCallback", {"aclrtLaunchCallback", hand_over, {}});
  });
}

aclError aclrtProcessReport(int32_t timeout_ms) {
  return call("aclrtProcessReport", Needs::kRuntime, [&] {
    Report report{};
    {
      std::unique_lock lock(reports().mutex);
      auto& waiting = reports().waiting[static_cast<uint64_t>(pthread_self())];
      const auto is_ready = [&] { return !waiting.empty(); };
      if (timeout_ms < 0) {
        reports().changed.wait(lock, is_ready);
      } else if (!reports().changed.wait_for(lock, std::chrono::milliseconds(timeout_ms), is_ready)) {
        return fail(ACL_ERROR_RT_REPORT_TIMEOUT, "aclrtProcessReport: no callback in time");
      }
      report = waiting.front();
      waiting.pop_front();
    }
    report.fn(report.user_data);
    report.done->finish(0);
    return 0;
  });
}

static aclError launch_host_func(aclrtStream stream, void (*fn)(void*), void* user_data) {
  return call("aclrtLaunchHostFunc", Needs::kDevice,
              [&] { return call_host(stream, fn, user_data, "aclrtLaunchHostFunc"); });
}

FAKE_ASCEND_OF_VERSION(aclrtLaunchHostFunc, (aclrtStream stream, void (*fn)(void*), void* user_data), launch_host_func,
                       version[0] == '9')
