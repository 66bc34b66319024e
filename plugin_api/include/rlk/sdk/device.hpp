// A device, its streams and its events as C++ classes to derive from. Override what the hardware has: a method that is
// marked optional and not overridden becomes a NULL slot, which the host knows to be "cannot". Where only the vendor's
// runtime can tell, an optional method throws Error(RLK_UNSUPPORTED, ...), which means the same.
#pragma once

#include <rlk/abi.h>
#include <rlk/sdk/error.hpp>

#include <memory>
#include <type_traits>

namespace rlk::sdk {

class Stream;
class Event;

class Device {
public:
  virtual ~Device() = default;
  virtual void* allocate(int32_t kind, uint64_t bytes) = 0;
  virtual void deallocate(int32_t kind, void* memory) = 0;
  virtual void memory_info(uint64_t& free_bytes, uint64_t& total_bytes) = 0;
  virtual int32_t pointer_kind(const void*) { return RLK_POINTER_UNKNOWN; }  // optional
  virtual bool can_access_peer(Device&) { return false; }                    // optional
  virtual void native(rlk_native_device&) {}                                 // optional
  virtual std::unique_ptr<Stream> create_stream(int32_t priority) = 0;
  virtual std::unique_ptr<Stream> wrap_stream(void* native) = 0;
  virtual std::unique_ptr<Event> create_event(bool timing) = 0;
  virtual std::unique_ptr<Event> wrap_event(void* /*native*/) { return nullptr; }  // optional
};

class Stream {
public:
  virtual ~Stream() = default;  // has waited for the work, unless the stream is wrapped
  virtual void* native() = 0;   // what is thrown here is NULL to the host
  // RLK_OK, RLK_NOT_READY or, with data_error filled, RLK_DATA_ERROR; failures are thrown.
  virtual rlk_status query(rlk_data_error& data_error) = 0;
  // RLK_OK, RLK_TIMEOUT or RLK_DATA_ERROR.
  virtual rlk_status synchronize(uint64_t timeout_ns, rlk_data_error& data_error) = 0;
  virtual void wait(Event&) = 0;
  virtual void copy(void* destination, const void* source, uint64_t bytes, int32_t kind) = 0;
  virtual void fill(void* memory, uint8_t value, uint64_t bytes) = 0;
  virtual void enqueue_host_function(rlk_host_function, void*) {}  // optional
  virtual void* allocate_async(uint64_t) { return nullptr; }       // optional, both or neither
  virtual void deallocate_async(void*) {}                          // optional
  virtual void copy_peer(void* /*to*/, Device& /*to_device*/, const void* /*from*/, Device& /*from_device*/,
                         uint64_t /*bytes*/) {}  // optional
  virtual uint64_t capture_id() { return 0; }    // optional
  // optional: release(user) once nothing of the capture in progress can run any more
  virtual void capture_retain(rlk_host_function /*release*/, void* /*user*/) {}
};

class Event {
public:
  virtual ~Event() = default;
  virtual void record(Stream&) = 0;
  virtual rlk_status query() = 0;                              // RLK_OK or RLK_NOT_READY
  virtual rlk_status synchronize(uint64_t timeout_ns) = 0;     // RLK_OK or RLK_TIMEOUT
  virtual double elapsed_ms(Event& /*start*/) { return 0.0; }  // optional; from start to this
  virtual void* native() { return nullptr; }                   // optional
};

namespace detail {

// &Derived::method has Base's member type exactly when Derived does not override it.
#define RLK_SDK_OVERRIDES(Derived, Base, method) \
  (!std::is_same<decltype(&Derived::method), decltype(&Base::method)>::value)

inline Device* device_of(rlk_plugin_device* d) noexcept {
  return reinterpret_cast<Device*>(d);
}
inline Stream* stream_of(rlk_plugin_stream* s) noexcept {
  return reinterpret_cast<Stream*>(s);
}
inline Event* event_of(rlk_plugin_event* e) noexcept {
  return reinterpret_cast<Event*>(e);
}

template <class D>
struct DeviceThunks {
  static rlk_status allocate(rlk_plugin_device* d, int32_t kind, uint64_t bytes, void** out,
                             rlk_error* error) noexcept {
    return guard(error, [&] { return *out = device_of(d)->allocate(kind, bytes), RLK_OK; });
  }
  static rlk_status deallocate(rlk_plugin_device* d, int32_t kind, void* memory, rlk_error* error) noexcept {
    return guard(error, [&] { return device_of(d)->deallocate(kind, memory), RLK_OK; });
  }
  static rlk_status memory_info(rlk_plugin_device* d, uint64_t* available, uint64_t* total, rlk_error* error) noexcept {
    return guard(error, [&] { return device_of(d)->memory_info(*available, *total), RLK_OK; });
  }
  static rlk_status pointer_kind(rlk_plugin_device* d, const void* pointer, int32_t* out, rlk_error* error) noexcept {
    return guard(error, [&] { return *out = device_of(d)->pointer_kind(pointer), RLK_OK; });
  }
  static rlk_status can_access_peer(rlk_plugin_device* d, rlk_plugin_device* peer, int32_t* out,
                                    rlk_error* error) noexcept {
    return guard(error, [&] { return *out = device_of(d)->can_access_peer(*device_of(peer)) ? 1 : 0, RLK_OK; });
  }
  static rlk_status native(rlk_plugin_device* d, rlk_native_device* out, rlk_error* error) noexcept {
    return guard(error, [&] {
      rlk_native_device mine = rlk_native_device();
      device_of(d)->native(mine);
      answer(mine, out);
      return RLK_OK;
    });
  }
  static constexpr rlk_device_api kTable = {
      sizeof(rlk_device_api),
      0,
      &allocate,
      &deallocate,
      &memory_info,
      RLK_SDK_OVERRIDES(D, Device, pointer_kind) ? &pointer_kind : nullptr,
      RLK_SDK_OVERRIDES(D, Device, can_access_peer) ? &can_access_peer : nullptr,
      RLK_SDK_OVERRIDES(D, Device, native) ? &native : nullptr,
  };
};

template <class S>
struct StreamThunks {
  static rlk_status create(rlk_plugin_device* d, int32_t priority, rlk_plugin_stream** out, rlk_error* error) noexcept {
    return guard(error, [&] {
      *out = reinterpret_cast<rlk_plugin_stream*>(device_of(d)->create_stream(priority).release());
      return RLK_OK;
    });
  }
  static rlk_status wrap(rlk_plugin_device* d, void* native, rlk_plugin_stream** out, rlk_error* error) noexcept {
    return guard(error, [&] {
      *out = reinterpret_cast<rlk_plugin_stream*>(device_of(d)->wrap_stream(native).release());
      return RLK_OK;
    });
  }
  static rlk_status destroy(rlk_plugin_stream* s, rlk_error* error) noexcept {
    return guard(error, [&] { return delete stream_of(s), RLK_OK; });
  }
  static void* native(rlk_plugin_stream* s) noexcept {
    void* handle = nullptr;
    guard(nullptr, [&] { return handle = stream_of(s)->native(), RLK_OK; });
    return handle;
  }

  // Both questions may be asked without wanting the details of a data error.
  template <class Ask>
  static rlk_status ask(rlk_data_error* out, rlk_error* error, Ask&& question) noexcept {
    return guard(error, [&] {
      rlk_data_error mine = rlk_data_error();
      mine.struct_size = sizeof(mine);
      const rlk_status status = question(mine);
      if (status == RLK_DATA_ERROR) {
        fail(error, status, "a tensor's values break their domain; see the data error");
        if (out != nullptr && out->struct_size >= sizeof(mine)) {
          mine.struct_size = out->struct_size;
          *out = mine;
        }
      } else if (status == RLK_TIMEOUT) {
        fail(error, status, "the stream did not finish within the time given; its work goes on");
      }
      return status;
    });
  }
  static rlk_status query(rlk_plugin_stream* s, rlk_data_error* out, rlk_error* error) noexcept {
    return ask(out, error, [&](rlk_data_error& mine) { return stream_of(s)->query(mine); });
  }
  static rlk_status synchronize(rlk_plugin_stream* s, uint64_t timeout_ns, rlk_data_error* out,
                                rlk_error* error) noexcept {
    return ask(out, error, [&](rlk_data_error& mine) { return stream_of(s)->synchronize(timeout_ns, mine); });
  }
  static rlk_status wait_event(rlk_plugin_stream* s, rlk_plugin_event* e, rlk_error* error) noexcept {
    return guard(error, [&] { return stream_of(s)->wait(*event_of(e)), RLK_OK; });
  }
  static rlk_status copy(rlk_plugin_stream* s, void* to, const void* from, uint64_t bytes, int32_t kind,
                         rlk_error* error) noexcept {
    return guard(error, [&] { return stream_of(s)->copy(to, from, bytes, kind), RLK_OK; });
  }
  static rlk_status fill(rlk_plugin_stream* s, void* memory, uint8_t value, uint64_t bytes, rlk_error* error) noexcept {
    return guard(error, [&] { return stream_of(s)->fill(memory, value, bytes), RLK_OK; });
  }
  static rlk_status enqueue_host_function(rlk_plugin_stream* s, rlk_host_function f, void* user,
                                          rlk_error* error) noexcept {
    return guard(error, [&] { return stream_of(s)->enqueue_host_function(f, user), RLK_OK; });
  }
  static rlk_status allocate_async(rlk_plugin_stream* s, uint64_t bytes, void** out, rlk_error* error) noexcept {
    return guard(error, [&] { return *out = stream_of(s)->allocate_async(bytes), RLK_OK; });
  }
  static rlk_status deallocate_async(rlk_plugin_stream* s, void* memory, rlk_error* error) noexcept {
    return guard(error, [&] { return stream_of(s)->deallocate_async(memory), RLK_OK; });
  }
  static rlk_status copy_peer(rlk_plugin_stream* s, void* to, rlk_plugin_device* to_device, const void* from,
                              rlk_plugin_device* from_device, uint64_t bytes, rlk_error* error) noexcept {
    return guard(error, [&] {
      return stream_of(s)->copy_peer(to, *device_of(to_device), from, *device_of(from_device), bytes), RLK_OK;
    });
  }
  static rlk_status capture_id(rlk_plugin_stream* s, uint64_t* out, rlk_error* error) noexcept {
    return guard(error, [&] { return *out = stream_of(s)->capture_id(), RLK_OK; });
  }
  static rlk_status capture_retain(rlk_plugin_stream* s, rlk_host_function release, void* user,
                                   rlk_error* error) noexcept {
    return guard(error, [&] { return stream_of(s)->capture_retain(release, user), RLK_OK; });
  }
  static constexpr rlk_stream_api kTable = {
      sizeof(rlk_stream_api),
      0,
      &create,
      &wrap,
      &destroy,
      &native,
      &query,
      &synchronize,
      &wait_event,
      &copy,
      &fill,
      RLK_SDK_OVERRIDES(S, Stream, enqueue_host_function) ? &enqueue_host_function : nullptr,
      RLK_SDK_OVERRIDES(S, Stream, allocate_async) ? &allocate_async : nullptr,
      RLK_SDK_OVERRIDES(S, Stream, deallocate_async) ? &deallocate_async : nullptr,
      RLK_SDK_OVERRIDES(S, Stream, copy_peer) ? &copy_peer : nullptr,
      RLK_SDK_OVERRIDES(S, Stream, capture_id) ? &capture_id : nullptr,
      RLK_SDK_OVERRIDES(S, Stream, capture_retain) ? &capture_retain : nullptr,
  };
};

template <class E, class D>
struct EventThunks {
  static rlk_status create(rlk_plugin_device* d, uint32_t flags, rlk_plugin_event** out, rlk_error* error) noexcept {
    return guard(error, [&] {
      const bool timing = (flags & RLK_EVENT_TIMING) != 0;
      *out = reinterpret_cast<rlk_plugin_event*>(device_of(d)->create_event(timing).release());
      return RLK_OK;
    });
  }
  static rlk_status destroy(rlk_plugin_event* e, rlk_error* error) noexcept {
    return guard(error, [&] { return delete event_of(e), RLK_OK; });
  }
  static rlk_status record(rlk_plugin_event* e, rlk_plugin_stream* s, rlk_error* error) noexcept {
    return guard(error, [&] { return event_of(e)->record(*stream_of(s)), RLK_OK; });
  }
  static rlk_status query(rlk_plugin_event* e, rlk_error* error) noexcept {
    return guard(error, [&] { return event_of(e)->query(); });
  }
  static rlk_status synchronize(rlk_plugin_event* e, uint64_t timeout_ns, rlk_error* error) noexcept {
    return guard(error, [&] { return event_of(e)->synchronize(timeout_ns); });
  }
  static rlk_status elapsed_ms(rlk_plugin_event* start, rlk_plugin_event* end, double* out, rlk_error* error) noexcept {
    return guard(error, [&] { return *out = event_of(end)->elapsed_ms(*event_of(start)), RLK_OK; });
  }
  static rlk_status wrap(rlk_plugin_device* d, void* native, rlk_plugin_event** out, rlk_error* error) noexcept {
    return guard(error, [&] {
      *out = reinterpret_cast<rlk_plugin_event*>(device_of(d)->wrap_event(native).release());
      return RLK_OK;
    });
  }
  static void* native(rlk_plugin_event* e) noexcept {
    void* handle = nullptr;
    guard(nullptr, [&] { return handle = event_of(e)->native(), RLK_OK; });
    return handle;
  }
  static constexpr rlk_event_api kTable = {
      sizeof(rlk_event_api),
      0,
      &create,
      &destroy,
      &record,
      &query,
      &synchronize,
      RLK_SDK_OVERRIDES(E, Event, elapsed_ms) ? &elapsed_ms : nullptr,
      RLK_SDK_OVERRIDES(D, Device, wrap_event) ? &wrap : nullptr,
      RLK_SDK_OVERRIDES(E, Event, native) ? &native : nullptr,
  };
};

}  // namespace detail
}  // namespace rlk::sdk
