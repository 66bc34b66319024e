// How do tensors lie in memory? In words, so that calls whose tensors lie otherwise are of another class; and as cases:
// transposed, gapped and reversed operands at the sizes at which an operator is really run.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "core/conformance/cases.hpp"

namespace rlk::core::conformance {

// For each tensor that has gaps or another order than row-major: which one, the order and direction of its dimensions,
// and where it has gaps. An implementation may take another path for each.
std::vector<std::string> layout_words(std::span<const rlk_tensor* const> inputs,
                                      std::span<const rlk_tensor* const> outputs);

// Every layout of all inputs, of each input alone and of all outputs, in brief calls: with one symbol at a size at
// which the operator is really run, and with all symbols large together. The smoke test takes a part.
std::vector<Case> layout_cases(const OpDecl& decl, int dtype_choice, int form, bool smoke);

}  // namespace rlk::core::conformance
