// A device as the checks of a device use it: every answer is checked, and what is made is given back.
#pragma once

#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "core/conformance/buffers.hpp"
#include "core/conformance/conformance.hpp"
#include "core/conformance/releases.hpp"

namespace rlk::core::conformance {

// Thrown by the tests of a device; device_checks() catches it.
struct Broken {
  Failure failure;
};
[[noreturn]] void broken(const char* code, const std::string& text);

// RLK_OK and, where the slot is optional, RLK_UNSUPPORTED are the answers that pass.
void expect_ok(rlk_status status, const char* code, const std::string& what, const rlk_error& error);

inline rlk_error empty_error() {
  rlk_error error{};
  error.struct_size = sizeof(error);
  return error;
}

class Session;

// Memory of the device, or pinned.
class Block {
public:
  Block(Session& session, int32_t kind, uint64_t bytes);
  ~Block();
  Block(Block&& other) noexcept;
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  Block& operator=(Block&& other) noexcept;  // exchanges
  std::byte* data() const { return static_cast<std::byte*>(memory_); }
  uint64_t bytes() const { return bytes_; }
  int32_t kind() const { return kind_; }
  // Gives the memory back now; the answer is checked.
  void release();

private:
  Session* session_;
  int32_t kind_;
  uint64_t bytes_;
  void* memory_ = nullptr;
};

// A stream of the owner, created or wrapped.
class StreamHandle {
public:
  static StreamHandle create(Session& session, int32_t priority = 0);
  // Empty when the device does not wrap this handle (RLK_UNSUPPORTED).
  static std::unique_ptr<StreamHandle> wrap(Session& session, void* native);
  ~StreamHandle();
  StreamHandle(StreamHandle&& other) noexcept;
  StreamHandle(const StreamHandle&) = delete;
  StreamHandle& operator=(const StreamHandle&) = delete;
  StreamHandle& operator=(StreamHandle&&) = delete;

  rlk_plugin_stream* get() const { return stream_; }
  void* native() const;
  void copy(void* to, const void* from, uint64_t bytes, int32_t kind);
  void fill(void* memory, uint8_t value, uint64_t bytes);
  // False when the device has no host functions.
  bool call(rlk_host_function function, void* user);
  rlk_status query();
  rlk_status synchronize(uint64_t timeout_ns);
  // Waits until all work is done; a failure when that takes too long.
  void settle();
  void destroy();  // now; the answer is checked

private:
  StreamHandle(Session& session, rlk_plugin_stream* stream) : session_(&session), stream_(stream) {}
  Session* session_;
  rlk_plugin_stream* stream_;
};

class EventHandle {
public:
  explicit EventHandle(Session& session, bool timing = false);
  // The same event by its native handle; empty where the device does not tell or wrap it.
  static std::unique_ptr<EventHandle> wrapped(Session& session, const EventHandle& event);
  ~EventHandle();
  EventHandle(const EventHandle&) = delete;
  EventHandle& operator=(const EventHandle&) = delete;
  rlk_plugin_event* get() const { return event_; }
  void record(const StreamHandle& stream);
  void before(const StreamHandle& stream);  // later work of the stream waits
  rlk_status query();
  rlk_status synchronize(uint64_t timeout_ns);

private:
  EventHandle(Session& session, rlk_plugin_event* event) : session_(&session), event_(event) {}
  Session* session_;
  rlk_plugin_event* event_ = nullptr;
};

class Session {
public:
  explicit Session(const Target& target) : target_(target) {}
  const Target& target() const { return target_; }
  const rlk_device_api& device() const { return *target_.owner->device; }
  const rlk_stream_api& streams() const { return *target_.owner->stream; }
  const rlk_event_api& events() const { return *target_.owner->event; }
  // What destructors of blocks, streams and events give back.
  Releases& releases() { return releases_; }
  bool is_inline() const { return (target_.owner_flags & RLK_DEVICE_INLINE_STREAMS) != 0; }
  bool is_unified() const { return (target_.owner_flags & RLK_DEVICE_UNIFIED_MEMORY) != 0; }
  Block device_block(uint64_t bytes) { return {*this, RLK_MEMORY_DEVICE, bytes}; }
  Block pinned_block(uint64_t bytes) { return {*this, RLK_MEMORY_PINNED, bytes}; }
  // Work never ended: streams and memory stay as they are.
  bool is_abandoned() const { return abandoned_; }
  void abandon() { abandoned_ = true; }
  // Longer than any work that a test gives, after each time that a stream is said to be done.
  void set_distrust(bool on) { distrust_ = on; }
  bool has_distrust() const { return distrust_; }
  // Gates that opened by themselves: this thread was stopped for long, or the device waits where it should not.
  int expired_gates() const { return expired_gates_; }
  void gate_expired() { ++expired_gates_; }

private:
  Target target_;
  Releases releases_;
  bool abandoned_ = false, distrust_ = false;
  int expired_gates_ = 0;
};

// Holds a stream: its later work cannot begin before open() or the end of the object. A gate stands only on devices
// that call host functions on another thread; declare it behind the streams and memory that it holds.
class Gate {
public:
  Gate(Session& session, StreamHandle& stream);
  ~Gate() { open(); }
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;
  bool holds() const { return holds_; }
  void open();
  // The longest that a gate holds, so that a device which waits where it should not is reported instead of hanging.
  static constexpr int kLongestHoldMs = 400;

private:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    std::thread::id enqueuer;
    bool entered = false, opened = false, expired = false;
  };
  static void hold(void* user);
  Session* session_;
  std::shared_ptr<State> state_;
  bool holds_ = false;
};

// Bytes that differ from place to place and from seed to seed.
std::byte pattern(uint32_t seed, uint64_t at);
void write_pattern(uint32_t seed, std::span<std::byte> bytes);
// The first place where the bytes are not the pattern, or bytes.size().
uint64_t first_unlike(uint32_t seed, std::span<const std::byte> bytes);
// "byte 17 of 4099 is 0x00, expected 0x5a"
std::string unlike_text(uint64_t at, uint64_t bytes, std::byte is, std::byte expected);

}  // namespace rlk::core::conformance
