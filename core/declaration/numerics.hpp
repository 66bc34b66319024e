// The numerics classes of the ABI by name, and which of them a declaration makes one.
#pragma once

#include <rlk/abi/op.h>

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/declaration/declaration.hpp"

namespace rlk::core {

struct NumericsClass {
  uint32_t bit;      // RLK_NUMERICS_*
  const char* name;  // "batch_invariant"
  char letter;       // for tables: 'B'
};
// In the order of their bits. [thread-safe]
std::span<const NumericsClass> numerics_classes();

// All bits that a class has.
constexpr uint32_t kAllNumerics = RLK_NUMERICS_TOLERANCE | RLK_NUMERICS_ACCURATE | RLK_NUMERICS_DETERMINISTIC |
                                  RLK_NUMERICS_BATCH_INVARIANT | RLK_NUMERICS_PORTABLE;

std::vector<std::string> names_of_numerics(uint32_t numerics);  // {"tolerance", "accurate"}
std::string text_of_numerics(uint32_t numerics);                // "tolerance, accurate", or "nothing"
// The bit of a name, 0 when no class is called so.
uint32_t numerics_of_name(std::string_view name);

// Whether the declaration permits an intermediate to be rounded to a dtype of the tensors: fp32 and fp64 are what
// intermediates are kept in anyway.
bool may_round(const OpDecl& decl, Dtype dtype);

// The classes that need no claim, because nothing sets them apart from `tolerance`: `accurate`, where nothing may be
// rounded. Every verified implementation meets a demand for them.
inline uint32_t implied_numerics(const OpDecl& decl, Dtype dtype) {
  return may_round(decl, dtype) ? 0 : RLK_NUMERICS_ACCURATE;
}

}  // namespace rlk::core
