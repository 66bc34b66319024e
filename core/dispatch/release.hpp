// Ends what a plugin made. Nobody could be given the failure of that: an exception switches the plugin off and is told.
#pragma once

#include "core/declaration/error.hpp"
#include "core/declaration/plugin_call.hpp"
#include "core/dispatch/registry.hpp"

namespace rlk::core {

template <class... P, class... A>
void release_by(const rlk_plugin& plugin, const char* what, rlk_status (*slot)(P...), A... arguments) noexcept {
  rlk_error error = fresh_error();
  if (call_plugin(slot, arguments..., &error) == RLK_PLUGIN_EXCEPTION) Registry::switch_off(plugin, what, error);
}

}  // namespace rlk::core
