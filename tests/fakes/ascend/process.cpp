// Who may call what, and when? Initialisation, devices and contexts of the simulated AscendCL.
#include <atomic>
#include <cstdlib>
#include <map>
#include <mutex>

#include "handles.h"
#include "runtime.h"

namespace fake_ascend {
namespace {

struct Context {
  int device;
  uint64_t id;
};

struct Process {
  std::mutex mutex;
  bool initialized = false;
  bool ours = false;  // some caller's aclInit succeeded, so someone owns aclFinalize
  std::map<int, aclrtContext> default_contexts;
  std::atomic<uint64_t> next_context{1};
};

Process& process() {
  static Process* const instance = [] {
    auto* created = new Process;
    // A framework in the same process was there first: every aclInit finds the runtime initialised.
    created->initialized = env_number("RLK_FAKE_ASCEND_PREINITIALIZED", 0) != 0;
    return created;
  }();
  return *instance;
}

HandleTable<Context>& contexts() {
  static auto* const table = new HandleTable<Context>(1, "context");
  return *table;
}

thread_local int thread_device = -1;
thread_local uint64_t thread_context = 0;
thread_local aclrtContext thread_context_handle = nullptr;

void enter_context(aclrtContext handle, const Context& context) {
  thread_device = context.device;
  thread_context = context.id;
  thread_context_handle = handle;
}

int check_device(int32_t device, const char* call) {
  if (device >= 0 && device < device_count()) return 0;
  return fail(ACL_ERROR_RT_INVALID_DEVICEID,
              std::string(call) + ": device " + std::to_string(device) + " of " + std::to_string(device_count()));
}

}  // namespace

bool initialized() {
  const std::lock_guard lock(process().mutex);
  return process().initialized;
}

int device_count() {
  return static_cast<int>(env_number("RLK_FAKE_ASCEND_DEVICES", 1));
}

int current_device() {
  return thread_device;
}
uint64_t current_context() {
  return thread_context;
}

}  // namespace fake_ascend

using namespace fake_ascend;

aclError aclInit(const char* config_path) {
  FAKE_ASCEND_ENTER(kNothing);
  (void)config_path;
  const std::lock_guard lock(process().mutex);
  if (process().initialized) return fail(ACL_ERROR_REPEAT_INITIALIZE, "aclInit: already initialised");
  process().initialized = true;
  process().ours = true;
  return ACL_SUCCESS;
}

aclError aclFinalize() {
  FAKE_ASCEND_ENTER(kInit);
  if (const uint64_t leaked = live_executors(); leaked != 0) {
    if (const int code = violation("EXECUTOR_LEAK", std::to_string(leaked) + " executors live at aclFinalize")) {
      return code;
    }
  }
  const std::lock_guard lock(process().mutex);
  if (!process().ours) {
    return violation("FINALIZE_NOT_OWNER", "aclFinalize although every aclInit returned 100002 (already initialised)");
  }
  process().initialized = false;
  process().ours = false;
  return ACL_SUCCESS;
}

aclError aclrtGetVersion(int32_t* major, int32_t* minor, int32_t* patch) {
  FAKE_ASCEND_ENTER(kNothing);
  if (major == nullptr || minor == nullptr || patch == nullptr) {
    return fail(ACL_ERROR_RT_PARAM_INVALID, "aclrtGetVersion: null");
  }
  const char* version = std::getenv("RLK_FAKE_ASCEND_VERSION");
  *major = 1;
  *minor = version != nullptr && version[0] == '9' ? 16 : 14;
  *patch = 0;
  return ACL_SUCCESS;
}

const char* aclrtGetSocName() {
  log_call(__func__);
  const char* name = std::getenv("RLK_FAKE_ASCEND_SOC");
  return name == nullptr ? "Ascend910B4" : name;
}

aclError aclrtGetDeviceCount(uint32_t* count) {
  FAKE_ASCEND_ENTER(kInit);
  if (count == nullptr) return fail(ACL_ERROR_RT_PARAM_INVALID, "aclrtGetDeviceCount: null");
  *count = static_cast<uint32_t>(device_count());
  return *count == 0 ? fail(ACL_ERROR_RT_NO_DEVICE, "aclrtGetDeviceCount: no device") : ACL_SUCCESS;
}

aclError aclrtSetDevice(int32_t device) {
  FAKE_ASCEND_ENTER(kInit);
  if (const int code = check_device(device, __func__)) return code;
  const std::lock_guard lock(process().mutex);
  aclrtContext& handle = process().default_contexts[device];
  if (handle == nullptr) {
    handle = contexts().add(std::make_shared<Context>(Context{device, process().next_context++}));
  }
  enter_context(handle, *contexts().find(handle));
  return ACL_SUCCESS;
}

aclError aclrtResetDevice(int32_t device) {
  FAKE_ASCEND_ENTER(kInit);
  if (const int code = check_device(device, __func__)) return code;
  if (thread_device == device) {
    thread_device = -1;
    thread_context = 0;
  }
  return ACL_SUCCESS;
}

aclError aclrtGetDevice(int32_t* device) {
  // Callers use it to ask whether the runtime is alive, so no violation is raised here.
  log_call(__func__);
  if (!initialized()) return fail(ACL_ERROR_UNINITIALIZE, "aclrtGetDevice: not initialised");
  if (thread_device < 0) return fail(ACL_ERROR_RT_CONTEXT_NULL, "aclrtGetDevice: no device on this thread");
  *device = thread_device;
  return ACL_SUCCESS;
}

aclError aclrtSynchronizeDevice() {
  FAKE_ASCEND_ENTER(kDevice);
  return synchronize_all_of_device(thread_device);
}

aclError aclrtGetRunMode(int32_t* run_mode) {
  FAKE_ASCEND_ENTER(kInit);
  *run_mode = ACL_HOST;
  return ACL_SUCCESS;
}

aclError aclGetDeviceCapability(uint32_t device, int32_t info, int64_t* value) {
  FAKE_ASCEND_ENTER(kInit);
  if (const int code = check_device(static_cast<int32_t>(device), __func__)) return code;
  const int64_t values[] = {20, 40, int64_t{96} << 20};  // cube cores, vector cores, L2 bytes of a 910B4
  if (info < 0 || info > 2) return fail(ACL_ERROR_RT_PARAM_INVALID, "aclGetDeviceCapability: unknown information");
  *value = values[info];
  return ACL_SUCCESS;
}

aclError aclrtDeviceCanAccessPeer(int32_t* can_access, int32_t device, int32_t peer) {
  FAKE_ASCEND_ENTER(kInit);
  if (const int code = check_device(device, __func__)) return code;
  if (const int code = check_device(peer, __func__)) return code;
  *can_access = device != peer;
  return ACL_SUCCESS;
}

aclError aclrtCreateContext(aclrtContext* context, int32_t device) {
  FAKE_ASCEND_ENTER(kInit);
  if (const int code = check_device(device, __func__)) return code;
  const auto created = std::make_shared<Context>(Context{device, process().next_context++});
  *context = contexts().add(created);
  enter_context(*context, *created);
  return ACL_SUCCESS;
}

aclError aclrtDestroyContext(aclrtContext context) {
  FAKE_ASCEND_ENTER(kInit);
  const auto found = contexts().get(context, __func__);
  if (found == nullptr) return ACL_ERROR_RT_INVALID_HANDLE;
  forget_streams_of_context(found->id);
  contexts().remove(context);
  if (thread_context == found->id) {
    thread_device = -1;
    thread_context = 0;
    thread_context_handle = nullptr;
  }
  return ACL_SUCCESS;
}

aclError aclrtSetCurrentContext(aclrtContext context) {
  FAKE_ASCEND_ENTER(kInit);
  const auto found = contexts().get(context, __func__);
  if (found == nullptr) return ACL_ERROR_RT_INVALID_HANDLE;
  enter_context(context, *found);
  return ACL_SUCCESS;
}

aclError aclrtGetCurrentContext(aclrtContext* context) {
  log_call(__func__);
  if (!initialized()) return fail(ACL_ERROR_UNINITIALIZE, "aclrtGetCurrentContext: not initialised");
  if (thread_device < 0) return fail(ACL_ERROR_RT_CONTEXT_NULL, "aclrtGetCurrentContext: no context on this thread");
  *context = thread_context_handle;
  return ACL_SUCCESS;
}

// An indirect function, as in events.cpp: absent before 9.x.
static aclError device_info(uint32_t device, int32_t attribute, int64_t* value) {
  if (const int code = enter("aclrtGetDeviceInfo", Needs::kInit)) return code;
  if (const int code = check_device(static_cast<int32_t>(device), "aclrtGetDeviceInfo")) return code;
  if (attribute != 301) return fail(ACL_ERROR_RT_PARAM_INVALID, "aclrtGetDeviceInfo: unknown attribute");
  *value = env_number("RLK_FAKE_ASCEND_MEMORY_MB", 4096) << 20;
  return ACL_SUCCESS;
}

extern "C" {
aclrtGetDeviceInfoType resolve_device_info() {
  const char* version = std::getenv("RLK_FAKE_ASCEND_VERSION");
  return version != nullptr && version[0] == '9' ? device_info : nullptr;
}
FAKE_ASCEND_API aclError aclrtGetDeviceInfo(uint32_t device, int32_t attribute, int64_t* value)
    __attribute__((ifunc("resolve_device_info")));
}
