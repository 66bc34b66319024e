// Copies between the host and a device. A plugin copies pinned memory only; ordinary memory goes through a pinned
// block.
#include "core/dispatch/device/copy.hpp"

#include <algorithm>
#include <cstring>

#include "core/declaration/error.hpp"
#include "core/dispatch/trust/release.hpp"

namespace rlk::core {
namespace {

constexpr uint64_t kBlockBytes = uint64_t{4} << 20;

bool is_pinned(DeviceState& device, const void* host) {
  if (device.entry.has(RLK_DEVICE_UNIFIED_MEMORY) || device.pinned.owns(host)) return true;
  int32_t kind = RLK_POINTER_UNKNOWN;
  if (!device.pointer_kinds) return false;
  const rlk_status status = call_plugin(device.api.device->pointer_kind, device.handle, host, &kind, nullptr);
  device.pointer_kinds.learn(status);
  return status == RLK_OK && kind == RLK_POINTER_PINNED;
}

class PinnedBlock {
public:
  explicit PinnedBlock(Stream& stream) : stream_(stream) {}
  ~PinnedBlock() {
    if (memory_ != nullptr) stream_.device().pinned.deallocate(memory_, stream_.fence(true), nullptr);
  }
  PinnedBlock(const PinnedBlock&) = delete;
  PinnedBlock& operator=(const PinnedBlock&) = delete;
  rlk_status allocate(uint64_t bytes, rlk_error* error) {
    return stream_.device().pinned.allocate(*stream_.clock(), bytes, &memory_, error);
  }
  void* memory() const { return memory_; }

private:
  Stream& stream_;
  void* memory_ = nullptr;
};

}  // namespace

rlk_status copy(Stream& stream, void* destination, const void* source, uint64_t bytes, int32_t kind, rlk_error* error) {
  DeviceState& device = stream.device();
  if (kind != RLK_COPY_HOST_TO_DEVICE && kind != RLK_COPY_DEVICE_TO_HOST && kind != RLK_COPY_DEVICE_TO_DEVICE) {
    return failf(error, RLK_INVALID_ARGUMENT,
                 "copy: kind is %d; expected RLK_COPY_HOST_TO_DEVICE, _DEVICE_TO_HOST or "
                 "_DEVICE_TO_DEVICE",
                 kind);
  }
  if (bytes == 0) return RLK_OK;
  if (destination == nullptr || source == nullptr) {
    return failf(error, RLK_INVALID_ARGUMENT, "copy: %s is NULL and bytes is %llu; expected memory",
                 destination == nullptr ? "destination" : "source", static_cast<unsigned long long>(bytes));
  }
  stream.clock()->issue();
  const auto enqueue = [&](void* to, const void* from, uint64_t count) {
    return call_of(device.api, "copy", device.api.stream->copy, stream.handle(), to, from, count, kind, error);
  };
  const bool to_host = kind == RLK_COPY_DEVICE_TO_HOST;
  const void* host = to_host ? destination : source;
  if (kind == RLK_COPY_DEVICE_TO_DEVICE || is_pinned(device, host)) return enqueue(destination, source, bytes);

  bool capturing = false;
  if (const rlk_status s = stream.is_capturing(&capturing, error); s != RLK_OK) return s;
  if (capturing) {
    return failf(
        error, RLK_CAPTURE_FORBIDS,
        "copy: the host memory is not pinned, so the copy would wait while a graph is captured. Allocate it with "
        "RLK_MEMORY_PINNED");
  }
  PinnedBlock block(stream);
  if (const rlk_status s = block.allocate(std::min(bytes, kBlockBytes), error); s != RLK_OK) return s;
  for (uint64_t at = 0; at < bytes; at += kBlockBytes) {
    const uint64_t count = std::min(kBlockBytes, bytes - at);
    const char* from = static_cast<const char*>(source) + at;
    char* to = static_cast<char*>(destination) + at;
    if (!to_host) std::memcpy(block.memory(), from, count);
    rlk_status status = to_host ? enqueue(block.memory(), from, count) : enqueue(to, block.memory(), count);
    if (status == RLK_OK) status = stream.wait_quietly(error);
    if (status != RLK_OK) return status;
    if (to_host) std::memcpy(to, block.memory(), count);
  }
  return RLK_OK;
}

rlk_status copy_peer(Stream& stream, const Place& to, const Place& from, uint64_t bytes, rlk_error* error) {
  DeviceState& own = stream.device();
  if (to.device == &own && from.device == &own) {
    return copy(stream, to.memory, from.memory, bytes, RLK_COPY_DEVICE_TO_DEVICE, error);
  }
  if (to.device != &own && from.device != &own) {
    return failf(error, RLK_INVALID_ARGUMENT,
                 "copy_peer: from %s to %s on a stream of %s; expected a stream of one of the two",
                 from.device->entry.name().c_str(), to.device->entry.name().c_str(), own.entry.name().c_str());
  }
  if (bytes == 0) return RLK_OK;
  if (to.memory == nullptr || from.memory == nullptr) {
    return failf(error, RLK_INVALID_ARGUMENT, "copy_peer: %s is NULL and bytes is %llu; expected memory",
                 to.memory == nullptr ? "destination" : "source", static_cast<unsigned long long>(bytes));
  }
  rlk_status status = RLK_UNSUPPORTED;
  // Only a plugin knows what is behind handles of its own.
  const bool is_one_plugin = to.device->entry.owner->api == from.device->entry.owner->api;
  if (is_one_plugin && own.api.stream->copy_peer != nullptr) {
    stream.clock()->issue();
    status = call_of(own.api, "copy_peer", own.api.stream->copy_peer, stream.handle(), to.memory, to.device->handle,
                     from.memory, from.device->handle, bytes, error);
  }
  if (status != RLK_UNSUPPORTED) return status;
  return failf(error, RLK_UNSUPPORTED, "copy_peer: the backend %s cannot copy from %s to %s; copy through the host",
               own.entry.backend.c_str(), from.device->entry.name().c_str(), to.device->entry.name().c_str());
}

}  // namespace rlk::core
