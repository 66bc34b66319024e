// Simulated AscendCL's process, devices and contexts: a device has a default context, and a thread is in one.
#include <atomic>
#include <cstdlib>

#include "state.h"

using namespace fake;

namespace {

// An aclInit of this process succeeded, so its caller owns aclFinalize.
std::atomic<bool> is_ours{false};

struct Defaults {
  std::mutex mutex;
  std::map<int, aclrtContext> contexts;
};
Defaults& defaults() {
  static Defaults* const instance = new Defaults;
  return *instance;
}

int check_device(int32_t device, const char* name) {
  if (is_device(device)) return 0;
  return fail(ACL_ERROR_RT_INVALID_DEVICEID,
              std::string(name) + ": device " + std::to_string(device) + " of " + std::to_string(device_count()));
}

// What callers ask to learn whether the runtime is alive: no rule is broken by it.
int check_place(const char* name) {
  count(name);
  if (!is_initialized()) return fail(ACL_ERROR_UNINITIALIZE, std::string(name) + ": not initialised");
  if (current_device() < 0) return fail(ACL_ERROR_RT_CONTEXT_NULL, std::string(name) + ": no device on this thread");
  return 0;
}

}  // namespace

aclError aclInit(const char* config_path) {
  (void)config_path;
  return call("aclInit", Needs::kNothing, [] {
    // Or a framework in the same process was there first.
    if (is_initialized()) return fail(ACL_ERROR_REPEAT_INITIALIZE, "aclInit: already initialised");
    is_ours = true;
    return initialize(), 0;
  });
}

aclError aclFinalize() {
  return call("aclFinalize", Needs::kRuntime, [] {
    if (const uint64_t leaked = fake_ascend::live_executors(); leaked != 0) {
      violation("EXECUTOR_LEAK", std::to_string(leaked) + " executors live at aclFinalize");
    }
    if (!is_ours.exchange(false)) {
      violation("FINALIZE_NOT_OWNER", "aclFinalize although every aclInit returned 100002 (already initialised)");
    }
    return initialize(false), 0;
  });
}

aclError aclrtGetVersion(int32_t* major, int32_t* minor, int32_t* patch) {
  return call("aclrtGetVersion", Needs::kNothing, [&] {
    if (major == nullptr || minor == nullptr || patch == nullptr) {
      return fail(ACL_ERROR_RT_PARAM_INVALID, "aclrtGetVersion: null");
    }
    const char* version = std::getenv("RLK_FAKE_ASCEND_VERSION");
    *major = 1;
    *minor = version != nullptr && version[0] == '9' ? 16 : 14;
    *patch = 0;
    return 0;
  });
}

const char* aclrtGetSocName() {
  count("aclrtGetSocName");
  const char* name = std::getenv("RLK_FAKE_ASCEND_SOC");
  return name == nullptr ? "Ascend910B4" : name;
}

aclError aclrtGetDeviceCount(uint32_t* count) {
  return call("aclrtGetDeviceCount", Needs::kRuntime, [&] {
    if (count == nullptr) return fail(ACL_ERROR_RT_PARAM_INVALID, "aclrtGetDeviceCount: null");
    *count = static_cast<uint32_t>(device_count());
    return *count == 0 ? fail(ACL_ERROR_RT_NO_DEVICE, "aclrtGetDeviceCount: no device") : 0;
  });
}

aclError aclrtSetDevice(int32_t device) {
  return call("aclrtSetDevice", Needs::kRuntime, [&] {
    if (const int code = check_device(device, "aclrtSetDevice")) return code;
    const std::lock_guard lock(defaults().mutex);
    aclrtContext& context = defaults().contexts[device];
    if (context == nullptr) context = create_context(device);
    return enter_context(context), 0;
  });
}

aclError aclrtResetDevice(int32_t device) {
  return call("aclrtResetDevice", Needs::kRuntime, [&] {
    if (const int code = check_device(device, "aclrtResetDevice")) return code;
    if (current_device() == device) leave_device();
    return 0;
  });
}

aclError aclrtGetDevice(int32_t* device) {
  if (const int code = check_place("aclrtGetDevice")) return code;
  return *device = current_device(), 0;
}

aclError aclrtSynchronizeDevice() {
  return call("aclrtSynchronizeDevice", Needs::kDevice, [] {
    for (const auto& stream : streams().all()) {
      if (stream->capture == nullptr || stream->device != current_device()) continue;
      stream->capture->broken = true;
      return fail(ACL_ERROR_RT_STREAM_CAPTURED, "aclrtSynchronizeDevice: a stream of the device captures");
    }
    return synchronize_device();
  });
}

aclError aclrtGetRunMode(int32_t* run_mode) {
  return call("aclrtGetRunMode", Needs::kRuntime, [&] { return *run_mode = ACL_HOST, 0; });
}

aclError aclGetDeviceCapability(uint32_t device, int32_t info, int64_t* value) {
  return call("aclGetDeviceCapability", Needs::kRuntime, [&] {
    if (const int code = check_device(static_cast<int32_t>(device), "aclGetDeviceCapability")) return code;
    const int64_t values[] = {20, 40, int64_t{96} << 20};  // cube cores, vector cores, L2 bytes of a 910B4
    if (info < 0 || info > 2) return fail(ACL_ERROR_RT_PARAM_INVALID, "aclGetDeviceCapability: unknown information");
    return *value = values[info], 0;
  });
}

aclError aclrtDeviceCanAccessPeer(int32_t* can_access, int32_t device, int32_t peer) {
  return call("aclrtDeviceCanAccessPeer", Needs::kRuntime, [&] {
    if (const int code = check_device(device, "aclrtDeviceCanAccessPeer")) return code;
    if (const int code = check_device(peer, "aclrtDeviceCanAccessPeer")) return code;
    return *can_access = device != peer, 0;
  });
}

aclError aclrtCreateContext(aclrtContext* context, int32_t device) {
  return call("aclrtCreateContext", Needs::kRuntime, [&] {
    if (const int code = check_device(device, "aclrtCreateContext")) return code;
    *context = create_context(device);
    return enter_context(*context), 0;
  });
}

aclError aclrtDestroyContext(aclrtContext context) {
  return call("aclrtDestroyContext", Needs::kRuntime, [&] {
    const std::lock_guard lock(defaults().mutex);
    for (const auto& [device, own] : defaults().contexts) {
      if (own == context) violation("DEFAULT_CONTEXT", "aclrtDestroyContext of a device's default context");
    }
    return destroy_context(context, "aclrtDestroyContext"), 0;
  });
}

aclError aclrtSetCurrentContext(aclrtContext context) {
  return call("aclrtSetCurrentContext", Needs::kRuntime, [&] {
    device_of_context(context, "aclrtSetCurrentContext");
    return enter_context(context), 0;
  });
}

aclError aclrtGetCurrentContext(aclrtContext* context) {
  if (const int code = check_place("aclrtGetCurrentContext")) return code;
  return *context = current_context(), 0;
}

static aclError device_info(uint32_t device, int32_t attribute, int64_t* value) {
  return call("aclrtGetDeviceInfo", Needs::kRuntime, [&] {
    if (const int code = check_device(static_cast<int32_t>(device), "aclrtGetDeviceInfo")) return code;
    if (attribute != 301) return fail(ACL_ERROR_RT_PARAM_INVALID, "aclrtGetDeviceInfo: unknown attribute");
    return *value = static_cast<int64_t>(memory_bytes()), 0;
  });
}
FAKE_ASCEND_OF_VERSION(aclrtGetDeviceInfo, (uint32_t device, int32_t attribute, int64_t* value), device_info,
                       version[0] == '9')
