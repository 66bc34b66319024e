// The log that rlk writes to. Core writes no file: loader/host/log.cpp defines it, and whatever is linked with
// rlk_dispatch is linked with that.
#pragma once

#include <rlk/abi/host.h>

#include <cstdint>
#include <string_view>

namespace rlk::core {

// One line on stderr, or in the file RLK_LOG_FILE, when RLK_LOG (trace, debug, info, warn, err, critical, off; default
// warn) lets the level through. level is RLK_LOG_*. Never throws. [thread-safe]
void log_line(int32_t level, std::string_view source, std::string_view text) noexcept;
// The same whatever RLK_LOG says: for what another variable asks for (RLK_LOG_DISPATCH).
void log_always(std::string_view source, std::string_view text) noexcept;

}  // namespace rlk::core
