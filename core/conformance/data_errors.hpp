// Data errors on purpose: one element that breaks its domain in a call that is otherwise legal.
#pragma once

#include <vector>

#include "core/conformance/call.hpp"

namespace rlk::core::conformance {

// A fault's number is input * kFaultsPerInput + beyond * 3 + spot (above, below, far above, far below, the largest, the
// smallest; middle, first, last), or behind them one of what no single number is.
inline constexpr int kFaultsPerInput = 32;

// The numbers of the faults that the call's inputs can have: just and far outside, at both ends of the range, in the
// first, a middle and the last row. Without `every`, the first of each input.
std::vector<int> faults_of(const ConcreteCall& call, bool every);

// Whether the bad number stands in the middle; of a number that occurs at several places one case runs in full.
bool is_in_the_middle(int fault);

// Plants the fault in a filled call and says in call.faults what the stream must report.
void plant_fault(int fault, ConcreteCall& call);

}  // namespace rlk::core::conformance
