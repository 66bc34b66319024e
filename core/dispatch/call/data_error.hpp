// A data error in words: which operator, which row, which value, what was expected, what to do.
#pragma once

#include <rlk/abi/status.h>

#include <string>

#include "core/declaration/declaration.hpp"

namespace rlk::core {

// The tag that kernels copy into a data error: the operator, and the call's number on its stream.
inline constexpr uint32_t kTagCallBits = 24;
uint32_t make_tag(const OpDecl& decl, uint32_t call_number);
const OpDecl* op_of_tag(uint32_t tag);  // nullptr for a tag that no call was given
inline uint32_t call_of_tag(uint32_t tag) {
  return tag & ((1u << kTagCallBits) - 1);
}

std::string describe(const rlk_data_error& error, const std::string& stream_name);

}  // namespace rlk::core
