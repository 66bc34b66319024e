// rlk_device_find: which backend serves a framework's memory. DLPack's device types are those of an API, and several
// vendors answer to CUDA's, so a type alone decides only where one plugin claims it; else the address does.
#include <fmt/format.h>

#include <vector>

#include "core/declaration/plugin_call.hpp"
#include "loader/api/handles.hpp"

using rlk::core::DeviceEntry;
using rlk::core::DeviceState;
using rlk::loader::guarded;

namespace {

// DLPack's device types.
constexpr int32_t kCpu = 1, kCuda = 2, kCudaHost = 3, kRocmHost = 11, kCudaManaged = 13;

struct Asked {
  const DeviceEntry* device;
  bool claims;             // its plugin says this type of its memory
  const char* about = "";  // what its plugin says of the address
};

bool recognises(rlk::core::Dispatcher& dispatcher, Asked& asked, const void* data) {
  DeviceState* open = nullptr;
  if (dispatcher.device(*asked.device, &open, nullptr) != RLK_OK) {
    asked.about = "cannot be opened";
    return false;
  }
  int32_t kind = RLK_POINTER_UNKNOWN;
  if (!open->pointer_kinds) {
    asked.about = "cannot tell whose memory an address is";
    return false;
  }
  const rlk_status status = rlk::core::call_plugin(open->api.device->pointer_kind, open->handle, data, &kind, nullptr);
  open->pointer_kinds.learn(status);
  asked.about = status != RLK_OK              ? "cannot tell whose memory the address is"
                : kind == RLK_POINTER_UNKNOWN ? "does not know the address"
                                              : "knows the address";
  return status == RLK_OK && kind != RLK_POINTER_UNKNOWN;
}

std::string text_of(const std::vector<Asked>& all) {
  if (all.empty()) return "no device with that ordinal is registered";
  std::string text;
  for (const Asked& one : all) {
    const int32_t type = one.device->properties().dlpack_device_type;
    text += fmt::format("{}{} {}{}{}", text.empty() ? "" : "; ", one.device->name(),
                        type != 0 ? fmt::format("has memory of type {}", type) : "does not say its memory's type",
                        *one.about != '\0' ? " and " : "", one.about);
  }
  return text;
}

}  // namespace

extern "C" rlk_status rlk_device_find(rlk_runtime* runtime, int32_t dlpack_device_type, int32_t dlpack_device_id,
                                      const void* data, const char** backend, rlk_error* error) {
  RLK_REQUIRE_ARGUMENT(runtime);
  RLK_REQUIRE_ARGUMENT(backend);
  return guarded(error, [&]() -> rlk_status {
    *backend = nullptr;
    const auto now = runtime->dispatcher->snapshot();
    if (dlpack_device_type == kCpu || dlpack_device_type == kCudaHost || dlpack_device_type == kRocmHost) {
      *backend = now->devices.front()->backend.c_str();
      return RLK_OK;
    }
    const int32_t type = dlpack_device_type == kCudaManaged ? kCuda : dlpack_device_type;
    std::vector<Asked> here;
    std::vector<Asked*> able;
    for (const DeviceEntry* device : now->devices) {
      if (device == now->devices.front() || static_cast<int64_t>(device->ordinal) != dlpack_device_id) continue;
      here.push_back({device, type > 0 && device->properties().dlpack_device_type == type});
    }
    for (Asked& one : here) {
      if (one.claims) able.push_back(&one);
    }
    if (able.size() != 1 && data != nullptr) {
      const bool claimed = !able.empty();
      able.clear();
      for (Asked& one : here) {
        if ((one.claims || !claimed) && recognises(*runtime->dispatcher, one, data)) able.push_back(&one);
      }
    }
    if (able.size() == 1) {
      *backend = able.front()->device->backend.c_str();
      return RLK_OK;
    }
    return rlk::core::fail(
        error, RLK_UNSUPPORTED,
        fmt::format("memory is on DLPack's device ({}, {}), which {}: {}. {}", dlpack_device_type, dlpack_device_id,
                    able.empty() ? "no registered backend serves" : "several backends may serve", text_of(here),
                    able.empty() ? "rlk-plugins list says what became of each plugin"
                                 : "Name the backend: wrap the framework's stream with rlk_stream_wrap"));
  });
}
