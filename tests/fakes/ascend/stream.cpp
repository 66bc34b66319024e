// Simulated AscendCL's streams: the framework's, each of a context.
#include "state.h"

using namespace fake;

namespace {

// Null is a context's default stream where work is concerned; no caller may destroy it.
int destroy(aclrtStream stream, const char* name, int (*how)(void*, const char*)) {
  return call(name, Needs::kDevice, [&] {
    if (streams().get(stream, name)->capture == nullptr) return how(stream, name);
    return fail(ACL_ERROR_RT_STREAM_CAPTURED, std::string(name) + ": the stream captures");
  });
}

}  // namespace

aclError aclrtCreateStream(aclrtStream* stream) {
  return call("aclrtCreateStream", Needs::kDevice, [&] { return create_stream(stream); });
}

aclError aclrtCreateStreamWithConfig(aclrtStream* stream, uint32_t priority, uint32_t flag) {
  return call("aclrtCreateStreamWithConfig", Needs::kDevice, [&] {
    if (priority <= 7 && flag <= 3) return create_stream(stream);
    return fail(ACL_ERROR_RT_PARAM_INVALID, "aclrtCreateStreamWithConfig: priority 0..7, flag bits 1 and 2");
  });
}

aclError aclrtDestroyStream(aclrtStream stream) {
  return destroy(stream, "aclrtDestroyStream", destroy_stream);
}

aclError aclrtDestroyStreamForce(aclrtStream stream) {
  return destroy(stream, "aclrtDestroyStreamForce", abandon_stream);
}

aclError aclrtSynchronizeStream(aclrtStream stream) {
  return call("aclrtSynchronizeStream", Needs::kDevice,
              [&] { return synchronize_stream(stream, "aclrtSynchronizeStream"); });
}

aclError aclrtSynchronizeStreamWithTimeout(aclrtStream stream, int32_t timeout_ms) {
  return call("aclrtSynchronizeStreamWithTimeout", Needs::kDevice,
              [&] { return synchronize_stream(stream, "aclrtSynchronizeStreamWithTimeout", timeout_ms); });
}

aclError aclrtStreamQuery(aclrtStream stream, int32_t* status) {
  return call("aclrtStreamQuery", Needs::kDevice, [&] {
    const int code = query_stream(stream, "aclrtStreamQuery");
    *status = code == runtime().not_ready ? ACL_STREAM_STATUS_NOT_READY : ACL_STREAM_STATUS_COMPLETE;
    return code == runtime().not_ready ? 0 : code;
  });
}
