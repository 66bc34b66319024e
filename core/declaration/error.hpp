// How the host fills the caller's error: cut to what the caller's struct holds, never thrown.
#pragma once

#include <rlk/abi/status.h>

#include <string_view>

namespace rlk::core {

// An error to be filled by what is called with it.
inline rlk_error fresh_error() noexcept {
  rlk_error error{};
  error.struct_size = sizeof(error);
  return error;
}

// Returns status. error may be NULL; no byte beyond its struct_size is written. [thread-safe, no allocation]
rlk_status fail(rlk_error* error, rlk_status status, std::string_view text, int64_t native_code = 0,
                const char* domain = "rlk") noexcept;
// The same with a printf pattern.
__attribute__((format(printf, 3, 4))) rlk_status failf(rlk_error* error, rlk_status status, const char* pattern,
                                                       ...) noexcept;

// "OUT_OF_MEMORY" for RLK_OUT_OF_MEMORY, and so on; "UNKNOWN" for a number that is no status.
const char* name_of_status(rlk_status status) noexcept;

}  // namespace rlk::core
