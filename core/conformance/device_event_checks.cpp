// Events between streams, and streams that were wrapped.
#include <fmt/core.h>
#include <rlk/abi/ext/draft/graph.h>

#include <chrono>
#include <cmath>

#include "core/conformance/device_checks.hpp"

namespace rlk::core::conformance {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint64_t kEventBytes = uint64_t{64} << 10;
constexpr double kHeldMs = 3;

void expect_all(const Block& block, uint8_t value, const char* code, const std::string& what) {
  for (uint64_t at = 0; at < block.bytes(); ++at) {
    if (block.data()[at] != std::byte{value}) {
      broken(code, what + ": " + unlike_text(at, block.bytes(), block.data()[at], std::byte{value}));
    }
  }
}

// Gives work that overtakes the time to show.
void let_overtake(StreamHandle& stream) {
  const Clock::time_point until = Clock::now() + std::chrono::milliseconds(5);
  while (stream.query() == RLK_NOT_READY && Clock::now() < until) std::this_thread::yield();
}

void event_status(Session& session, StreamHandle& stream) {
  EventHandle event(session);
  if (event.query() != RLK_OK || event.synchronize(0) != RLK_OK) {
    broken("EVENT", "an event that was never recorded is not ready");
  }
  const std::unique_ptr<EventHandle> wrapped = EventHandle::wrapped(session, event);
  Gate gate(session, stream);
  event.record(stream);
  if (gate.holds()) {
    if (wrapped != nullptr && wrapped->query() != RLK_NOT_READY) {
      broken("EVENT", "an event wrapped by its native handle answers RLK_OK while the work before it still runs");
    }
    if (event.query() != RLK_NOT_READY) {
      broken("EVENT", "query of an event answers RLK_OK while a host function before it still runs");
    }
    const Clock::time_point start = Clock::now();
    const bool timed_out = event.synchronize(0) == RLK_TIMEOUT && event.synchronize(1'000'000) == RLK_TIMEOUT;
    const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - start).count();
    if (!timed_out || ms >= Gate::kLongestHoldMs) {
      broken(
          "EVENT",
          fmt::format(
              "synchronize of an event with a deadline of 1 ms ended after {} ms while a host function before it ran, "
              "expected RLK_TIMEOUT at once",
              ms));
    }
  }
  gate.open();
  if (event.synchronize(10'000'000'000u) != RLK_OK || event.query() != RLK_OK) {
    broken("EVENT", "an event is not reached although the work before it is done");
  }
  if (wrapped != nullptr && wrapped->synchronize(10'000'000'000u) != RLK_OK) {
    broken("EVENT", "an event wrapped by its native handle is not reached although the work before it is done");
  }
  stream.settle();
}

void event_order(Session& session, StreamHandle& first, StreamHandle& second) {
  const Block device = session.device_block(kEventBytes), host = session.pinned_block(kEventBytes);
  for (int round = 0; round < 4; ++round) {
    const auto value = static_cast<uint8_t>(0x40 + round);
    first.fill(device.data(), 0xee, kEventBytes);
    first.settle();
    std::memset(host.data(), 0, kEventBytes);
    EventHandle event(session);
    event.record(second);  // an older record, which does not count
    Gate gate(session, first);
    first.fill(device.data(), value, kEventBytes);
    event.record(first);
    event.before(second);
    second.copy(host.data(), device.data(), kEventBytes, RLK_COPY_DEVICE_TO_HOST);
    if (gate.holds()) let_overtake(second);
    gate.open();
    second.settle();
    expect_all(
        host, value, "DEVICE_ORDER",
        "a copy on a stream that waits for an event of another stream, behind whose fill the event was recorded");
    first.settle();
  }
}

void event_time(Session& session, StreamHandle& stream) {
  if (session.events().elapsed_ms == nullptr) return;
  EventHandle start(session, true), end(session, true);
  const Clock::time_point before = Clock::now();
  start.record(stream);
  bool held = false;
  {
    Gate gate(session, stream);
    held = gate.holds();
    if (held) std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(kHeldMs));
  }
  end.record(stream);
  stream.settle();
  const double wall_ms = std::chrono::duration<double, std::milli>(Clock::now() - before).count();
  double ms = -1;
  rlk_error error = empty_error();
  const rlk_status status = call_plugin(session.events().elapsed_ms, start.get(), end.get(), &ms, &error);
  if (status == RLK_UNSUPPORTED) return;
  expect_ok(status, "EVENT_TIME", "elapsed_ms", error);
  const double least = held ? kHeldMs / 2 : 0, most = 2 * wall_ms + 20;
  if (std::isfinite(ms) && ms >= least && ms <= most) return;
  broken("EVENT_TIME", fmt::format("elapsed_ms between two events is {} ms, expected {} to {}", std::to_string(ms),
                                   std::to_string(least), std::to_string(most)));
}

// Work on the stream, on its wrapped self, and on the stream again, in this order.
void same_order(Session& session, StreamHandle& stream, StreamHandle& wrapped, const char* what) {
  const Block a = session.device_block(kEventBytes), b = session.device_block(kEventBytes),
              host = session.pinned_block(kEventBytes);
  for (int round = 0; round < 4; ++round) {
    const auto value = static_cast<uint8_t>(0x60 + round);
    stream.fill(a.data(), 0xee, kEventBytes);
    stream.fill(b.data(), 0xee, kEventBytes);
    stream.settle();
    std::memset(host.data(), 0, kEventBytes);
    Gate gate(session, stream);
    stream.fill(a.data(), value, kEventBytes);
    wrapped.copy(b.data(), a.data(), kEventBytes, RLK_COPY_DEVICE_TO_DEVICE);
    stream.fill(a.data(), 0xee, kEventBytes);
    wrapped.copy(host.data(), b.data(), kEventBytes, RLK_COPY_DEVICE_TO_HOST);
    if (gate.holds()) {
      let_overtake(wrapped);
      if (wrapped.query() != RLK_NOT_READY) {
        broken("WRAP", std::string(what) + " says that its work is done while the stream that it wraps is held");
      }
    }
    gate.open();
    wrapped.settle();
    expect_all(host, value, "WRAP",
               std::string("work that alternates between a stream and ") + what + " is out of order");
    stream.settle();
  }
}

// The stream's native handle, which must be the same each time, and that of its wrapped self.
void* native_of(StreamHandle& stream) {
  void* native = stream.native();
  if (stream.native() != native) broken("WRAP", "native of one stream gives another handle each time");
  return native;
}

void still_works(Session& session, StreamHandle& stream, const char* after) {
  const Block a = session.device_block(kEventBytes), host = session.pinned_block(kEventBytes);
  std::memset(host.data(), 0, kEventBytes);
  stream.fill(a.data(), 0x29, kEventBytes);
  stream.copy(host.data(), a.data(), kEventBytes, RLK_COPY_DEVICE_TO_HOST);
  stream.settle();
  expect_all(host, 0x29, "WRAP", std::string("a fill and a copy after ") + after);
}

uint64_t capture_of(Session& session, const StreamHandle& stream) {
  uint64_t id = 0;
  rlk_error error = empty_error();
  const rlk_status status = call_plugin(session.streams().capture_id, stream.get(), &id, &error);
  if (status != RLK_UNSUPPORTED) expect_ok(status, "CAPTURE_ID", "capture_id", error);
  return id;
}

}  // namespace

// Captures have numbers, each its own; a stream that captures nothing has none.
void check_capture(Session& session) {
  if (session.streams().capture_id == nullptr) return;
  StreamHandle stream = StreamHandle::create(session);
  const auto expect_none = [&](const char* when) {
    const uint64_t id = capture_of(session, stream);
    if (id == 0) return;
    broken("CAPTURE_ID", fmt::format("capture_id is {} {}, expected 0", id, when));
  };
  expect_none("of a new stream");
  const Target& target = session.target();
  if (target.owner_instance == nullptr || target.owner->get_extension == nullptr) return;
  const auto* graphs =
      static_cast<const rlk_graph_api*>(call_plugin(target.owner->get_extension, target.owner_instance, RLK_EXT_GRAPH));
  if (graphs == nullptr) return;
  uint64_t last = 0;
  for (int round = 0; round < 2; ++round) {
    rlk_error error = empty_error();
    expect_ok(call_plugin(graphs->begin_capture, stream.get(), &error), "CAPTURE_ID", "begin_capture", error);
    const uint64_t id = capture_of(session, stream);
    rlk_plugin_graph* graph = nullptr;
    expect_ok(call_plugin(graphs->end_capture, stream.get(), &graph, &error), "CAPTURE_ID", "end_capture", error);
    if (graph != nullptr) session.releases().call("graph destroy", graphs->destroy, graph);
    if (id == 0 || id == last) {
      broken("CAPTURE_ID",
             fmt::format(
                 "capture_id is {} during a capture, and was {} during the one before; expected a number of its own",
                 id, last));
    }
    last = id;
    expect_none("after a capture has ended");
  }
}

void check_event(Session& session) {
  StreamHandle first = StreamHandle::create(session), second = StreamHandle::create(session);
  event_status(session, first);
  event_order(session, first, second);
  event_order(session, second, first);
  event_time(session, first);
}

void check_wrap(Session& session) {
  StreamHandle stream = StreamHandle::create(session);
  void* native = native_of(stream);
  for (int round = 0; round < 2; ++round) {
    const std::unique_ptr<StreamHandle> wrapped = StreamHandle::wrap(session, native);
    if (wrapped == nullptr) break;
    if (wrapped->native() != native) {
      broken("WRAP", "native of a wrapped stream is not the handle that was wrapped");
    }
    same_order(session, stream, *wrapped, "its wrapped native stream");
    wrapped->destroy();
    still_works(session, stream, "the wrapping of its stream was destroyed");
  }
  const std::unique_ptr<StreamHandle> standard = StreamHandle::wrap(session, nullptr);
  if (standard != nullptr) still_works(session, *standard, "wrapping the vendor's default stream");
}

// Operators for another plugin's device: their wrapping of a stream leaves it as it was.
void check_guest(Session& session) {
  const Target& target = session.target();
  StreamHandle stream = StreamHandle::create(session);
  void* native = native_of(stream);
  for (int round = 0; round < 2; ++round) {
    rlk_plugin_stream* wrapped = nullptr;
    rlk_error error = empty_error();
    expect_ok(call_plugin(target.plugin->stream->wrap, target.device, native, &wrapped, &error), "WRAP",
              "wrapping the owner's native stream", error);
    if (wrapped == nullptr) broken("WRAP", "wrapping the owner's native stream answered RLK_OK and gave NULL");
    if (target.plugin->stream->native != nullptr && call_plugin(target.plugin->stream->native, wrapped) != native) {
      broken("WRAP", "native of a wrapped stream is not the handle that was wrapped");
    }
    still_works(session, stream, "an operators-only plugin wrapped the stream");
    expect_ok(call_plugin(target.plugin->stream->destroy, wrapped, &error), "WRAP", "destroying a wrapped stream",
              error);
    still_works(session, stream, "an operators-only plugin destroyed its wrapping of the stream");
  }
}

}  // namespace rlk::core::conformance
