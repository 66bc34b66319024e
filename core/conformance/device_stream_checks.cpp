// Streams: host functions, what inline means, order, waiting with a deadline, several threads.
#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>

#include "core/conformance/device_checks.hpp"

namespace rlk::core::conformance {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint64_t kBytes = uint64_t{64} << 10, kLongBytes = uint64_t{8} << 20;
constexpr std::chrono::milliseconds kLater(2);  // long enough for work that was left running to show
constexpr std::chrono::milliseconds kLong(3);   // what a machine busy with other things seldom takes from a thread,
constexpr int kLongRounds = 3;                  // and not each time

// One call of a host function; kept while the plugin may still call.
struct Called {
  std::atomic<int>* order;
  const std::byte* watched;  // what the function looks at
  std::atomic<int> times{0};
  std::atomic<int> place{-1};
  std::atomic<int> saw{-1};
};

void note(void* user) {
  Called& called = *static_cast<Called*>(user);
  called.place = called.order->fetch_add(1);
  called.saw = static_cast<int>(*static_cast<const volatile std::byte*>(called.watched));
  ++called.times;
}

// Enqueues work that is not done soon, and gives what tells that it is; null where the backend has no host functions.
std::shared_ptr<const std::atomic<bool>> call_for_long(StreamHandle& stream) {
  using Done = std::shared_ptr<std::atomic<bool>>;
  const auto is_done = std::make_shared<std::atomic<bool>>(false);
  auto share = std::make_unique<Done>(is_done);  // the function's own: it may run later than it should
  const auto wait = [](void* user) {
    const std::unique_ptr<Done> done(static_cast<Done*>(user));
    std::this_thread::sleep_for(kLong);
    **done = true;
  };
  if (!stream.call(wait, share.get())) return nullptr;
  static_cast<void>(share.release());
  return is_done;
}

void expect_once(const std::vector<std::unique_ptr<Called>>& calls, const char* when) {
  for (size_t i = 0; i < calls.size(); ++i) {
    if (calls[i]->times == 1) continue;
    broken("HOST_FUNCTION", fmt::format("host function {} of {} on a stream was called {} times {}, expected once",
                                        i + 1, calls.size(), calls[i]->times, when));
  }
}

void expect_same(std::span<const std::byte> got, std::byte expected, const char* code, const std::string& what) {
  for (uint64_t at = 0; at < got.size(); ++at) {
    if (got[at] != expected) broken(code, what + ": " + unlike_text(at, got.size(), got[at], expected));
  }
}

// False where the backend has no host functions.
bool try_host_functions(Session& session, int count, uint64_t bytes) {
  const Block device = session.device_block(bytes);
  const Block seen = session.pinned_block(bytes);
  std::atomic<int> order{0};
  std::vector<std::unique_ptr<Called>> calls;
  StreamHandle stream = StreamHandle::create(session);
  stream.fill(device.data(), 0xff, bytes);
  stream.copy(seen.data(), device.data(), bytes, RLK_COPY_DEVICE_TO_HOST);
  stream.settle();
  for (int i = 0; i < count; ++i) {
    Called& called = *calls.emplace_back(std::make_unique<Called>());
    called.order = &order;
    called.watched = seen.data() + bytes - 1;  // the last byte that the copy before it brings
    stream.fill(device.data(), static_cast<uint8_t>(i), bytes);
    stream.copy(seen.data(), device.data(), bytes, RLK_COPY_DEVICE_TO_HOST);
    if (!stream.call(&note, &called)) return false;
  }
  stream.settle();
  expect_once(calls, "until the stream was done");
  for (int i = 0; i < count; ++i) {
    const Called& called = *calls[static_cast<size_t>(i)];
    if (called.place != i) {
      broken("HOST_FUNCTION",
             fmt::format("host function {} of a stream was called as number {}", i + 1, called.place + 1));
    }
    if (called.saw != i) {
      broken("HOST_FUNCTION",
             fmt::format("a host function saw {} in the memory that the copy before it brings, expected {}", called.saw,
                         i));
    }
  }
  std::this_thread::sleep_for(kLater);
  expect_once(calls, "some time after the stream was done");
  return true;
}

}  // namespace

void check_host_function(Session& session) {
  if (!try_host_functions(session, 12, kBytes)) return;
  // A function that is called too early is right by luck where the work before it takes less time than its enqueueing
  // does on a busy machine.
  try_host_functions(session, 4, kLongBytes);
}

// A stream that claims to be inline has done its work when the call returns: the test looks without asking or waiting.
void check_inline(Session& session) {
  if (!session.is_inline()) return;
  constexpr uint64_t kSize = uint64_t{512} << 10;
  const Block a = session.device_block(kSize), b = session.device_block(kSize), host = session.pinned_block(kSize);
  StreamHandle stream = StreamHandle::create(session);
  const auto all_are = [&](uint8_t value, const std::string& what) {
    expect_same({host.data(), kSize}, std::byte{value}, "NOT_INLINE",
                what + ", and the device claims RLK_DEVICE_INLINE_STREAMS");
  };
  stream.fill(a.data(), 0x11, kSize);
  stream.settle();
  std::memset(host.data(), 0xee, kSize);
  stream.copy(host.data(), a.data(), kSize, RLK_COPY_DEVICE_TO_HOST);
  all_are(0x11, "a copy to the host had not ended when its call returned");
  std::memset(host.data(), 0x22, kSize);
  stream.copy(a.data(), host.data(), kSize, RLK_COPY_HOST_TO_DEVICE);
  std::memset(host.data(), 0x33, kSize);  // the source is the caller's again
  stream.copy(b.data(), a.data(), kSize, RLK_COPY_DEVICE_TO_DEVICE);
  stream.fill(a.data(), 0x44, kSize);
  stream.copy(host.data(), b.data(), kSize, RLK_COPY_DEVICE_TO_HOST);
  all_are(0x22, "a copy from the host still read its source after its call had returned");
  stream.copy(host.data(), a.data(), kSize, RLK_COPY_DEVICE_TO_HOST);
  all_are(0x44, "a fill had not ended when its call returned");
  // Nothing comes later either.
  std::memset(host.data(), 0x55, kSize);
  std::this_thread::sleep_for(kLater);
  all_are(0x55, "memory changed after the work on it was said to be done");
  EventHandle event(session);
  event.record(stream);
  if (stream.query() != RLK_OK || event.query() != RLK_OK) {
    broken("NOT_INLINE", "a stream or event is not ready although the device claims RLK_DEVICE_INLINE_STREAMS");
  }
  // What is short may be done by luck: on a busy machine a stream's thread often runs as soon as it has work. A
  // function that takes long is still on its way when a stream that is not inline returns.
  for (int round = 0; round < kLongRounds; ++round) {
    const auto function = call_for_long(stream);
    if (function == nullptr) return;
    const bool is_done = *function;
    stream.settle();
    if (is_done) continue;
    broken("NOT_INLINE",
           "a host function had not returned when its enqueueing did: the device claims RLK_DEVICE_INLINE_STREAMS");
  }
}

// Each operation of a stream sees what those before it did, and nothing of those behind it.
void check_order(Session& session, int rounds) {
  const Block a = session.device_block(kBytes), b = session.device_block(kBytes);
  std::vector<Block> kept;
  for (int i = 0; i < rounds; ++i) kept.push_back(session.pinned_block(kBytes));
  StreamHandle stream = StreamHandle::create(session);
  stream.fill(a.data(), 0xee, kBytes);
  stream.fill(b.data(), 0xee, kBytes);
  stream.settle();
  Gate gate(session, stream);
  for (int i = 0; i < rounds; ++i) {
    stream.fill(a.data(), static_cast<uint8_t>(i), kBytes);
    stream.copy(b.data(), a.data(), kBytes, RLK_COPY_DEVICE_TO_DEVICE);
    stream.fill(a.data(), 0xee, kBytes);
    stream.copy(kept[static_cast<size_t>(i)].data(), b.data(), kBytes, RLK_COPY_DEVICE_TO_HOST);
  }
  gate.open();
  stream.settle();
  for (int i = 0; i < rounds; ++i) {
    expect_same({kept[static_cast<size_t>(i)].data(), kBytes}, static_cast<std::byte>(i), "DEVICE_ORDER",
                "a fill, a copy within the device, another fill and a copy to the host, in this order on one stream");
  }
}

// A query while work is held must not answer that it is done, and a deadline must be kept.
void check_waiting(Session& session) {
  // Priorities beyond what there is are clamped.
  for (const int32_t priority : {-1, 1, -1000000, 1000000}) StreamHandle::create(session, priority).settle();

  StreamHandle stream = StreamHandle::create(session);
  if (stream.query() != RLK_OK || stream.synchronize(0) != RLK_OK || stream.synchronize(1'000'000) != RLK_OK) {
    broken("STREAM_STATUS", "a stream without work is not ready");
  }
  const Block device = session.device_block(kBytes), host = session.pinned_block(kBytes);
  stream.fill(device.data(), 0x77, kBytes);
  stream.settle();
  std::memset(host.data(), 0, kBytes);
  {
    Gate gate(session, stream);
    stream.copy(host.data(), device.data(), kBytes, RLK_COPY_DEVICE_TO_HOST);
    if (gate.holds()) {
      if (stream.query() != RLK_NOT_READY) {
        broken("STREAM_STATUS", "query of a stream answers RLK_OK while a host function on it still runs");
      }
      for (const uint64_t deadline_ns : {uint64_t{0}, uint64_t{1'000'000}}) {
        const Clock::time_point start = Clock::now();
        const rlk_status status = stream.synchronize(deadline_ns);
        const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - start).count();
        if (status == RLK_TIMEOUT && ms < Gate::kLongestHoldMs) continue;
        broken(
            "STREAM_STATUS",
            fmt::format(
                "synchronize with a deadline of {} ns returned {} after {} ms while a host function ran on the stream, "
                "expected RLK_TIMEOUT at once",
                deadline_ns, status == RLK_OK ? "RLK_OK" : "RLK_TIMEOUT", ms));
      }
    }
    gate.open();
    stream.settle();
    expect_same({host.data(), kBytes}, std::byte{0x77}, "STREAM_STATUS",
                "a copy to the host after synchronize answered RLK_OK");
  }
  // Without any wait but the end of the stream.
  for (int round = 0; round < kLongRounds; ++round) {
    std::memset(host.data(), 0, kBytes);
    StreamHandle other = StreamHandle::create(session);
    call_for_long(other);
    other.copy(host.data(), device.data(), kBytes, RLK_COPY_DEVICE_TO_HOST);
    other.destroy();
    expect_same({host.data(), kBytes}, std::byte{0x77}, "STREAM_STATUS",
                "destroying a stream did not wait for the copy on it");
  }
}

// Several threads with a stream each, none of which has ever used the device before.
void check_thread(Session& session, int rounds) {
  constexpr int kThreads = 2;
  std::optional<Failure> failures[kThreads];
  const auto work = [&](int which) {
    try {
      StreamHandle stream = StreamHandle::create(session);
      for (int round = 0; round < rounds; ++round) {
        const auto value = static_cast<uint8_t>(2 * round + which);
        const Block a = session.device_block(kBytes), b = session.device_block(kBytes);
        const Block host = session.pinned_block(kBytes);
        stream.fill(a.data(), value, kBytes);
        stream.copy(b.data(), a.data(), kBytes, RLK_COPY_DEVICE_TO_DEVICE);
        stream.copy(host.data(), b.data(), kBytes, RLK_COPY_DEVICE_TO_HOST);
        stream.settle();
        expect_same({host.data(), kBytes}, std::byte{value}, "DEVICE_THREAD",
                    "fill and copies on a stream of its own, by one of two threads at once");
      }
    } catch (const Broken& e) {
      failures[which] = e.failure;
    } catch (const std::exception& e) {
      failures[which] = Failure{"EXCEPTION", e.what()};
    } catch (...) {
      failures[which] = Failure{"EXCEPTION", "an exception of unknown type left the plugin on a second thread"};
    }
  };
  std::thread other([&] { work(1); });
  work(0);
  other.join();
  for (const std::optional<Failure>& failure : failures) {
    if (failure) throw Broken{*failure};
  }
}

}  // namespace rlk::core::conformance
