// The call is asked again as the mistake reads it: where golden's answer to that is the outcome, the mistake is known.
#include "core/conformance/hints.hpp"

#include "core/conformance/elements.hpp"

namespace rlk::core::conformance {
namespace {

// A mask of which 1 alone counts. False: every element that counts is 1.
bool keep_ones_alone(ConcreteCall& call) {
  bool any = false;
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    Argument& mask = call.inputs[i];
    if (!mask.present || call.decl->inputs[i].domain.kind != Domain::mask) continue;
    for (int64_t k = 0, count = mask.count(); k < count; ++k) {
      if (const int64_t value = get_int(mask, k); value == 0 || value == 1) continue;
      set_int(mask, k, 0);
      any = true;
    }
  }
  return any;
}

}  // namespace

std::string hint_for(const ConcreteCall& call, const Outcome& outcome, uint8_t poison) {
  ConcreteCall other = call;
  if (outcome.failure || !keep_ones_alone(other)) return {};
  Quality ignored;
  if (check(other, golden_answer(other), outcome, poison, ignored)) return {};
  return "; the result is right where only a mask of 1 counts: is the mask compared with 1, or read as a signed "
         "number? "
         "Every value but 0 counts";
}

}  // namespace rlk::core::conformance
