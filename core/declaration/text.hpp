// Text from outside rlk, made fit to be shown: bounded, and unable to steer a terminal or to forge a line of a log.
#pragma once

#include <rlk/abi/status.h>

#include <cstddef>
#include <cstring>
#include <string>
#include <string_view>

namespace rlk::core {

// Control characters (terminal escapes, line breaks), marks that change the direction of writing, invisible characters
// and bytes that are not UTF-8 become visible: "\\x1b", "\\n", "\\u202e".
std::string printable(std::string_view text);

// A fixed field that a plugin filled, which may lack the final 0.
template <size_t Size>
std::string text_of(const char (&field)[Size]) {
  return printable(std::string_view(field, strnlen(field, Size)));
}

// Of an error that a plugin filled.
inline std::string text_of(const rlk_error& error) {
  return text_of(error.text);
}

// The same in place, for an error that goes on to the caller: what is not printable becomes '?'. error may be NULL.
void make_printable(rlk_error* error) noexcept;

}  // namespace rlk::core
