// The rules are asked about sizes that are not those of the call.
#include "core/conformance/ties.hpp"

#include <algorithm>

namespace rlk::core::conformance {
namespace {

// Multiples and divisors of each other are among them, and numbers that are neither: whatever a rule wants beside
// equality, a pair of these has it. All are legal of every symbol.
constexpr int64_t kOtherSizes[] = {1, 2, 3, 6, 7, 12, 64, 128, 130, 4096};

}  // namespace

bool keeps_rules(const ConcreteCall& call) {
  return std::all_of(call.decl->rules.begin(), call.decl->rules.end(),
                     [&](const RuleDecl& rule) { return rule.holds.eval(call.values()) != 0; });
}

bool are_tied(const ConcreteCall& call, size_t a, size_t b) {
  if (a == b || call.symbols[a] != call.symbols[b] || call.symbols[a] < 0) return false;
  ConcreteCall other;
  other.decl = call.decl;
  other.params = call.params;
  other.present = call.present;
  other.symbols = call.symbols;
  bool is_free = false;  // to have another size at all
  for (const int64_t size : kOtherSizes) {
    for (const int64_t beside : kOtherSizes) {
      other.symbols[a] = size;
      other.symbols[b] = beside;
      if (!keeps_rules(other)) continue;
      if (size != beside) return false;
      is_free |= size != call.symbols[a];
    }
  }
  return is_free;
}

}  // namespace rlk::core::conformance
