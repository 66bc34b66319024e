// toml++, for files that any user may have made. A release build of its parser takes for granted what it asserts, and
// `[[[` breaks that: then anything may happen. Here an assertion that fails is an exception, as any other mistake in
// the file. toml_text.hpp has what else it must not meet.
#pragma once

#include <stdexcept>

// rlk-plugins has toml++ a second time, in the reader of kernels' manifests, with the same words.
namespace rlk {

constexpr void toml_expects(bool holds) {
  if (!holds) throw std::logic_error("it is no TOML");
}

}  // namespace rlk

#pragma push_macro("NDEBUG")
#undef NDEBUG
#define TOML_ASSERT(expr) ::rlk::toml_expects(static_cast<bool>(expr))
#include <toml++/toml.h>
#pragma pop_macro("NDEBUG")
