// Calls of a plugin that are no operator's: an exception switches the plugin off and is reported. What ends something
// that the plugin made has no caller to get the failure.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "core/declaration/error.hpp"
#include "core/declaration/plugin_call.hpp"
#include "core/declaration/text.hpp"
#include "core/dispatch/call/planning.hpp"
#include "core/dispatch/call/registry.hpp"
#include "core/dispatch/trust/timeout.hpp"

namespace rlk::core {

inline rlk_error exception_without_text() {
  rlk_error error = fresh_error();
  error.status = RLK_PLUGIN_EXCEPTION;
  return error;
}

// For a slot that serves no single operator: an exception there switches the plugin off, and is the caller's error too.
template <class... P, class... A>
rlk_status call_of(const rlk_plugin& plugin, const char* what, rlk_status (*slot)(P...), A... arguments) {
  const rlk_status status = call_plugin(slot, arguments...);
  if (status == RLK_PLUGIN_EXCEPTION) {
    const rlk_error* told = detail::error_of(arguments...);
    Registry::switch_off(plugin, what, told != nullptr ? *told : exception_without_text());
  }
  return status;
}

// The same where the host need not wait for ever: `work` fills what it owns, a TimedCall, on a thread of its own. One
// that does not come back is RLK_TIMEOUT, and switches the plugin off unless it may have waited for a plan.
struct TimedCall {
  rlk_status status = RLK_PLUGIN_EXCEPTION;
  rlk_error error = fresh_error();
  TimedCall() { fail(&error, status, "the plugin ended its thread instead of returning"); }
};

template <class D>
rlk_status call_with_timeout(double seconds, const rlk_plugin& plugin, const char* what, const std::shared_ptr<D>& call,
                             std::function<void()> work, rlk_error* error) {
  if (run_with_timeout(seconds, std::move(work))) {
    if (call->status == RLK_OK) return RLK_OK;
    return fail(error, call->status, text_of(call->error), call->error.native_code,
                text_of(call->error.domain).c_str());
  }
  if (is_planning(plugin)) {
    return failf(error, RLK_TIMEOUT,
                 "%s of plugin %s took longer than %.3g s while plans of the plugin were being made, which it may wait "
                 "for; its thread is left behind, try again when they are made",
                 what, plugin.id, seconds * patience());
  }
  rlk_error late = fresh_error();
  failf(&late, RLK_TIMEOUT,
        "%s of plugin %s took longer than %.3g s; the plugin is given up, and its thread left behind", what, plugin.id,
        seconds * patience());
  Registry::switch_off(plugin, what, late);
  return fail(error, RLK_TIMEOUT, late.text);
}

template <class... P, class... A>
void release_by(const rlk_plugin& plugin, const char* what, rlk_status (*slot)(P...), A... arguments) noexcept {
  rlk_error error = fresh_error();
  if (call_plugin(slot, arguments..., &error) == RLK_PLUGIN_EXCEPTION) Registry::switch_off(plugin, what, error);
}

}  // namespace rlk::core
