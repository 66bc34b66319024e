// What serves a call: the order of preferences, verification, cost, and what is said about the others.
#include "unit/dispatch/world.hpp"

namespace rlk::test {
namespace {

using sdk::ops::Logp;
using Environment = std::vector<std::pair<std::string, std::string>>;
using Entries = std::vector<core::PolicyEntry>;

const core::Option* find(const core::Explanation& explanation, const std::string& plugin,
                         const std::string& implementation) {
  for (const core::Option& o : explanation.options) {
    if (o.plugin == plugin && o.implementation == implementation) return &o;
  }
  return nullptr;
}

struct OrderCase {
  const char* name;
  const char* on;  // the stream's backend
  const char* pin;
  Environment environment;
  Entries entries;
  const char* taken;
  const char* fallback;  // the reason code, "" for none
};

TEST(Selection, Order) {
  const OrderCase cases[] = {
      {"nothing said: the stream's device", "fake", "", {}, {}, "fake/first", ""},
      {"nothing said, a CPU stream", "cpu", "", {}, {}, "cpu/first", ""},
      {"policy file, every operator", "fake", "", {}, {{"", "cpu", "f:1"}}, "cpu/first staged", ""},
      {"policy file, the operator before every operator",
       "fake",
       "",
       {},
       {{"", "cpu", "f:1"}, {"logp", "fake:second", "f:2"}},
       "fake/second",
       ""},
      {"policy file for another operator", "fake", "", {}, {{"add", "cpu", "f:1"}}, "fake/first", ""},
      {"RLK_BACKEND over the policy file",
       "fake",
       "",
       {{"RLK_BACKEND", "fake"}},
       {{"logp", "cpu", "f:1"}},
       "fake/first",
       ""},
      {"RLK_OP over RLK_BACKEND",
       "fake",
       "",
       {{"RLK_BACKEND", "fake"}, {"RLK_OP_LOGP", "cpu:second"}},
       {},
       "cpu/second staged",
       ""},
      {"RLK_OP of another operator", "fake", "", {{"RLK_OP_ADD", "cpu"}}, {}, "fake/first", ""},
      {"a pin over everything",
       "fake",
       "fake:second",
       {{"RLK_BACKEND", "cpu"}, {"RLK_OP_LOGP", "cpu"}},
       {{"logp", "cpu", "f:1"}},
       "fake/second",
       ""},
      {"a pin by plugin", "fake", "cpu/second", {}, {}, "cpu/second staged", ""},
      {"the weaker preference decides among those the stronger leaves",
       "fake",
       "",
       {{"RLK_BACKEND", "fake"}},
       {{"logp", "fake:second", "f:1"}},
       "fake/second",
       ""},
      {"a preference that nobody knows", "fake", "", {{"RLK_BACKEND", "maca"}}, {}, "fake/first", "NO_SUCH_PLUGIN"},
      {"a preference for an implementation that is not there",
       "fake",
       "",
       {{"RLK_OP_LOGP", "fake:third"}},
       {},
       "fake/first",
       "NO_SUCH_IMPLEMENTATION"},
      {"off on this platform", "fake", "", {}, {{"logp", "", "f:1", "fake", "why"}}, "cpu/first staged", "OFF"},
      {"off everywhere but on the CPU", "fake", "", {}, {{"logp", "", "f:1", "", "why"}}, "cpu/first staged", "OFF"},
      {"off on another platform", "fake", "", {}, {{"logp", "", "f:1", "maca", "why"}}, "fake/first", ""},
      {"another operator is off", "fake", "", {}, {{"add", "", "f:1", "fake", "why"}}, "fake/first", ""},
      {"one implementation is off", "fake", "", {}, {{"logp", "first", "f:1", "fake", "why"}}, "fake/second", ""},
      {"off, and a preference for the operator",
       "fake",
       "",
       {{"RLK_OP_LOGP", "fake"}},
       {{"logp", "", "f:1", "fake", "why"}},
       "fake/first",
       ""},
      {"off, and a preference for every operator",
       "fake",
       "",
       {{"RLK_BACKEND", "fake"}},
       {{"logp", "", "f:1", "fake", "why"}},
       "cpu/first staged",
       "OFF"},
      {"off, and a pin", "fake", "fake:first", {}, {{"logp", "", "f:1", "fake", "why"}}, "fake/first", ""},
      {"a platform's preference", "fake", "", {}, {{"logp", "fake:second", "f:1", "fake"}}, "fake/second", ""},
      {"another platform's preference", "fake", "", {}, {{"logp", "cpu", "f:1", "maca"}}, "fake/first", ""},
      {"a preference for another device", "cpu", "", {{"RLK_BACKEND", "fake"}}, {}, "cpu/first", "OTHER_DEVICE"},
  };
  for (const OrderCase& c : cases) {
    SCOPED_TRACE(c.name);
    World world(World::kAll, c.environment, c.entries);
    auto stream = world.stream(c.on);
    OpCall& call = world.make("logp");
    core::CallOptions options;
    options.pin = c.pin;
    const core::Explanation explanation = world.explain(*stream, call, options);
    EXPECT_EQ(World::taken(explanation), c.taken);
    EXPECT_EQ(explanation.fallback.code, c.fallback) << explanation.fallback.text;
    // What is explained is what is done.
    ASSERT_EQ(world.call(*stream, call, options), RLK_OK) << world.text();
    ASSERT_EQ(world.synchronize(*stream), RLK_OK) << world.text();
    Script* scripts[] = {&fake_script<Logp, 0>(), &fake_script<Logp, 1>(), &cpu_script<Logp, 0>(),
                         &cpu_script<Logp, 1>()};
    const std::string names[] = {"fake/first", "fake/second", "cpu/first", "cpu/second"};
    for (int i = 0; i < 4; ++i) {
      EXPECT_EQ(scripts[i]->enqueues, std::string(c.taken).rfind(names[i], 0) == 0 ? 1 : 0) << names[i];
    }
  }
}

TEST(Selection, CostThenLevelThenOrder) {
  World world;
  auto stream = world.stream();
  OpCall& call = world.make("logp");
  Script &first = fake_script<Logp, 0>(), &second = fake_script<Logp, 1>();
  second.level = RLK_SUPPORT_PREFERRED;
  EXPECT_EQ(World::taken(world.explain(*stream, call)), "fake/second");
  first.cost_us = 5;  // the other's is unknown: levels decide
  EXPECT_EQ(World::taken(world.explain(*stream, call)), "fake/second");
  second.cost_us = 7;
  EXPECT_EQ(World::taken(world.explain(*stream, call)), "fake/first");
  first.level = RLK_SUPPORT_SLOW;
  EXPECT_EQ(World::taken(world.explain(*stream, call)), "fake/second");
  second.level = RLK_SUPPORT_NO;  // slow on the device still stands before staged
  EXPECT_EQ(World::taken(world.explain(*stream, call)), "fake/first");
  first.level = RLK_SUPPORT_NO;
  EXPECT_EQ(World::taken(world.explain(*stream, call)), "cpu/first staged");
}

TEST(Selection, WhatIsNotVerifiedIsDeclined) {
  World world;
  world.plugins[1].units.clear();
  world.plugins[1].units.push_back(unit("logp", "first", "f32", ""));
  world.plugins[1].units.push_back(unit("logp", "first", "f32", "bias", "other variant"));
  world.plugins[1].units.push_back(unit("logp", "first", "f32", "softcap", "v1", 1, UnitResult::Verdict::failed));
  world.publish();
  auto stream = world.stream();
  OpCall& call = world.make("logp");
  EXPECT_EQ(World::taken(world.explain(*stream, call)), "fake/first");

  call.inputs[RLK_LOGP_IN_BIAS].given = true;
  call.rebuild();
  core::Explanation with_bias = world.explain(*stream, call);
  EXPECT_EQ(World::taken(with_bias), "cpu/first staged");
  ASSERT_NE(find(with_bias, "fake", "first"), nullptr);
  EXPECT_EQ(find(with_bias, "fake", "first")->reason_code, "NOT_VERIFIED");
  EXPECT_NE(find(with_bias, "fake", "first")->reason.find("bias"), std::string::npos);
  EXPECT_EQ(with_bias.fallback.code, "NOT_VERIFIED");

  OpCall& capped = world.make("logp");
  capped.set_f64(1, 3.0);
  EXPECT_EQ(find(world.explain(*stream, capped), "fake", "first")->reason_code, "VERIFICATION_FAILED");

  OpCall& other_dtype = world.make("logp");
  other_dtype.dtypes[0] = Dtype::bf16;
  other_dtype.rebuild();
  EXPECT_EQ(find(world.explain(*stream, other_dtype), "fake", "first")->reason_code, "NOT_VERIFIED");
}

TEST(Selection, ThePlansVariantMustBeVerifiedToo) {
  World world;
  fake_script<Logp>().plan_variant = "surprise";
  auto stream = world.stream();
  OpCall& call = world.make("logp");
  ASSERT_EQ(world.call(*stream, call), RLK_OK) << world.text();
  EXPECT_EQ(fake_script<Logp>().enqueues, 0);
  EXPECT_EQ((fake_script<Logp, 1>().enqueues), 1);
}

TEST(Selection, DemandedNumerics) {
  World world;
  auto stream = world.stream();
  OpCall& call = world.make("logp");
  core::CallOptions options;
  options.numerics = RLK_NUMERICS_DETERMINISTIC;
  EXPECT_EQ(World::taken(world.explain(*stream, call, options)), "fake/first");
  fake_script<Logp>().numerics = RLK_NUMERICS_TOLERANCE;
  EXPECT_EQ(World::taken(world.explain(*stream, call, options)), "fake/second");

  // Claimed is not verified.
  options.numerics = RLK_NUMERICS_BATCH_INVARIANT;
  fake_script<Logp>().numerics = RLK_NUMERICS_TOLERANCE | RLK_NUMERICS_DETERMINISTIC | RLK_NUMERICS_BATCH_INVARIANT;
  const core::Explanation explanation = world.explain(*stream, call, options);
  EXPECT_EQ(World::taken(explanation), "");
  EXPECT_EQ(find(explanation, "fake", "first")->reason_code, "NUMERICS");
  EXPECT_EQ(world.call(*stream, call, options), RLK_UNSUPPORTED);
  EXPECT_NE(world.text().find("batch_invariant"), std::string::npos) << world.text();
  // The built-in CPU serves tolerance unverified, and nothing more.
  cpu_script<Logp>().numerics = RLK_NUMERICS_TOLERANCE | RLK_NUMERICS_DETERMINISTIC | RLK_NUMERICS_BATCH_INVARIANT;
  EXPECT_EQ(find(world.explain(*stream, call, options), "cpu", "first")->reason_code, "NOT_VERIFIED");
}

TEST(Selection, OlderPluginsAreDeclinedOnTheirBehalf) {
  World world;
  // A plugin built when logp had two parameters, three inputs and one output.
  static rlk_implementation old = *world.plugins[1].api->implementations[2];
  ASSERT_STREQ(old.op, "logp");
  old.params_size = 8 + 2 * 8;
  old.n_inputs = 3;
  old.n_outputs = 1;
  static const rlk_implementation* rows[] = {&old};
  static rlk_plugin plugin = *world.plugins[1].api;
  plugin.n_implementations = 1;
  plugin.implementations = rows;
  world.plugins[1].api = &plugin;
  for (const char* feature : {"ignore_index", "mask", "entropy"}) {
    world.plugins[1].units.push_back(unit("logp", "first", "f32", feature));
  }
  world.publish();
  auto stream = world.stream();
  const auto reason = [&](OpCall& call) {
    const core::Explanation explanation = world.explain(*stream, call);
    const core::Option* option = find(explanation, "fake", "first");
    return option->verdict == core::Verdict::taken ? std::string() : option->reason_code + " " + option->reason;
  };
  OpCall& plain = world.make("logp");
  EXPECT_EQ(reason(plain), "");
  OpCall& newer_param = world.make("logp");
  newer_param.set_i64(2, -1);
  EXPECT_NE(reason(newer_param).find("OP_REVISION"), std::string::npos) << reason(newer_param);
  EXPECT_NE(reason(newer_param).find("'ignore_index'"), std::string::npos) << reason(newer_param);
  OpCall& newer_input = world.make("logp");
  newer_input.inputs[RLK_LOGP_IN_MASK].given = true;
  newer_input.rebuild();
  EXPECT_NE(reason(newer_input).find("input 'mask'"), std::string::npos) << reason(newer_input);
  OpCall& newer_output = world.make("logp");
  newer_output.outputs[RLK_LOGP_OUT_ENTROPY].given = true;
  newer_output.rebuild();
  EXPECT_NE(reason(newer_output).find("output 'entropy'"), std::string::npos) << reason(newer_output);
  EXPECT_EQ(fake_script<Logp>().queries, 1) << "declined before it is asked";
}

TEST(Selection, QueryThatFails) {
  World world;
  fake_script<Logp>().fail_query = RLK_BACKEND_ERROR;
  auto stream = world.stream();
  OpCall& call = world.make("logp");
  const core::Explanation explanation = world.explain(*stream, call);
  EXPECT_EQ(World::taken(explanation), "fake/second");
  EXPECT_EQ(find(explanation, "fake", "first")->verdict, core::Verdict::failed);
  EXPECT_EQ(find(explanation, "fake", "first")->reason_code, "BACKEND_ERROR");
}

TEST(Selection, ContiguousWouldBeTaken) {
  World world;
  for (Script* s : {&fake_script<Logp, 0>(), &fake_script<Logp, 1>()}) {
    s->level = RLK_SUPPORT_NO;
    s->support_flags = RLK_SUPPORT_IF_CONTIGUOUS;
    s->reason_code = "STRIDES";
    s->reason = "strided logits";
  }
  auto stream = world.stream();
  OpCall& call = world.make("logp");
  const core::Explanation explanation = world.explain(*stream, call);
  EXPECT_EQ(World::taken(explanation), "cpu/first staged");
  EXPECT_NE(find(explanation, "fake", "first")->reason.find("contiguous tensors would be taken"), std::string::npos);
}

TEST(Selection, APinThatCannotServeIsAnErrorWithTheStoredReason) {
  World world;
  world.publish({{"cuda", "cuda", "RUNTIME_LIBRARY_MISSING", "libcuda.so.1 was not found"}});
  auto stream = world.stream();
  OpCall& call = world.make("logp");
  core::CallOptions options;
  options.pin = "cuda:fused";
  EXPECT_EQ(world.call(*stream, call, options), RLK_UNSUPPORTED);
  EXPECT_NE(world.text().find("RUNTIME_LIBRARY_MISSING"), std::string::npos) << world.text();
  EXPECT_NE(world.text().find("libcuda.so.1"), std::string::npos) << world.text();
  options.pin = "fake:";
  EXPECT_EQ(world.call(*stream, call, options), RLK_INVALID_ARGUMENT);
  EXPECT_NE(world.text().find("BACKEND:IMPLEMENTATION"), std::string::npos) << world.text();
  fake_script<Logp>().level = RLK_SUPPORT_NO;
  options.pin = "fake:first";
  EXPECT_EQ(world.call(*stream, call, options), RLK_UNSUPPORTED) << "a pin never falls back";
}

TEST(Selection, StrictModeRefusesAFallbackAndSaysWhy) {
  World world(World::kAll, {{"RLK_FALLBACK", "strict"}});
  for (Script* s : {&fake_script<Logp, 0>(), &fake_script<Logp, 1>()}) {
    s->level = RLK_SUPPORT_NO;
    s->reason_code = "DTYPE";
    s->reason = "no f32";
  }
  auto stream = world.stream();
  OpCall& call = world.make("logp");
  EXPECT_EQ(world.call(*stream, call), RLK_UNSUPPORTED);
  for (const char* part : {"RLK_FALLBACK=strict", "DTYPE", "no f32", "cpu/first"}) {
    EXPECT_NE(world.text().find(part), std::string::npos) << part << " | " << world.text();
  }
  EXPECT_EQ(world.counters("logp").staged, 0u);
  OpCall& add = world.make("add");
  EXPECT_EQ(world.call(*stream, add), RLK_OK) << world.text();
}

TEST(Selection, FallbacksAreCountedByReason) {
  World world(World::kAll, {{"RLK_FALLBACK", "allow"}});
  fake_script<Logp, 0>().level = fake_script<Logp, 1>().level = RLK_SUPPORT_NO;
  fake_script<Logp, 0>().reason_code = "DTYPE";
  auto stream = world.stream();
  OpCall& call = world.make("logp");
  for (int i = 0; i < 3; ++i) ASSERT_EQ(world.call(*stream, call), RLK_OK) << world.text();
  const auto fallbacks = world.dispatcher->counters().fallbacks(op("logp"));
  ASSERT_EQ(fallbacks.size(), 1u);
  EXPECT_EQ(fallbacks[0]->reason_code, "DTYPE");
  EXPECT_EQ(fallbacks[0]->calls, 3u);
  EXPECT_EQ(world.counters("logp").staged, 3u);
}

TEST(Selection, AFallbackIsSaidOncePerReason) {
  World world;
  fake_script<Logp, 0>().level = fake_script<Logp, 1>().level = RLK_SUPPORT_NO;
  fake_script<Logp, 0>().reason_code = "DTYPE";
  auto stream = world.stream();
  OpCall &call = world.make("logp"), &other = world.make("logp");
  other.symbols[2] = 40;  // another key, the same reason
  other.rebuild();
  testing::internal::CaptureStderr();
  for (int i = 0; i < 3; ++i) ASSERT_EQ(world.call(*stream, call), RLK_OK);
  ASSERT_EQ(world.call(*stream, other), RLK_OK);
  ASSERT_EQ(world.synchronize(*stream), RLK_OK);  // what it cost is told when it is through
  const std::string log = testing::internal::GetCapturedStderr();
  for (const char* part : {"logp", "cpu/first", "staged", "DTYPE"}) EXPECT_NE(log.find(part), std::string::npos) << log;
  EXPECT_EQ(log.find("DTYPE"), log.rfind("DTYPE")) << log;
}

TEST(Selection, TheLogTellsEveryDecisionAndOutcome) {
  World world(World::kAll, {{"RLK_LOG_DISPATCH", "1"}});
  auto stream = world.stream();
  OpCall& call = world.make("logp");
  core::CallOptions nobody;
  nobody.pin = "nobody";
  testing::internal::CaptureStderr();
  ASSERT_EQ(world.call(*stream, call), RLK_OK);
  ASSERT_EQ(world.call(*stream, call), RLK_OK);
  EXPECT_EQ(world.call(*stream, call, nobody), RLK_UNSUPPORTED);
  const std::string log = testing::internal::GetCapturedStderr();
  for (const char* part : {"N=5", "f32", "-> fake/first (plan made)", "-> fake/first (plan reused)", "OK after",
                           "UNSUPPORTED", "NO_SUCH_PLUGIN"}) {
    EXPECT_NE(log.find(part), std::string::npos) << part << " | " << log;
  }
}

TEST(Selection, AGuestsOperatorsRunOnTheOwnersStream) {
  World world(World::kAll | World::kGuest);
  auto stream = world.stream();
  OpCall& call = world.make("add");
  auto* a = static_cast<float*>(call.inputs[0].data);
  a[2] = 5;
  core::CallOptions options;
  options.pin = "guest/first";
  ASSERT_EQ(world.call(*stream, call, options), RLK_OK) << world.text();
  ASSERT_EQ(world.synchronize(*stream), RLK_OK);
  EXPECT_EQ(static_cast<float*>(call.outputs[0].data)[2], 5);
  EXPECT_EQ(guest_script().runs, 1);
}

TEST(Policy, WordsThatAreNotUnderstood) {
  World world;
  Policy policy;
  rlk_error error = {sizeof(rlk_error), 0, 0, {}, {}};
  const Environment bad[] = {
      {{"RLK_OP_LOGPP", "cpu"}}, {{"RLK_OP_LOGP", "cpu:"}}, {{"RLK_BACKEND", "a b"}}, {{"RLK_LOG_DISPATCH", "yes"}}};
  for (Environment environment : bad) {
    EXPECT_EQ(world.make_policy(environment, {}, &policy, &error), RLK_OK) << "a warning by default";
    const std::string name = environment[0].first;
    environment.push_back({"RLK_FALLBACK", "strict"});
    EXPECT_EQ(world.make_policy(environment, {}, &policy, &error), RLK_INVALID_ARGUMENT) << name;
    EXPECT_NE(std::string(error.text).find(name), std::string::npos) << error.text;
    const std::string text = error.text;
    EXPECT_TRUE(text.find("expected") != std::string::npos || text.find("did you mean") != std::string::npos) << text;
  }
  EXPECT_EQ(world.make_policy({{"RLK_FALLBACK", "strict"}}, {{"logpp", "cpu", "f:3"}}, &policy, &error),
            RLK_INVALID_ARGUMENT);
  EXPECT_NE(std::string(error.text).find("f:3"), std::string::npos) << error.text;
}

TEST(Policy, WishesForUnknownBackendsAreNoticedAfterLoading) {
  World strict(World::kAll, {{"RLK_BACKEND", "cudda"}, {"RLK_FALLBACK", "strict"}});
  rlk_error error = {sizeof(rlk_error), 0, 0, {}, {}};
  EXPECT_EQ(strict.dispatcher->check_wishes(&error), RLK_INVALID_ARGUMENT);
  EXPECT_NE(std::string(error.text).find("cudda"), std::string::npos) << error.text;
  World allowed(World::kAll, {{"RLK_BACKEND", "cudda"}});
  EXPECT_EQ(allowed.dispatcher->check_wishes(&error), RLK_OK);
  strict.publish({{"cudda", "cudda", "NO_DEVICE", "none here"}});
  EXPECT_EQ(strict.dispatcher->check_wishes(&error), RLK_OK) << "rejected, but known";
}

// ---- explaining

TEST(Explain, RefusesWhatStrictForbidsInTheWordsOfTheCall) {
  for (const World::Environment& environment :
       {World::Environment{{"RLK_FALLBACK", "strict"}},
        World::Environment{{"RLK_FALLBACK", "strict"}, {"RLK_OP_LOGP", "fake:first"}}}) {
    World world(World::kAll, environment);
    fake_script<Logp, 0>().level = fake_script<Logp, 1>().level = RLK_SUPPORT_NO;
    auto stream = world.stream();
    OpCall& call = world.make("logp");
    const core::Explanation explanation = world.explain(*stream, call);
    EXPECT_EQ(World::taken(explanation), "") << "the call is refused too";
    EXPECT_EQ(find(explanation, "cpu", "first")->reason_code, "FALLBACK_FORBIDDEN");
    EXPECT_EQ(world.call(*stream, call), RLK_UNSUPPORTED);
    EXPECT_EQ(explanation.refused, world.text());
  }
}

TEST(Explain, TakesWhatStrictAllows) {
  World world(World::kAll, {{"RLK_FALLBACK", "strict"}, {"RLK_OP_LOGP", "cpu"}});
  auto stream = world.stream();
  OpCall& call = world.make("logp");
  const core::Explanation explanation = world.explain(*stream, call);
  EXPECT_EQ(World::taken(explanation), "cpu/first staged") << "as was asked for";
  EXPECT_EQ(explanation.refused, "");
  EXPECT_EQ(world.call(*stream, call), RLK_OK) << world.text();
}

TEST(Explain, HasTheCallsErrorWhenNobodyTakesIt) {
  World world;
  for (const int number : {0, 1}) {
    script_of("fake", "logp", number).level = RLK_SUPPORT_NO;
    script_of("cpu", "logp", number).level = RLK_SUPPORT_NO;
  }
  auto stream = world.stream();
  OpCall& call = world.make("logp");
  const core::Explanation explanation = world.explain(*stream, call);
  EXPECT_EQ(world.call(*stream, call), RLK_UNSUPPORTED);
  EXPECT_EQ(explanation.refused, world.text());
}

TEST(Explain, SaysByWhichRuleTheFirstStandsBeforeTheOthers) {
  Script &first = fake_script<Logp, 0>(), &second = fake_script<Logp, 1>();
  const auto why = [&](const World::Environment& environment, auto&& set, const char* plugin, const char* name) {
    World world(World::kAll, environment);
    set();
    auto stream = world.stream();
    return find(world.explain(*stream, world.make("logp")), plugin, name)->reason;
  };
  const auto expect = [](const std::string& text, const char* part) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " | " << text;
  };
  const auto nothing = [] {};
  expect(why({}, nothing, "cpu", "first"), "a plugin of the call's device comes before the CPU");
  expect(why({}, nothing, "fake", "second"), "registered earlier");
  expect(why({{"RLK_OP_LOGP", "fake:second"}}, nothing, "fake", "first"), "RLK_OP_LOGP asks for fake:second");
  expect(why(
             {}, [&] { second.level = RLK_SUPPORT_SLOW; }, "fake", "second"),
         "slow for this call");
  expect(why(
             {}, [&] { first.level = RLK_SUPPORT_PREFERRED; }, "fake", "second"),
         "\"preferred\", the other one \"ok\"");
  const auto costs = [&] { first.cost_us = 9, second.cost_us = 2.5; };
  expect(why({}, costs, "fake", "first"), "a lower cost (2.5 us, the other one 9 us)");
}

}  // namespace
}  // namespace rlk::test
