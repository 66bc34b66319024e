// What is looked at in a TOML file before toml++ reads it.
#pragma once

#include <cstddef>
#include <string_view>

namespace rlk::loader {

// The line, from 1, of the first byte beyond ASCII that is in no text and no comment: TOML has none there, and toml++
// (3.3) has undefined behaviour at some of them. 0: there is none.
size_t first_beyond_ascii(std::string_view toml);

}  // namespace rlk::loader
