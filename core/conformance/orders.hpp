// Is every size tried both below and above every other one? What two sizes have in common in all cases is taken for
// granted: by an implementation, and by the check that judges it.
#pragma once

#include <bitset>
#include <span>
#include <vector>

#include "core/conformance/cases.hpp"

namespace rlk::core::conformance {

// Which symbols were smaller than which others, neither of them 0.
class Orders {
public:
  void note(const ConcreteCall& call);
  bool has(size_t smaller, size_t larger) const { return seen_[smaller * kMaxSymbols + larger]; }

private:
  std::bitset<static_cast<size_t>(kMaxSymbols) * kMaxSymbols> seen_;
};

// A few small cases with the orders that the declaration allows and `others` lack, several in a case; with an option
// where no plain call has the order.
std::vector<Case> order_cases(const OpDecl& decl, int dtype_choice, int form, std::span<const Case> others);

}  // namespace rlk::core::conformance
