// What the times of some calls say of others, and which implementation they have a call taken by.
#include "core/dispatch/call/measured_cost.hpp"

#include "unit/dispatch/world.hpp"

namespace rlk::test {
namespace {

using core::MeasuredCost;
using sdk::ops::Logp;

double cost_of(const std::vector<MeasuredCost>& known, const std::string& kind, const std::vector<int64_t>& sizes,
               double stated_us) {
  std::vector<const MeasuredCost*> all;
  for (const MeasuredCost& one : known) all.push_back(&one);
  return core::measured_cost(all, kind, sizes, stated_us);
}

TEST(MeasuredCost, IsOfTheNearestCallOfTheSameKind) {
  const std::vector<MeasuredCost> known = {{"logp", "fused", "X", "bf16", {64, 32000, -1}, 10, 20},
                                           {"logp", "fused", "X", "bf16", {256, 32000, -1}, 40, 50},
                                           {"logp", "fused", "X", "bf16 softcap", {64, 32000, -1}, 10, 90}};
  EXPECT_EQ(cost_of(known, "bf16", {64, 32000, -1}, 10), 20);
  EXPECT_EQ(cost_of(known, "bf16", {72, 32000, -1}, 11), 22);  // as much more as it states
  EXPECT_EQ(cost_of(known, "bf16", {200, 32000, -1}, 32), 40);
  EXPECT_EQ(cost_of(known, "bf16 softcap", {64, 32000, -1}, 10), 90);
  EXPECT_EQ(cost_of(known, "bf16", {64, 32000, -1}, 0), 20);  // states nothing: the time itself
  // Another kind, a size too far, or one that the timed call had not.
  EXPECT_EQ(cost_of(known, "f32", {64, 32000, -1}, 10), 0);
  EXPECT_EQ(cost_of(known, "bf16", {31, 32000, -1}, 10), 0);
  EXPECT_EQ(cost_of(known, "bf16", {64, 100000, -1}, 10), 0);
  EXPECT_EQ(cost_of(known, "bf16", {64, 32000, 8}, 10), 0);
  EXPECT_EQ(cost_of(known, "bf16", {0, 32000, -1}, 10), 0);
  EXPECT_EQ(cost_of({}, "bf16", {64, 32000, -1}, 10), 0);
}

TEST(MeasuredCost, OfEveryWillingImplementationComesBeforeWhatTheyState) {
  World world;
  OpCall& call = world.make("logp");
  fake_script<Logp, 0>().cost_us = 5;
  fake_script<Logp, 1>().cost_us = 7;
  const auto stream = world.stream();
  const core::Explanation before = world.explain(*stream, call);
  EXPECT_EQ(World::taken(before), "fake/first");
  const auto timed = [&](const char* implementation, const char* device, double measured_us) {
    return MeasuredCost{"logp", implementation, device, before.kind, before.sizes, 5, measured_us};
  };
  const char* const here = stream->device().entry.properties().name;
  const auto taken_with = [&](std::vector<MeasuredCost> costs) {
    world.plugins[1].costs = std::move(costs);
    world.publish();
    return World::taken(world.explain(*stream, call));
  };
  EXPECT_EQ(taken_with({timed("first", here, 30), timed("second", here, 20)}), "fake/second");
  EXPECT_EQ(taken_with({timed("first", here, 30)}), "fake/first");  // of the other one nothing was timed
  EXPECT_EQ(taken_with({timed("first", here, 30), timed("second", "another card", 20)}), "fake/first");
  EXPECT_EQ(taken_with({timed("first", here, 10), timed("second", here, 20)}), "fake/first");

  taken_with({timed("first", here, 30), timed("second", here, 20)});
  const core::Explanation after = world.explain(*stream, call);
  for (const core::Option& option : after.options) {
    if (option.plugin != "fake") continue;
    EXPECT_EQ(option.measured_us, option.implementation == "first" ? 30 : 28);  // second states 7, not 5
    if (option.implementation == "first") {
      EXPECT_NE(option.reason.find("took less when they were timed (28.0 us, the other one 30.0 us)"),
                std::string::npos)
          << option.reason;
    }
  }
}

}  // namespace
}  // namespace rlk::test
