// What would explain a wrong outcome? A mistake that answers another question right is recognised by that answer.
#pragma once

#include <string>

#include "core/conformance/compare.hpp"

namespace rlk::core::conformance {

// Of an outcome that failed check(): "; is ...?", or nothing where none of the known mistakes explains it.
std::string hint_for(const ConcreteCall& call, const Outcome& outcome, uint8_t poison);

}  // namespace rlk::core::conformance
