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
  check_extension(target);
  Session session(target);
  const auto expect_nothing_thrown = [&] {
    if (auto thrown = session.releases().take()) throw Broken{std::move(*thrown)};
  };
  if (target.plugin != target.owner) {
    check_guest(session);
    return expect_nothing_thrown();
  }
  with_distrust(session, [&] { check_memory(session); });
  with_distrust(session, [&] { check_transfer(session); });
  check_host_function(session);
  check_inline(session);
  check_order(session, rounds);
  patiently(session, [&] { check_waiting(session); });
  patiently(session, [&] { check_event(session); });
  patiently(session, [&] { check_wrap(session); });
  check_capture(session);
  check_thread(session, rounds);
  expect_nothing_thrown();
}

}  // namespace

std::optional<Failure> device_checks(const Target& target, bool smoke) {
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
