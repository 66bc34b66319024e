// The parts in the order in which their failures say most: what a later part relies on comes first.
#include "core/conformance/device_conduct.hpp"

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
  memory_conduct(session);
  transfer_conduct(session);
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
