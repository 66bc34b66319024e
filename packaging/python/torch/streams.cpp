#include "streams.hpp"

#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "shim.hpp"

namespace rlk::torch {
namespace {

rlk_torch_resolve resolve = nullptr;
std::atomic<uint64_t> reloads{0};

struct Server {
  rlk_runtime* runtime = nullptr;
  std::string backend;
};

struct Entry {
  Device device;
  void* native = nullptr;
  rlk_stream* stream = nullptr;
};

struct Streams {
  std::vector<Entry> entries;
  uint64_t made_after = 0;  // so many reloads
  ~Streams() {
    // At the end of the process nothing is ended: other threads may be in a call, and drivers may be gone.
    if (syscall(SYS_gettid) == getpid()) return;
    drop();
  }
  void drop() {
    for (const Entry& entry : entries) rlk_stream_destroy(entry.stream, nullptr);
    entries.clear();
  }
  // Streams stay with the plugin that they were made with: after a reload they are made anew.
  void renew() {
    const uint64_t now = reloads.load(std::memory_order_acquire);
    if (now == made_after) return;
    drop();
    made_after = now;
  }
};
thread_local Streams streams;

rlk_status server_of(Device device, Server* out, rlk_error* error) {
  static std::mutex mutex;
  static std::map<std::pair<int32_t, int32_t>, Server> known;
  static uint64_t known_after = 0;  // so many reloads
  const std::pair<int32_t, int32_t> key{device.type, device.index};
  const uint64_t now = reloads.load(std::memory_order_acquire);
  {
    const std::lock_guard lock(mutex);
    if (known_after < now) {
      known.clear();
      known_after = now;
    }
    if (const auto found = known.find(key); found != known.end()) {
      *out = found->second;
      return RLK_OK;
    }
  }
  // Not under the mutex: the answer takes the GIL, which a thread that waits here may have.
  char backend[32] = {};
  const rlk_status status = resolve(device.type, device.index, &out->runtime, backend, error);
  if (status != RLK_OK) return status;
  out->backend = backend;
  const std::lock_guard lock(mutex);
  if (known_after == now) known.emplace(key, *out);  // else the answer may be of before a reload
  return RLK_OK;
}

// torch's current stream as the vendor's handle. torch counts several vendors' devices as CUDA's.
rlk_status native_stream(Device device, void** out, rlk_error* error) {
  if (device.type == shim.aoti_torch_device_type_cuda() && shim.aoti_torch_get_current_cuda_stream != nullptr) {
    RLK_TORCH(aoti_torch_get_current_cuda_stream, device.index, out);
    return RLK_OK;
  }
  if (shim.aoti_torch_get_current_stream == nullptr || shim.torch_stream_native_handle == nullptr ||
      shim.aoti_torch_delete_stream == nullptr) {
    if (error != nullptr) {
      error->status = RLK_UNSUPPORTED;
      std::snprintf(error->text, sizeof(error->text),
                    "this torch does not say which stream of the device is current (torch 2.13 is the first that does "
                    "for devices other than CUDA's). Update torch, or call rlk.ops with stream=");
    }
    return RLK_UNSUPPORTED;
  }
  StreamOpaque* stream = nullptr;
  RLK_TORCH(aoti_torch_get_current_stream, device.index, &stream);
  const int32_t code = shim.torch_stream_native_handle(stream, out);
  shim.aoti_torch_delete_stream(stream);
  check(code, "torch_stream_native_handle");
  return RLK_OK;
}

}  // namespace

void set_resolver(rlk_torch_resolve given) {
  resolve = given;
}

void note_reload() {
  reloads.fetch_add(1, std::memory_order_release);
}

rlk_stream* current_stream(Device device, rlk_error* error) {
  streams.renew();
  const bool on_cpu = device.type == shim.aoti_torch_device_type_cpu();
  void* native = nullptr;
  if (!on_cpu && native_stream(device, &native, error) != RLK_OK) return nullptr;
  for (const Entry& entry : streams.entries) {
    if (entry.device == device && entry.native == native) return entry.stream;
  }
  Server server;
  if (server_of(device, &server, error) != RLK_OK) return nullptr;
  rlk_stream* stream = nullptr;
  const auto ordinal = static_cast<uint32_t>(on_cpu ? 0 : device.index);
  const rlk_status status =
      on_cpu ? rlk_stream_create(server.runtime, server.backend.c_str(), ordinal, 0, &stream, error)
             : rlk_stream_wrap(server.runtime, server.backend.c_str(), ordinal, native, &stream, error);
  if (status != RLK_OK) return nullptr;
  streams.entries.push_back({device, native, stream});
  return stream;
}

}  // namespace rlk::torch
