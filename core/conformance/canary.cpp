// The choice by cost, and the classes by the steps of a case run.
#include "core/conformance/canary.hpp"

#include "core/conformance/schedule.hpp"
#include "core/conformance/sizes.hpp"
#include "core/declaration/numerics.hpp"

namespace rlk::core::conformance {
namespace {

constexpr int64_t kCanaryCost = int64_t{1} << 15;

}  // namespace

int64_t worth_as_canary(const Case& c, const ConcreteCall& call) {
  const int64_t cost = cost_of(call);
  int64_t worth = cost <= kCanaryCost ? cost : -cost;
  if (c.content != Content::ordinary || !shows_variations(call)) worth -= int64_t{1} << 60;
  if (!c.variations.empty()) worth -= int64_t{1} << 50;
  return worth;
}

uint32_t earned_by(const Case& c, const ConcreteCall& call, uint32_t claimed) {
  uint32_t earned = RLK_NUMERICS_TOLERANCE | (claimed & RLK_NUMERICS_ACCURATE);
  if (!may_round(*call.decl, call.dtypes[0])) earned |= RLK_NUMERICS_ACCURATE;
  if (!shows_variations(call)) return earned;
  if (call.decl->portable) earned |= claimed & RLK_NUMERICS_PORTABLE;
  if (!c.brief) earned |= claimed & RLK_NUMERICS_DETERMINISTIC;
  if (!c.brief && c.content == Content::ordinary) earned |= claimed & RLK_NUMERICS_BATCH_INVARIANT;
  return earned;
}

}  // namespace rlk::core::conformance
