// Which sizes of a call belong together? What the rules of the declaration say, and never what two sizes happen to be.
#pragma once

#include "core/conformance/call.hpp"

namespace rlk::core::conformance {

// Whether both symbols have one size in every call with the parameters and tensors of this one: the rules allow other
// sizes than these, but no two that differ. Logits rows without row indices, rejected sequences but with kto.
bool are_tied(const ConcreteCall& call, size_t a, size_t b);

bool keeps_rules(const ConcreteCall& call);

}  // namespace rlk::core::conformance
