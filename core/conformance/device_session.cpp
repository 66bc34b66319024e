// Slots called with their answers looked at.
#include "core/conformance/device_session.hpp"

#include <fmt/core.h>

#include <chrono>
#include <cstdio>
#include <exception>
#include <utility>

#include "core/declaration/error.hpp"
#include "core/declaration/plugin_call.hpp"
#include "core/declaration/text.hpp"

namespace rlk::core::conformance {
namespace {

constexpr uint64_t kDeadlineNs = 30'000'000'000u;
constexpr std::chrono::milliseconds kDistrust(20);    // for the short work of one copy or fill
constexpr std::chrono::milliseconds kEntryTime(200);  // until a host function has begun on an idle stream

}  // namespace

void broken(const char* code, const std::string& text) {
  throw Broken{{code, text}};
}

void expect_ok(rlk_status status, const char* code, const std::string& what, const rlk_error& error) {
  if (status == RLK_OK) return;
  const char* told = status == RLK_TIMEOUT ? "TIMEOUT" : status == RLK_DEVICE_LOST ? "DEVICE_LOST" : code;
  broken(told, fmt::format("{} answered {}: {}; expected RLK_OK", what, name_of_status(status), text_of(error)));
}

// ---- memory ---------------------------------------------------------------------------------------------------------

Block::Block(Session& session, int32_t kind, uint64_t bytes) : session_(&session), kind_(kind), bytes_(bytes) {
  rlk_error error = empty_error();
  const rlk_status status =
      call_plugin(session.device().allocate, session.target().owner_device, kind, bytes, &memory_, &error);
  const std::string what =
      fmt::format("allocating {} bytes of {} memory", bytes, kind == RLK_MEMORY_DEVICE ? "device" : "pinned");
  expect_ok(status, status == RLK_OUT_OF_MEMORY ? "NO_MEMORY" : "ALLOCATION", what, error);
  if (memory_ == nullptr) broken("ALLOCATION", what + " answered RLK_OK and gave NULL");
  if (reinterpret_cast<uintptr_t>(memory_) % 256 != 0) {
    char place[64];
    std::snprintf(place, sizeof(place), "%p", memory_);
    broken("ALLOCATION", fmt::format("{} gave {}, which is not aligned to 256 bytes", what, place));
  }
}

Block::Block(Block&& other) noexcept
    : session_(other.session_),
      kind_(other.kind_),
      bytes_(other.bytes_),
      memory_(std::exchange(other.memory_, nullptr)) {}

Block& Block::operator=(Block&& other) noexcept {
  std::swap(session_, other.session_);
  std::swap(kind_, other.kind_);
  std::swap(bytes_, other.bytes_);
  std::swap(memory_, other.memory_);
  return *this;
}

Block::~Block() {
  // After a failure the host cannot know what still uses the memory.
  if (memory_ == nullptr || session_->is_abandoned() || std::uncaught_exceptions() > 0) return;
  session_->releases().call("deallocate", session_->device().deallocate, session_->target().owner_device, kind_,
                            memory_);
}

void Block::release() {
  rlk_error error = empty_error();
  void* memory = std::exchange(memory_, nullptr);
  expect_ok(call_plugin(session_->device().deallocate, session_->target().owner_device, kind_, memory, &error),
            "ALLOCATION", "deallocating memory", error);
}

// ---- streams --------------------------------------------------------------------------------------------------------

StreamHandle StreamHandle::create(Session& session, int32_t priority) {
  rlk_error error = empty_error();
  rlk_plugin_stream* stream = nullptr;
  const rlk_status status =
      call_plugin(session.streams().create, session.target().owner_device, priority, &stream, &error);
  expect_ok(status, "NO_STREAM", fmt::format("creating a stream of priority {}", priority), error);
  if (stream == nullptr) broken("NO_STREAM", "creating a stream answered RLK_OK and gave NULL");
  return {session, stream};
}

std::unique_ptr<StreamHandle> StreamHandle::wrap(Session& session, void* native) {
  rlk_error error = empty_error();
  rlk_plugin_stream* stream = nullptr;
  const rlk_status status = call_plugin(session.streams().wrap, session.target().owner_device, native, &stream, &error);
  if (status == RLK_UNSUPPORTED) return nullptr;
  expect_ok(status, "WRAP", "wrapping a native stream", error);
  if (stream == nullptr) broken("WRAP", "wrapping a native stream answered RLK_OK and gave NULL");
  return std::unique_ptr<StreamHandle>(new StreamHandle(session, stream));
}

StreamHandle::StreamHandle(StreamHandle&& other) noexcept
    : session_(other.session_), stream_(std::exchange(other.stream_, nullptr)) {}

StreamHandle::~StreamHandle() {
  if (stream_ != nullptr && !session_->is_abandoned())
    session_->releases().call("stream destroy", session_->streams().destroy, stream_);
}

void StreamHandle::destroy() {
  rlk_error error = empty_error();
  expect_ok(call_plugin(session_->streams().destroy, std::exchange(stream_, nullptr), &error), "STREAM",
            "destroying a stream", error);
}

void* StreamHandle::native() const {
  return call_plugin(session_->streams().native, stream_);
}

void StreamHandle::copy(void* to, const void* from, uint64_t bytes, int32_t kind) {
  rlk_error error = empty_error();
  expect_ok(call_plugin(session_->streams().copy, stream_, to, from, bytes, kind, &error), "DEVICE_COPY",
            fmt::format("copying {} bytes, kind {},", bytes, kind), error);
}

void StreamHandle::fill(void* memory, uint8_t value, uint64_t bytes) {
  rlk_error error = empty_error();
  expect_ok(call_plugin(session_->streams().fill, stream_, memory, value, bytes, &error), "DEVICE_FILL",
            fmt::format("filling {} bytes", bytes), error);
}

bool StreamHandle::call(rlk_host_function function, void* user) {
  if (session_->streams().enqueue_host_function == nullptr) return false;
  rlk_error error = empty_error();
  const rlk_status status = call_plugin(session_->streams().enqueue_host_function, stream_, function, user, &error);
  if (status == RLK_UNSUPPORTED) return false;
  expect_ok(status, "HOST_FUNCTION", "enqueueing a host function", error);
  return true;
}

rlk_status StreamHandle::query() {
  rlk_error error = empty_error();
  const rlk_status status = call_plugin(session_->streams().query, stream_, nullptr, &error);
  if (status != RLK_NOT_READY) expect_ok(status, "ASYNC_FAILURE", "query of a stream", error);
  return status;
}

rlk_status StreamHandle::synchronize(uint64_t timeout_ns) {
  rlk_error error = empty_error();
  const rlk_status status = call_plugin(session_->streams().synchronize, stream_, timeout_ns, nullptr, &error);
  if (status != RLK_TIMEOUT) expect_ok(status, "ASYNC_FAILURE", "synchronize of a stream", error);
  return status;
}

void StreamHandle::settle() {
  if (synchronize(kDeadlineNs) == RLK_OK) {
    if (session_->has_distrust()) std::this_thread::sleep_for(kDistrust);
    return;
  }
  session_->abandon();
  broken("TIMEOUT", "a stream's work was not done after 30 s");
}

// ---- events ---------------------------------------------------------------------------------------------------------

EventHandle::EventHandle(Session& session, bool timing) : session_(&session) {
  rlk_error error = empty_error();
  expect_ok(call_plugin(session.events().create, session.target().owner_device, timing ? RLK_EVENT_TIMING : 0, &event_,
                        &error),
            "EVENT", "creating an event", error);
  if (event_ == nullptr) broken("EVENT", "creating an event answered RLK_OK and gave NULL");
}

std::unique_ptr<EventHandle> EventHandle::wrapped(Session& session, const EventHandle& event) {
  const rlk_event_api& api = session.events();
  if (api.wrap == nullptr || api.native == nullptr) return nullptr;
  void* native = call_plugin(api.native, event.event_);
  rlk_plugin_event* wrapped = nullptr;
  rlk_error error = empty_error();
  const rlk_status status = call_plugin(api.wrap, session.target().owner_device, native, &wrapped, &error);
  if (status == RLK_UNSUPPORTED) return nullptr;
  expect_ok(status, "EVENT", "wrapping a native event", error);
  if (wrapped == nullptr) broken("EVENT", "wrapping a native event answered RLK_OK and gave NULL");
  return std::unique_ptr<EventHandle>(new EventHandle(session, wrapped));
}

EventHandle::~EventHandle() {
  if (!session_->is_abandoned()) session_->releases().call("event destroy", session_->events().destroy, event_);
}

void EventHandle::record(const StreamHandle& stream) {
  rlk_error error = empty_error();
  expect_ok(call_plugin(session_->events().record, event_, stream.get(), &error), "EVENT", "recording an event", error);
}

void EventHandle::before(const StreamHandle& stream) {
  rlk_error error = empty_error();
  expect_ok(call_plugin(session_->streams().wait_event, stream.get(), event_, &error), "EVENT", "wait_event", error);
}

rlk_status EventHandle::query() {
  rlk_error error = empty_error();
  const rlk_status status = call_plugin(session_->events().query, event_, &error);
  if (status != RLK_NOT_READY) expect_ok(status, "EVENT", "query of an event", error);
  return status;
}

rlk_status EventHandle::synchronize(uint64_t timeout_ns) {
  rlk_error error = empty_error();
  const rlk_status status = call_plugin(session_->events().synchronize, event_, timeout_ns, &error);
  if (status != RLK_TIMEOUT) expect_ok(status, "EVENT", "synchronize of an event", error);
  return status;
}

// ---- the gate -------------------------------------------------------------------------------------------------------

Gate::Gate(Session& session, StreamHandle& stream) : session_(&session), state_(std::make_shared<State>()) {
  if (session.is_inline()) return;
  state_->enqueuer = std::this_thread::get_id();
  // The function owns a share of the state: a device may call it later than it should.
  auto* share = new std::shared_ptr<State>(state_);
  if (!stream.call(&Gate::hold, share)) {
    delete share;
    return;
  }
  std::unique_lock lock(state_->mutex);
  holds_ = state_->changed.wait_for(lock, kEntryTime, [&] { return state_->entered; }) && !state_->opened;
  if (!holds_) state_->opened = true;
}

void Gate::open() {
  const std::lock_guard lock(state_->mutex);
  if (std::exchange(state_->expired, false)) session_->gate_expired();
  state_->opened = true;
  state_->changed.notify_all();
}

void Gate::hold(void* user) {
  const std::unique_ptr<std::shared_ptr<State>> share(static_cast<std::shared_ptr<State>*>(user));
  State& state = **share;
  std::unique_lock lock(state.mutex);
  state.entered = true;
  if (std::this_thread::get_id() == state.enqueuer) state.opened = true;  // waiting would be for ourselves
  state.changed.notify_all();
  const auto longest = std::chrono::milliseconds(kLongestHoldMs);
  state.expired = !state.changed.wait_for(lock, longest, [&] { return state.opened; });
}

// ---- patterns -------------------------------------------------------------------------------------------------------

std::byte pattern(uint32_t seed, uint64_t at) {
  return static_cast<std::byte>((seed * 2654435761u + static_cast<uint32_t>(at) * 40503u) >> 11 & 0xff);
}

void write_pattern(uint32_t seed, std::span<std::byte> bytes) {
  for (uint64_t i = 0; i < bytes.size(); ++i) bytes[i] = pattern(seed, i);
}

uint64_t first_unlike(uint32_t seed, std::span<const std::byte> bytes) {
  uint64_t at = 0;
  while (at < bytes.size() && bytes[at] == pattern(seed, at)) ++at;
  return at;
}

std::string unlike_text(uint64_t at, uint64_t bytes, std::byte is, std::byte expected) {
  char text[96];
  std::snprintf(text, sizeof(text), "byte %llu of %llu is 0x%02x, expected 0x%02x", static_cast<unsigned long long>(at),
                static_cast<unsigned long long>(bytes), static_cast<unsigned>(is), static_cast<unsigned>(expected));
  return text;
}

}  // namespace rlk::core::conformance
