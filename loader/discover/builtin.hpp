// Plugins that are linked into this library instead of being found as files.
#pragma once

#include <rlk/abi.h>

#include <string_view>

namespace rlk::loader {

inline constexpr std::string_view kBuiltInSource = "built-in";

// The entry of a built-in plugin by id ("cpu"), or null.
rlk_plugin_entry_v1_fn built_in_entry(std::string_view id);

}  // namespace rlk::loader
