// rlk.h: streams, memory in stream order, copies, graphs.
#include "core/dispatch/device/copy.hpp"
#include "loader/api/handles.hpp"

using rlk::core::CachingAllocator;
using rlk::core::DeviceState;
using rlk::core::failf;
using rlk::core::Graph;
using rlk::core::Stream;
using rlk::loader::guarded;

namespace {

template <class Make>
rlk_status make_stream(rlk_runtime* runtime, const char* backend, uint32_t ordinal, rlk_stream** out, rlk_error* error,
                       Make&& make) {
  *out = nullptr;
  DeviceState* device = nullptr;
  rlk_status status = runtime->dispatcher->device(backend, ordinal, &device, error);
  if (status != RLK_OK) return status;
  auto made = std::make_unique<rlk_stream>();
  made->runtime = runtime;
  status = make(*device, runtime->dispatcher->counters(), &made->stream);
  if (status == RLK_OK) *out = made.release();
  return status;
}

// Memory is not managed during a capture: each replay would repeat the allocation, and nothing would free it.
rlk_status refuse_capture(const char* function, Stream& stream, rlk_error* error) {
  bool capturing = false;
  if (const rlk_status status = stream.is_capturing(&capturing, error); status != RLK_OK) return status;
  if (!capturing) return RLK_OK;
  return failf(error, RLK_CAPTURE_FORBIDS, "%s: stream %s is capturing a graph; allocate and free outside the capture",
               function, stream.name().c_str());
}

CachingAllocator* owner_of(DeviceState& device, const void* memory) {
  for (CachingAllocator* allocator : {&device.memory, &device.pinned}) {
    if (allocator->owns(memory)) return allocator;
  }
  return nullptr;
}

}  // namespace

extern "C" {

rlk_status rlk_stream_create(rlk_runtime* runtime, const char* backend, uint32_t ordinal, int32_t priority,
                             rlk_stream** out, rlk_error* error) {
  RLK_REQUIRE_ARGUMENT(runtime);
  RLK_REQUIRE_ARGUMENT(backend);
  RLK_REQUIRE_ARGUMENT(out);
  return guarded(error, [&] {
    return make_stream(runtime, backend, ordinal, out, error, [&](auto& device, auto& counters, auto* stream) {
      return Stream::create(device, counters, priority, stream, error);
    });
  });
}

rlk_status rlk_stream_wrap(rlk_runtime* runtime, const char* backend, uint32_t ordinal, void* native, rlk_stream** out,
                           rlk_error* error) {
  RLK_REQUIRE_ARGUMENT(runtime);
  RLK_REQUIRE_ARGUMENT(backend);
  RLK_REQUIRE_ARGUMENT(out);
  return guarded(error, [&] {
    return make_stream(runtime, backend, ordinal, out, error, [&](auto& device, auto& counters, auto* stream) {
      return Stream::wrap(device, counters, native, stream, error);
    });
  });
}

rlk_status rlk_stream_native(rlk_stream* stream, void** out, rlk_error* error) {
  RLK_REQUIRE_ARGUMENT(stream);
  RLK_REQUIRE_ARGUMENT(out);
  return guarded(error, [&]() -> rlk_status {
    *out = stream->stream->clock()->native;
    return RLK_OK;
  });
}

rlk_status rlk_stream_destroy(rlk_stream* stream, rlk_error* error) {
  return guarded(error, [&]() -> rlk_status {
    if (stream == nullptr) return RLK_OK;
    const rlk_status status = stream->stream->finish(error);
    // Refused while it captures; any other answer is an error that was never asked for.
    if (status != RLK_INVALID_ARGUMENT) delete stream;
    return status;
  });
}

rlk_status rlk_stream_query(rlk_stream* stream, rlk_error* error) {
  RLK_REQUIRE_ARGUMENT(stream);
  return guarded(error, [&]() -> rlk_status { return stream->runtime->dispatcher->query(*stream->stream, error); });
}

rlk_status rlk_stream_synchronize(rlk_stream* stream, uint64_t timeout_ns, rlk_error* error) {
  RLK_REQUIRE_ARGUMENT(stream);
  return guarded(error, [&]() -> rlk_status {
    return stream->runtime->dispatcher->synchronize(*stream->stream, timeout_ns, error);
  });
}

rlk_status rlk_allocate(rlk_stream* stream, int32_t kind, uint64_t bytes, void** out, rlk_error* error) {
  RLK_REQUIRE_ARGUMENT(stream);
  RLK_REQUIRE_ARGUMENT(out);
  return guarded(error, [&]() -> rlk_status {
    *out = nullptr;
    CachingAllocator* allocator = stream->stream->device().allocator(kind);
    if (allocator == nullptr) {
      return failf(error, RLK_INVALID_ARGUMENT,
                   "rlk_allocate: kind is %d; expected RLK_MEMORY_DEVICE (0) or RLK_MEMORY_PINNED (1)", kind);
    }
    if (const rlk_status status = refuse_capture("rlk_allocate", *stream->stream, error); status != RLK_OK)
      return status;
    return allocator->allocate(*stream->stream->clock(), bytes, out, error);
  });
}

rlk_status rlk_deallocate(rlk_stream* stream, void* memory, rlk_error* error) {
  RLK_REQUIRE_ARGUMENT(stream);
  return guarded(error, [&]() -> rlk_status {
    if (memory == nullptr) return RLK_OK;
    CachingAllocator* allocator = owner_of(stream->stream->device(), memory);
    if (allocator == nullptr) {
      return failf(error, RLK_INVALID_ARGUMENT,
                   "rlk_deallocate: %p is not memory in use of device %s; it was freed already, or is not from "
                   "rlk_allocate, or is another device's",
                   memory, stream->stream->name().c_str());
    }
    if (const rlk_status status = refuse_capture("rlk_deallocate", *stream->stream, error); status != RLK_OK)
      return status;
    return allocator->deallocate(memory, stream->stream->fence(true), error);
  });
}

rlk_status rlk_record_stream(rlk_stream* user, void* memory, rlk_error* error) {
  RLK_REQUIRE_ARGUMENT(user);
  return guarded(error, [&]() -> rlk_status {
    CachingAllocator* allocator = owner_of(user->stream->device(), memory);
    if (allocator == nullptr) {
      return failf(error, RLK_INVALID_ARGUMENT, "rlk_record_stream: %p is not memory in use of device %s", memory,
                   user->stream->name().c_str());
    }
    if (const rlk_status status = refuse_capture("rlk_record_stream", *user->stream, error); status != RLK_OK)
      return status;
    return allocator->record_use(memory, user->stream->fence(true), error);
  });
}

rlk_status rlk_copy(rlk_stream* stream, void* destination, const void* source, uint64_t bytes, int32_t kind,
                    rlk_error* error) {
  RLK_REQUIRE_ARGUMENT(stream);
  return guarded(
      error, [&]() -> rlk_status { return rlk::core::copy(*stream->stream, destination, source, bytes, kind, error); });
}

rlk_status rlk_copy_peer(rlk_stream* stream, void* destination, uint32_t destination_ordinal, const void* source,
                         uint32_t source_ordinal, uint64_t bytes, rlk_error* error) {
  RLK_REQUIRE_ARGUMENT(stream);
  return guarded(error, [&]() -> rlk_status {
    const std::string& backend = stream->stream->device().entry.backend;
    rlk::core::Place to{destination}, from{const_cast<void*>(source)};
    rlk::core::Dispatcher& dispatcher = *stream->runtime->dispatcher;
    DeviceState& own = stream->stream->device();  // after a reload another device may have its address
    const auto find = [&](uint32_t ordinal, DeviceState** device) -> rlk_status {
      if (ordinal != own.entry.ordinal) return dispatcher.device(backend, ordinal, device, error);
      *device = &own;
      return RLK_OK;
    };
    rlk_status status = find(destination_ordinal, &to.device);
    if (status == RLK_OK) status = find(source_ordinal, &from.device);
    return status != RLK_OK ? status : rlk::core::copy_peer(*stream->stream, to, from, bytes, error);
  });
}

rlk_status rlk_graph_begin(rlk_stream* stream, rlk_error* error) {
  RLK_REQUIRE_ARGUMENT(stream);
  return guarded(error, [&]() -> rlk_status { return stream->stream->begin_capture(error); });
}

rlk_status rlk_graph_end(rlk_stream* stream, rlk_graph** out, rlk_error* error) {
  RLK_REQUIRE_ARGUMENT(stream);
  RLK_REQUIRE_ARGUMENT(out);
  return guarded(error, [&]() -> rlk_status {
    *out = nullptr;
    auto made = std::make_unique<rlk_graph>();
    made->runtime = stream->runtime;
    const rlk_status status = Graph::end_capture(*stream->stream, &made->graph, error);
    if (status == RLK_OK) *out = made.release();
    return status;
  });
}

rlk_status rlk_graph_launch(rlk_graph* graph, rlk_stream* stream, rlk_error* error) {
  RLK_REQUIRE_ARGUMENT(graph);
  RLK_REQUIRE_ARGUMENT(stream);
  return guarded(error, [&]() -> rlk_status { return graph->graph->launch(*stream->stream, error); });
}

rlk_status rlk_graph_destroy(rlk_graph* graph, rlk_error* error) {
  return guarded(error, [&]() -> rlk_status {
    delete graph;
    return RLK_OK;
  });
}

}  // extern "C"
