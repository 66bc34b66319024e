// The class accurate: which implementations are offered a call that demands it, by its options or by the policy.
#include "unit/dispatch/world.hpp"

namespace rlk::test {
namespace {

using sdk::ops::Attention;
using sdk::ops::Logp;

const core::Option* first_of_fake(const core::Explanation& explanation) {
  for (const core::Option& option : explanation.options) {
    if (option.plugin == "fake" && option.implementation == "first") return &option;
  }
  return nullptr;
}

OpCall& attention(World& world, Dtype dtype) {
  OpCall& call = world.make("attention");
  call.dtypes[0] = dtype;
  call.rebuild();
  return call;
}

core::CallOptions accurate() {
  core::CallOptions options;
  options.numerics = RLK_NUMERICS_ACCURATE;
  return options;
}

TEST(Accurate, IsDemandedOfTheAnswerWhereIntermediatesMayBeRounded) {
  World world;
  auto stream = world.stream();
  OpCall& call = attention(world, Dtype::bf16);
  EXPECT_EQ(World::taken(world.explain(*stream, call)), "fake/first");
  const core::Explanation explanation = world.explain(*stream, call, accurate());
  EXPECT_EQ(first_of_fake(explanation)->reason_code, "NUMERICS");
  EXPECT_NE(first_of_fake(explanation)->reason.find("demanded is accurate"), std::string::npos);
  EXPECT_EQ(first_of_fake(explanation)->numerics & RLK_NUMERICS_ACCURATE, 0u);

  // A claim that verification has not found to hold.
  fake_script<Attention>().numerics |= RLK_NUMERICS_ACCURATE;
  EXPECT_EQ(first_of_fake(world.explain(*stream, call, accurate()))->reason_code, "NUMERICS");
  world.plugins[1].units.push_back(
      unit("attention", "first", "bf16", "", "v1", RLK_NUMERICS_TOLERANCE | RLK_NUMERICS_ACCURATE));
  world.publish();
  EXPECT_EQ(World::taken(world.explain(*stream, call, accurate())), "fake/first");
}

TEST(Accurate, NeedsNoClaimWhereNothingMayBeRounded) {
  World world;
  auto stream = world.stream();
  for (OpCall* call : {&attention(world, Dtype::f32), &world.make("logp")}) {
    const core::Explanation explanation = world.explain(*stream, *call, accurate());
    EXPECT_EQ(World::taken(explanation), "fake/first");
    EXPECT_NE(first_of_fake(explanation)->numerics & RLK_NUMERICS_ACCURATE, 0u);
  }
  OpCall& call = world.make("logp");
  EXPECT_EQ(world.call(*stream, call, accurate()), RLK_OK) << world.text();
  EXPECT_EQ(fake_script<Logp>().enqueues, 1);
}

TEST(Accurate, ThePolicyDemandsItOfEveryCallAndIsNamed) {
  World world(World::kAll, {}, {{"numerics", "accurate", "/etc/rlk.toml:4"}});
  auto stream = world.stream();
  const core::Explanation explanation = world.explain(*stream, attention(world, Dtype::bf16));
  EXPECT_EQ(first_of_fake(explanation)->reason_code, "NUMERICS");
  EXPECT_NE(first_of_fake(explanation)->reason.find("/etc/rlk.toml:4 demands accurate"), std::string::npos)
      << first_of_fake(explanation)->reason;
  EXPECT_EQ(world.call(*stream, attention(world, Dtype::bf16)), RLK_UNSUPPORTED);
  EXPECT_EQ(World::taken(world.explain(*stream, world.make("logp"))), "fake/first");
}

TEST(Accurate, AClassThatNobodyKnowsIsAnErrorOfTheStrictPolicy) {
  core::Policy policy;
  rlk_error error = {sizeof(rlk_error), 0, 0, {}, {}};
  const std::vector<core::PolicyEntry> entries = {{"numerics", "accurate,exact", "f:3"}};
  EXPECT_EQ(World::make_policy({{"RLK_FALLBACK", "strict"}}, entries, &policy, &error), RLK_INVALID_ARGUMENT);
  EXPECT_NE(std::string(error.text).find("f:3 demands the numerics class \"exact\""), std::string::npos) << error.text;
  EXPECT_EQ(World::make_policy({}, entries, &policy, &error), RLK_OK);
  EXPECT_EQ(policy.numerics(), RLK_NUMERICS_ACCURATE);
}

}  // namespace
}  // namespace rlk::test
