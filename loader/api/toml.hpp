// toml++, for files that anybody may have written. Its parser asserts what most files keep to, and in a release build
// takes it for granted: `[[[` breaks such an assumption, and then anything may happen. Here an assertion that fails is
// an exception, as any other mistake in the file.
#pragma once

#include <stdexcept>

namespace rlk::loader {

constexpr void toml_expects(bool holds) {
  if (!holds) throw std::logic_error("it is no TOML");
}

}  // namespace rlk::loader

#pragma push_macro("NDEBUG")
#undef NDEBUG
#define TOML_ASSERT(expr) ::rlk::loader::toml_expects(static_cast<bool>(expr))
#include <toml++/toml.h>
#pragma pop_macro("NDEBUG")
