// rlk.h: events.
#include "loader/api/handles.hpp"

using rlk::core::DeviceState;
using rlk::core::failf;
using rlk::loader::guarded;

namespace {

// An event and a stream of different devices cannot be used together.
rlk_status same_device(const char* function, const rlk_event& event, const rlk_stream& stream, rlk_error* error) {
  const rlk::core::DeviceEntry& device = stream.stream->device().entry;
  if (event.device == &device) return RLK_OK;
  return failf(error, RLK_INVALID_ARGUMENT, "%s: the event belongs to %s and the stream to %s", function,
               event.device->name().c_str(), device.name().c_str());
}

}  // namespace

extern "C" {

rlk_status rlk_event_create(rlk_runtime* runtime, const char* backend, uint32_t ordinal, uint32_t flags,
                            rlk_event** out, rlk_error* error) {
  RLK_REQUIRE_ARGUMENT(runtime);
  RLK_REQUIRE_ARGUMENT(backend);
  RLK_REQUIRE_ARGUMENT(out);
  return guarded(error, [&]() -> rlk_status {
    *out = nullptr;
    auto made = std::make_unique<rlk_event>();
    DeviceState* device = nullptr;
    rlk_status status = runtime->dispatcher->device(backend, ordinal, &device, error);
    if (status != RLK_OK) return status;
    made->device = &device->entry;
    status = made->api().create(device->handle, flags, &made->handle, error);
    if (status == RLK_OK) *out = made.release();
    return status;
  });
}

rlk_status rlk_event_destroy(rlk_event* event, rlk_error* error) {
  return guarded(error, [&]() -> rlk_status {
    if (event == nullptr) return RLK_OK;
    const std::unique_ptr<rlk_event> owned(event);
    return event->api().destroy(event->handle, error);
  });
}

rlk_status rlk_event_record(rlk_event* event, rlk_stream* stream, rlk_error* error) {
  RLK_REQUIRE_ARGUMENT(event);
  RLK_REQUIRE_ARGUMENT(stream);
  return guarded(error, [&]() -> rlk_status {
    const rlk_status status = same_device("rlk_event_record", *event, *stream, error);
    if (status != RLK_OK) return status;
    return event->api().record(event->handle, stream->stream->handle(), error);
  });
}

rlk_status rlk_stream_wait_event(rlk_stream* stream, rlk_event* event, rlk_error* error) {
  RLK_REQUIRE_ARGUMENT(stream);
  RLK_REQUIRE_ARGUMENT(event);
  return guarded(error, [&]() -> rlk_status {
    const rlk_status status = same_device("rlk_stream_wait_event", *event, *stream, error);
    if (status != RLK_OK) return status;
    stream->stream->note_wait();
    return event->device->owner->api->stream->wait_event(stream->stream->handle(), event->handle, error);
  });
}

rlk_status rlk_event_query(rlk_event* event, rlk_error* error) {
  RLK_REQUIRE_ARGUMENT(event);
  return guarded(error, [&]() -> rlk_status { return event->api().query(event->handle, error); });
}

rlk_status rlk_event_elapsed_ms(rlk_event* start, rlk_event* end, double* out, rlk_error* error) {
  RLK_REQUIRE_ARGUMENT(start);
  RLK_REQUIRE_ARGUMENT(end);
  RLK_REQUIRE_ARGUMENT(out);
  return guarded(error, [&]() -> rlk_status {
    const rlk_event_api& api = end->api();
    if (start->device != end->device || api.elapsed_ms == nullptr) {
      return failf(error, start->device != end->device ? RLK_INVALID_ARGUMENT : RLK_UNSUPPORTED,
                   "rlk_event_elapsed_ms: %s",
                   start->device != end->device ? "the events belong to different devices"
                                                : "this backend's events do not measure time");
    }
    return api.elapsed_ms(start->handle, end->handle, out, error);
  });
}

}  // extern "C"
