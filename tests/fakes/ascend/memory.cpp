// Simulated AscendCL's memory: the framework's, in AscendCL's order of parameters, with the capacities that its callers
// promise.
#include "state.h"

using namespace fake;

namespace {

int checked(size_t bytes, int32_t kind, const void* to, const void* from, const char* call) {
  if (kind < ACL_MEMCPY_HOST_TO_HOST || kind > ACL_MEMCPY_DEVICE_TO_DEVICE) {
    return fail(ACL_ERROR_RT_PARAM_INVALID, std::string(call) + ": memcpy kind " + std::to_string(kind));
  }
  if (bytes == 0) return fail(ACL_ERROR_RT_PARAM_INVALID, std::string(call) + ": count is 0");
  if (to == nullptr || from == nullptr) return fail(ACL_ERROR_RT_PARAM_INVALID, std::string(call) + ": null pointer");
  return 0;
}

int free_of(void* pointer, bool pinned, const char* name) {
  return call(name, Needs::kDevice, [&] {
    if (pointer == nullptr) violation("INVALID_FREE", std::string(name) + " of null");
    return release(pointer, pinned, name), 0;
  });
}

}  // namespace

aclError aclrtMalloc(void** pointer, size_t size, int32_t policy) {
  return call("aclrtMalloc", Needs::kDevice, [&] {
    if (pointer == nullptr || size == 0 || policy < 0 || policy > 6) {
      return fail(ACL_ERROR_RT_PARAM_INVALID, "aclrtMalloc: null pointer, size 0 or unknown policy");
    }
    return allocate(current_device(), size, pointer);
  });
}

aclError aclrtFree(void* pointer) {
  return free_of(pointer, false, "aclrtFree");
}

aclError aclrtMallocHost(void** pointer, size_t size) {
  return call("aclrtMallocHost", Needs::kDevice, [&] {
    if (pointer == nullptr || size == 0) return fail(ACL_ERROR_RT_PARAM_INVALID, "aclrtMallocHost: null or size 0");
    return allocate_pinned(size, pointer);
  });
}

aclError aclrtFreeHost(void* pointer) {
  return free_of(pointer, true, "aclrtFreeHost");
}

aclError aclrtMemcpy(void* dst, size_t dest_max, const void* src, size_t count, int32_t kind) {
  return call("aclrtMemcpy", Needs::kDevice, [&] {
    if (const int code = checked(count, kind, dst, src, "aclrtMemcpy")) return code;
    if (const int code = fake_ascend::refuse_beside_capture("aclrtMemcpy")) return code;
    return copy_now(dst, dest_max, src, count, static_cast<Direction>(kind), "aclrtMemcpy");
  });
}

aclError aclrtMemcpyAsync(void* dst, size_t dest_max, const void* src, size_t count, int32_t kind, aclrtStream stream) {
  return call("aclrtMemcpyAsync", Needs::kDevice, [&] {
    if (const int code = checked(count, kind, dst, src, "aclrtMemcpyAsync")) return code;
    return copy_within(dst, dest_max, src, count, static_cast<Direction>(kind), stream, "aclrtMemcpyAsync");
  });
}

aclError aclrtMemset(void* pointer, size_t max_count, int32_t value, size_t count) {
  return call("aclrtMemset", Needs::kDevice, [&] {
    if (count == 0) return fail(ACL_ERROR_RT_PARAM_INVALID, "aclrtMemset: count is 0");
    if (const int code = fake_ascend::refuse_beside_capture("aclrtMemset")) return code;
    return fill_now(pointer, max_count, value, count, "aclrtMemset");
  });
}

aclError aclrtMemsetAsync(void* pointer, size_t max_count, int32_t value, size_t count, aclrtStream stream) {
  return call("aclrtMemsetAsync", Needs::kDevice, [&] {
    if (count == 0) return fail(ACL_ERROR_RT_PARAM_INVALID, "aclrtMemsetAsync: count is 0");
    return fill_within(pointer, max_count, value, count, stream, "aclrtMemsetAsync");
  });
}

aclError aclrtGetMemInfo(int32_t attribute, size_t* free, size_t* total) {
  return call("aclrtGetMemInfo", Needs::kDevice, [&] {
    if (attribute != ACL_HBM_MEM || free == nullptr || total == nullptr) {
      return fail(ACL_ERROR_RT_PARAM_INVALID, "aclrtGetMemInfo: this device has HBM (1) only");
    }
    *total = memory_bytes();
    *free = *total - used_bytes(current_device());
    return 0;
  });
}
