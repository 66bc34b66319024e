// Data errors on purpose: one element that breaks its domain in a call that is otherwise legal.
#pragma once

#include <vector>

#include "core/conformance/call.hpp"

namespace rlk::core::conformance {

// The numbers of the faults that the call's inputs can have; without `every`, the first of each input.
std::vector<int> faults_of(const ConcreteCall& call, bool every);

// Plants the fault in a filled call and says in call.faults what is to be told.
void plant_fault(int fault, ConcreteCall& call);

}  // namespace rlk::core::conformance
