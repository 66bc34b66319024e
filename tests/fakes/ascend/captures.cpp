// Simulated AscendCL's captures: the framework's, whose graphs are the models here, with AscendCL's answers to what it
// forbids.
#include <map>
#include <utility>

#include "state.h"

using namespace fake;

namespace {

struct Models {
  std::mutex mutex;
  std::map<aclmdlRI, int> launches;  // that have not come to their end
  std::map<aclmdlRI, std::map<aclrtCallback, void*>> told;
};
Models& models() {
  static auto* const only = new Models;
  return *only;
}

bool is_supported() {
  const std::string soc = aclrtGetSocName();
  return fake_ascend::is_atlas_a2_or_a3(soc) || soc.rfind("Ascend950", 0) == 0;
}

// The model is gone: the functions that were registered for it are called.
void tell(aclmdlRI model) {
  std::map<aclrtCallback, void*> told;
  {
    const std::lock_guard lock(models().mutex);
    const auto found = models().told.find(model);
    if (found == models().told.end()) return;
    told = std::move(found->second);
    models().told.erase(found);
  }
  for (const auto& [function, user] : told) function(user);
}

aclError capture_begin(aclrtStream stream, int32_t mode) {
  constexpr const char* kName = "aclmdlRICaptureBegin";
  return call(kName, Needs::kDevice, [&] {
    if (!is_supported()) return fail(ACL_ERROR_RT_FEATURE_NOT_SUPPORT, "this chip captures nothing");
    if (stream == nullptr) return fail(ACL_ERROR_RT_STREAM_CAPTURE_IMPLICIT, "the default stream is not captured");
    if (mode < 0 || mode > 2) return fail(ACL_ERROR_RT_PARAM_INVALID, "aclmdlRICaptureBegin: unknown mode");
    return begin_capture(stream, mode, kName);
  });
}

aclError capture_info_of(aclrtStream stream, int32_t* status, aclmdlRI* model) {
  constexpr const char* kName = "aclmdlRICaptureGetInfo";
  return call(kName, Needs::kDevice, [&] {
    if (!is_supported()) return fail(ACL_ERROR_RT_FEATURE_NOT_SUPPORT, "this chip captures nothing");
    if (stream == nullptr || status == nullptr) return fail(ACL_ERROR_RT_PARAM_INVALID, "the stream is null");
    return capture_info(stream, status, nullptr, kName, model);
  });
}

aclError capture_end(aclrtStream stream, aclmdlRI* model) {
  constexpr const char* kName = "aclmdlRICaptureEnd";
  return call(kName, Needs::kDevice, [&] {
    if (stream == nullptr || model == nullptr) return fail(ACL_ERROR_RT_PARAM_INVALID, "the stream is null");
    const auto own = stream_of(stream, kName);
    const auto capture = own->capture;
    if (capture == nullptr) return fail(ACL_ERROR_RT_STREAM_NOT_CAPTURED, "the stream captures nothing");
    if (capture->origin != own.get()) return fail(ACL_ERROR_RT_STREAM_CAPTURE_UNMATCHED, "another stream began it");
    const bool is_other_thread = capture->thread != std::this_thread::get_id();
    const bool wrong_thread = is_other_thread && capture->mode != ACL_MODEL_RI_CAPTURE_MODE_RELAXED;
    if (wrong_thread) capture->broken = true;
    const aclmdlRI begun = capture->handle;
    const int code = end_capture(stream, model, kName);
    if (code != 0) tell(begun);
    return wrong_thread ? fail(ACL_ERROR_RT_STREAM_CAPTURE_WRONG_THREAD, "the capture is another thread's") : code;
  });
}

aclError exchange_mode(int32_t* mode) {
  return call("aclmdlRICaptureThreadExchangeMode", Needs::kDevice, [&] {
    if (mode == nullptr || *mode < 0 || *mode > 2) return fail(ACL_ERROR_RT_PARAM_INVALID, "unknown mode");
    return std::swap(*mode, capture_mode()), 0;
  });
}

aclError execute(aclmdlRI model, aclrtStream stream) {
  constexpr const char* kName = "aclmdlRIExecuteAsync";
  return call(kName, Needs::kDevice, [&] {
    const auto graph = graphs().get(model, kName);
    if (is_being_captured(model)) return fail(ACL_ERROR_RT_MODEL_CAPTURED, "the model is being captured");
    if (stream_of(stream, kName)->capture != nullptr) return fail(ACL_ERROR_RT_STREAM_CAPTURED, "the stream captures");
    for (const Command& command : graph->work) {
      if (const int code = enqueue(stream, kName, command)) return code;
    }
    const auto end = [model] {
      const std::lock_guard lock(models().mutex);
      return --models().launches[model], 0;
    };
    {
      const std::lock_guard lock(models().mutex);
      ++models().launches[model];
    }
    return enqueue(stream, kName, {kName, end, {}, true});
  });
}

aclError destroy_model(aclmdlRI model) {
  constexpr const char* kName = "aclmdlRIDestroy";
  bool was_entered = false;
  const int code = call(kName, Needs::kDevice, [&] {
    was_entered = true;
    graphs().get(model, kName);
    if (is_being_captured(model)) return fail(ACL_ERROR_RT_MODEL_CAPTURED, "the model is being captured");
    {
      const std::lock_guard lock(models().mutex);
      if (models().launches[model] != 0) return fail(ACL_ERROR_RT_MODEL_RUNNING, "the model still runs");
    }
    graphs().take(model, kName);
    return tell(model), 0;
  });
  // Of an injected failure: no caller can destroy it any more, and the memory that it used is to be freed all the same.
  if (!was_entered) graphs().remove(model);
  return code;
}

aclError register_end(aclmdlRI model, aclrtCallback fn, void* user_data) {
  constexpr const char* kName = "aclmdlRIDestroyRegisterCallback";
  return call(kName, Needs::kDevice, [&] {
    graphs().get(model, kName);
    const std::lock_guard lock(models().mutex);
    if (models().told[model].emplace(fn, user_data).second) return 0;
    return fail(ACL_ERROR_RT_PARAM_INVALID, "the function has been registered before");
  });
}

}  // namespace

int fake_ascend::refuse_beside_capture(const char* call) {
  if (is_safe()) return 0;
  return fail(ACL_ERROR_RT_CAPTURE_MODE_NOT_SUPPORT, std::string(call) + " beside a capture that is not relaxed");
}

#define SINCE_8_1 version.substr(0, 3) != "8.0"
FAKE_ASCEND_OF_VERSION(aclmdlRICaptureBegin, (aclrtStream stream, int32_t mode), capture_begin, SINCE_8_1)
FAKE_ASCEND_OF_VERSION(aclmdlRICaptureGetInfo, (aclrtStream stream, int32_t* status, aclmdlRI* model), capture_info_of,
                       SINCE_8_1)
FAKE_ASCEND_OF_VERSION(aclmdlRICaptureEnd, (aclrtStream stream, aclmdlRI* model), capture_end, SINCE_8_1)
FAKE_ASCEND_OF_VERSION(aclmdlRICaptureThreadExchangeMode, (int32_t * mode), exchange_mode, SINCE_8_1)
FAKE_ASCEND_OF_VERSION(aclmdlRIExecuteAsync, (aclmdlRI model, aclrtStream stream), execute, SINCE_8_1)
FAKE_ASCEND_OF_VERSION(aclmdlRIDestroy, (aclmdlRI model), destroy_model, SINCE_8_1)
FAKE_ASCEND_OF_VERSION(aclmdlRIDestroyRegisterCallback, (aclmdlRI model, aclrtCallback fn, void* user_data),
                       register_end, version[0] == '9')
