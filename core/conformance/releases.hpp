// Calls of a plugin's tables that end something the engine was given. The engine ignores their answers, but an
// exception that leaves one is the plugin's failure like any other. It would end a process that does not expect it.
#pragma once

#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "core/conformance/buffers.hpp"
#include "core/declaration/error.hpp"
#include "core/declaration/plugin_call.hpp"
#include "core/declaration/text.hpp"

namespace rlk::core::conformance {

// [thread-safe]
class Releases {
public:
  // `what` is "plan_destroy". Other answers than an exception are not looked at: after a failure a device may refuse.
  template <class... P, class... A>
  void call(const char* what, rlk_status (*slot)(P...), A... arguments) noexcept {
    rlk_error error = fresh_error();
    if (call_plugin(slot, arguments..., &error) == RLK_PLUGIN_EXCEPTION) note(what, error);
  }
  // The first exception since the last question.
  std::optional<Failure> take() {
    const std::lock_guard lock(mutex_);
    return std::exchange(failure_, std::nullopt);
  }

private:
  void note(const char* what, const rlk_error& error) noexcept {
    try {
      const std::lock_guard lock(mutex_);
      if (!failure_) failure_ = Failure{"PLUGIN_EXCEPTION", std::string("in ") + what + ": " + text_of(error)};
    } catch (const std::exception&) {
      // No memory even to say so: the slot's next exception will be reported.
    }
  }
  std::mutex mutex_;
  std::optional<Failure> failure_;
};

}  // namespace rlk::core::conformance
