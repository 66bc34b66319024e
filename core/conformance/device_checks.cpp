// The parts in the order in which their failures say most: what a later part relies on comes first.
#include "core/conformance/device_checks.hpp"

#include <exception>
#include <utility>

namespace rlk::core::conformance {
namespace {

// A part that holds streams. On a machine that is very busy this thread may stop for longer than a stream can be held:
// only what happens each time is the device's doing.
template <class Part>
void patiently(Session& session, Part&& part) {
  for (int attempt = 1;; ++attempt) {
    const int expired = session.expired_gates();
    try {
      return part();
    } catch (const Broken&) {
      if (attempt == 3 || session.expired_gates() == expired || session.is_abandoned()) throw;
    }
  }
}

// Memory is looked at before streams are. Where what was found missing is there once the test does not believe that a
// stream is done, it is the stream that is at fault.
template <class Part>
void with_distrust(Session& session, Part&& part) {
  try {
    return part();
  } catch (const Broken& e) {
    const std::string& code = e.failure.code;
    const bool is_of_content =
        code == "ALLOCATION_OVERLAP" || code == "DEVICE_COPY" || code == "DEVICE_FILL" || code == "STREAM_MEMORY";
    if (!is_of_content || session.is_abandoned()) throw;
    session.set_distrust(true);
    try {
      part();
    } catch (const Broken&) {
      session.set_distrust(false);
      throw Broken(e);
    }
    session.set_distrust(false);
    broken(
        "STREAM_STATUS",
        "synchronize answered RLK_OK before the stream's work was done: with some milliseconds of patience after each "
        "of its answers everything is right, without them this was seen: " +
            e.failure.text);
  }
}

void all_parts(const Target& target, bool smoke) {
  const int rounds = smoke ? 8 : 64;
  extension_conduct(target);
  Session session(target);
  const auto expect_nothing_thrown = [&] {
    if (auto thrown = session.releases().take()) throw Broken{std::move(*thrown)};
  };
  if (target.plugin != target.owner) {
    guest_conduct(session);
    return expect_nothing_thrown();
  }
  with_distrust(session, [&] { memory_conduct(session); });
  with_distrust(session, [&] { transfer_conduct(session); });
  host_function_conduct(session);
  inline_conduct(session);
  order_conduct(session, rounds);
  patiently(session, [&] { waiting_conduct(session); });
  patiently(session, [&] { event_conduct(session); });
  patiently(session, [&] { wrap_conduct(session); });
  capture_conduct(session);
  thread_conduct(session, rounds);
  expect_nothing_thrown();
}

}  // namespace

std::optional<Failure> device_conduct(const Target& target, bool smoke) {
  try {
    all_parts(target, smoke);
    return std::nullopt;
  } catch (const Broken& e) {
    return e.failure;
  } catch (const std::exception& e) {
    return Failure{"EXCEPTION", std::string("while the device was tested: ") + e.what()};
  } catch (...) {
    return Failure{"EXCEPTION", "an exception of unknown type left the plugin while its device was tested"};
  }
}

}  // namespace rlk::core::conformance
