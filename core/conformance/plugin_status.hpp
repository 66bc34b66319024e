// What a plugin's call answers, for the harness: room for its text, and the code of a failure.
#pragma once

#include <rlk/abi.h>

namespace rlk::core::conformance {

inline rlk_error no_error() {
  rlk_error error{};
  error.struct_size = sizeof(error);
  return error;
}

// A failure that says nothing about the implementation has a code of its own.
inline const char* code_of(rlk_status status, const char* otherwise) {
  return status == RLK_TIMEOUT         ? "TIMEOUT"
         : status == RLK_DEVICE_LOST   ? "DEVICE_LOST"
         : status == RLK_OUT_OF_MEMORY ? "NO_MEMORY"
                                       : otherwise;
}

}  // namespace rlk::core::conformance
