// Calls of a plugin that are no operator's: an exception switches the plugin off and is told. Of what ends something
// that the plugin made nobody could be given the failure.
#pragma once

#include "core/declaration/error.hpp"
#include "core/declaration/plugin_call.hpp"
#include "core/dispatch/registry.hpp"

namespace rlk::core {

inline rlk_error exception_without_text() {
  rlk_error error = fresh_error();
  error.status = RLK_PLUGIN_EXCEPTION;
  return error;
}

// What serves no operator alone: an exception there switches the whole plugin off, and is the caller's answer too.
template <class... P, class... A>
rlk_status call_of(const rlk_plugin& plugin, const char* what, rlk_status (*slot)(P...), A... arguments) {
  const rlk_status status = call_plugin(slot, arguments...);
  if (status == RLK_PLUGIN_EXCEPTION) {
    const rlk_error* told = detail::error_of(arguments...);
    Registry::switch_off(plugin, what, told != nullptr ? *told : exception_without_text());
  }
  return status;
}

template <class... P, class... A>
void release_by(const rlk_plugin& plugin, const char* what, rlk_status (*slot)(P...), A... arguments) noexcept {
  rlk_error error = fresh_error();
  if (call_plugin(slot, arguments..., &error) == RLK_PLUGIN_EXCEPTION) Registry::switch_off(plugin, what, error);
}

}  // namespace rlk::core
