// rlk.h: events.
#include "core/declaration/plugin_call.hpp"
#include "loader/api/handles.hpp"

using rlk::core::call_plugin;
using rlk::core::check_made;
using rlk::core::DeviceState;
using rlk::core::failf;
using rlk::loader::guarded;

namespace {

// An event and a stream of different devices cannot be used together.
rlk_status same_device(const char* function, const rlk_event& event, const rlk_stream& stream, rlk_error* error) {
  const rlk::core::DeviceEntry& device = stream.stream->device().entry;
  if (event.device == &device) return RLK_OK;
  const bool same_name = event.device->name() == device.name();
  return failf(error, RLK_INVALID_ARGUMENT, "%s: the event belongs to %s and the stream to %s%s", function,
               event.device->name().c_str(), device.name().c_str(),
               same_name ? ", before and after a reload of its plugin: make both after it" : "");
}

template <class Make>
rlk_status make_event(const char* function, rlk_runtime* runtime, const char* backend, uint32_t ordinal,
                      rlk_event** out, rlk_error* error, Make&& make) {
  const char* missing = runtime == nullptr   ? "runtime"
                        : backend == nullptr ? "backend"
                        : out == nullptr     ? "out"
                                             : nullptr;
  if (missing != nullptr) return rlk::loader::refuse_null(error, function, missing);
  return guarded(error, [&]() -> rlk_status {
    *out = nullptr;
    auto made = std::make_unique<rlk_event>();
    DeviceState* device = nullptr;
    rlk_status status = runtime->dispatcher->device(backend, ordinal, &device, error);
    if (status != RLK_OK) return status;
    made->device = &device->entry;
    status = make(*device, *made);
    status = check_made(status, made->handle, "making an event", error);
    if (status == RLK_OK) *out = made.release();
    return status;
  });
}

}  // namespace

extern "C" {

rlk_status rlk_event_create(rlk_runtime* runtime, const char* backend, uint32_t ordinal, uint32_t flags,
                            rlk_event** out, rlk_error* error) {
  return make_event(__func__, runtime, backend, ordinal, out, error, [&](DeviceState& device, rlk_event& made) {
    return call_plugin(made.api().create, device.handle, flags, &made.handle, error);
  });
}

rlk_status rlk_event_wrap(rlk_runtime* runtime, const char* backend, uint32_t ordinal, void* native, rlk_event** out,
                          rlk_error* error) {
  RLK_REQUIRE_ARGUMENT(native);
  return make_event(__func__, runtime, backend, ordinal, out, error, [&](DeviceState& device, rlk_event& made) {
    if (made.api().wrap == nullptr) {
      return failf(error, RLK_UNSUPPORTED, "rlk_event_wrap: the backend %s cannot wrap events", backend);
    }
    return call_plugin(made.api().wrap, device.handle, native, &made.handle, error);
  });
}

rlk_status rlk_event_native(rlk_event* event, void** out, rlk_error* error) {
  RLK_REQUIRE_ARGUMENT(event);
  RLK_REQUIRE_ARGUMENT(out);
  return guarded(error, [&]() -> rlk_status {
    *out = event->api().native != nullptr ? call_plugin(event->api().native, event->handle) : nullptr;
    if (*out != nullptr) return RLK_OK;
    return failf(error, RLK_UNSUPPORTED, "rlk_event_native: events of %s have no handle of a vendor's runtime",
                 event->device->name().c_str());
  });
}

rlk_status rlk_event_destroy(rlk_event* event, rlk_error* error) {
  return guarded(error, [&]() -> rlk_status {
    if (event == nullptr) return RLK_OK;
    const std::unique_ptr<rlk_event> owned(event);
    return call_plugin(event->api().destroy, event->handle, error);
  });
}

rlk_status rlk_event_record(rlk_event* event, rlk_stream* stream, rlk_error* error) {
  RLK_REQUIRE_ARGUMENT(event);
  RLK_REQUIRE_ARGUMENT(stream);
  return guarded(error, [&]() -> rlk_status {
    const rlk_status status = same_device("rlk_event_record", *event, *stream, error);
    if (status != RLK_OK) return status;
    return call_plugin(event->api().record, event->handle, stream->stream->handle(), error);
  });
}

rlk_status rlk_stream_wait_event(rlk_stream* stream, rlk_event* event, rlk_error* error) {
  RLK_REQUIRE_ARGUMENT(stream);
  RLK_REQUIRE_ARGUMENT(event);
  return guarded(error, [&]() -> rlk_status {
    const rlk_status status = same_device("rlk_stream_wait_event", *event, *stream, error);
    if (status != RLK_OK) return status;
    stream->stream->note_wait();
    return call_plugin(event->device->owner->api->stream->wait_event, stream->stream->handle(), event->handle, error);
  });
}

rlk_status rlk_event_query(rlk_event* event, rlk_error* error) {
  RLK_REQUIRE_ARGUMENT(event);
  return guarded(error, [&]() -> rlk_status { return call_plugin(event->api().query, event->handle, error); });
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
    return call_plugin(api.elapsed_ms, start->handle, end->handle, out, error);
  });
}

}  // extern "C"
