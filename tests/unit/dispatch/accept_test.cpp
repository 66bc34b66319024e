// What a call may be: `call` and `explain` say the same.
#include "core/dispatch/call/accept.hpp"

#include <cstring>

#include "core/declaration/error.hpp"
#include "core/dispatch/call/plan_key.hpp"
#include "unit/dispatch/world.hpp"

namespace rlk::test {
namespace {

// Both refuse it with the same words, and nothing was asked for it.
void expect_both_refuse(World& world, Stream& stream, OpCall& call, const core::CallOptions& options,
                        const std::string& part) {
  EXPECT_EQ(world.call(stream, call, options), RLK_INVALID_ARGUMENT) << part;
  const std::string of_call = world.text();
  EXPECT_NE(of_call.find(part), std::string::npos) << of_call;
  core::Explanation explanation;
  rlk_error error = core::fresh_error();
  EXPECT_EQ(world.dispatcher->explain(stream, *call.decl, call.params.data(), call.input_pointers, call.output_pointers,
                                      options, &explanation, &error),
            RLK_INVALID_ARGUMENT)
      << part;
  EXPECT_EQ(of_call, error.text);
  EXPECT_TRUE(explanation.options.empty());
}

TEST(Accept, CallAndExplainRefuseTheSameOptions) {
  World world;
  auto stream = world.stream();
  OpCall& call = world.make("logp");
  for (const size_t length : {size_t{65}, size_t{100}, size_t{4096}}) {
    const std::string pin = "fake:" + std::string(length - 5, 'x');
    core::CallOptions options;
    options.pin = pin;
    expect_both_refuse(world, *stream, call, options, std::to_string(length) + " characters long; expected at most 64");
  }
  core::CallOptions numerics;
  numerics.numerics = 0x80000000u;
  expect_both_refuse(world, *stream, call, numerics, "options.numerics is 0x80000000");
  rlk_private_params nameless{};
  nameless.struct_size = sizeof(nameless);
  nameless.type = RLK_EXT_PRIVATE_PARAMS;
  core::CallOptions privates;
  privates.next = reinterpret_cast<const rlk_ext*>(&nameless);
  expect_both_refuse(world, *stream, call, privates, "names no plugin (NULL)");
  core::CallOptions unreadable;
  unreadable.pin = ":";
  expect_both_refuse(world, *stream, call, unreadable, "pin");
}

TEST(Accept, ALongestPinIsAccepted) {
  World world;
  auto stream = world.stream();
  OpCall& call = world.make("logp");
  const std::string pin = "fake:" + std::string(59, 'x');
  core::CallOptions options;
  options.pin = pin;
  EXPECT_EQ(world.call(*stream, call, options), RLK_UNSUPPORTED) << world.text();
  EXPECT_FALSE(world.explain(*stream, call, options).refused.empty());
}

TEST(Accept, OnlyMemoryMayBeMissingFromWhatIsExplained) {
  World world;
  auto stream = world.stream();
  OpCall& call = world.make("logp");
  call.inputs[0].data = nullptr;
  call.refresh();
  EXPECT_EQ(world.call(*stream, call), RLK_INVALID_ARGUMENT);
  EXPECT_EQ(World::taken(world.explain(*stream, call)), "fake/first");
}

// The key writes nothing beyond itself, whatever it is built from.
TEST(PlanKey, HasABoundOfItsOwn) {
  World world;
  OpCall& call = world.make("logp");
  rlk_error error{};
  core::BoundCall bound;
  ASSERT_EQ(call.validate(error, bound), RLK_OK);
  const core::PrivateParams privates;
  struct Guarded {
    core::PlanKey key;
    unsigned char behind[4096];
  };
  const auto guarded = std::make_unique<Guarded>();
  std::memset(guarded->behind, 0x5a, sizeof(guarded->behind));
  const auto build = [&](size_t pin_length) {
    const std::string pin(pin_length, 'p');
    return guarded->key.build({1, 2, &world, false, pin, &privates}, bound, call.input_pointers, call.output_pointers,
                              0);
  };
  EXPECT_TRUE(build(64));
  for (const size_t length : {size_t{1} << 16, size_t{1} << 20}) EXPECT_FALSE(build(length)) << length;
  for (const unsigned char byte : guarded->behind) ASSERT_EQ(byte, 0x5a);
  EXPECT_TRUE(build(0)) << "full no more";
}

}  // namespace
}  // namespace rlk::test
