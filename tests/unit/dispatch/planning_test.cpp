// Whose time is it, where plans of one plugin wait for each other? No plugin is switched off for having waited.
#include "core/dispatch/call/planning.hpp"

#include <future>

#include "core/dispatch/trust/release.hpp"
#include "core/dispatch/trust/timeout.hpp"
#include "unit/dispatch/world.hpp"

namespace rlk::test {
namespace {

using core::Ended;
using core::PlanPhases;
using core::PlanTimes;
using sdk::ops::Add;
using sdk::ops::Logp;

constexpr double kLimit = 240;

TEST(PlanTimes, OnlyTheTimeAloneCounts) {
  PlanTimes times;
  const uint64_t first = times.begin(1000);
  EXPECT_EQ(times.deadline(first, kLimit, 1000), 1240);
  EXPECT_EQ(times.deadline(first, kLimit, 1100), 1240) << "time that passes moves no deadline";
  const uint64_t second = times.begin(1100);
  EXPECT_EQ(times.deadline(first, kLimit, 1100), 1000 + 2 * kLimit);
  EXPECT_EQ(times.deadline(second, kLimit, 1100), 1100 + 2 * kLimit);
  EXPECT_FALSE(times.is_alone(first));
  times.end(first, 1300);
  EXPECT_EQ(times.deadline(second, kLimit, 1300), 1300 + kLimit) << "it may have waited for the first until now";
  EXPECT_TRUE(times.is_alone(second));
  const uint64_t third = times.begin(1400);
  times.end(third, 1450);
  EXPECT_EQ(times.deadline(second, kLimit, 1500), 1300 + kLimit + 50);
}

TEST(PlanTimes, EachHasALimitForItselfAndOneForEveryOther) {
  PlanTimes times;
  const uint64_t a = times.begin(0), b = times.begin(0), c = times.begin(10);
  EXPECT_EQ(times.deadline(a, kLimit, 20), 3 * kLimit);
  EXPECT_EQ(times.deadline(c, kLimit, 20), 10 + 3 * kLimit);
  times.end(b, 30);
  EXPECT_EQ(times.deadline(a, kLimit, 30), 3 * kLimit) << "what it waited for may have begun another wait";
}

TEST(PlanTimes, WhatIsGivenUpHoldsNobodysClockAndIsStillInTheWay) {
  PlanTimes times;
  const uint64_t gone = times.begin(0);
  times.give_up(gone, kLimit);
  const uint64_t next = times.begin(1000);
  EXPECT_EQ(times.deadline(next, kLimit, 1000), 1000 + kLimit);
  EXPECT_FALSE(times.is_alone(next));
  times.end(gone, 1100);
  EXPECT_TRUE(times.is_alone(next));
}

// Limits of a quarter of a second; a test sets them back.
struct Impatience {
  Impatience() { core::set_patience(0.001); }
  ~Impatience() { core::set_patience(1); }
};

TEST(Phases, OneThatHangsAloneIsLateAndNotHeldUp) {
  const rlk_plugin plugin{};
  std::promise<void> end;
  const auto ended = end.get_future().share();
  {
    const Impatience limits;
    EXPECT_EQ(core::within_phases(plugin, {kLimit, kLimit},
                                  [ended](PlanPhases& phases) {
                                    phases.begin_plan();
                                    ended.wait();
                                  }),
              Ended::late);
  }
  EXPECT_FALSE(core::is_held_up(plugin));
  end.set_value();
}

TEST(Phases, EachPhaseHasItsOwnLimit) {
  const rlk_plugin plugin{};
  const Impatience limits;
  std::promise<void> end;
  const auto ended = end.get_future().share();
  EXPECT_EQ(core::within_phases(plugin, {1e9, 1e9},
                                [](PlanPhases& phases) {
                                  phases.begin_plan();
                                  phases.end_plan();
                                }),
            Ended::returned);
  EXPECT_EQ(core::within_phases(plugin, {1e9, 20},
                                [ended](PlanPhases& phases) {
                                  phases.begin_plan();
                                  phases.end_plan();
                                  ended.wait();
                                }),
            Ended::late);
  end.set_value();
}

// A plugin that holds one lock while it makes a plan, as a run-time compiler may.
TEST(Planning, AnOperatorThatOnlyWaitsForAnothersPlanIsNotSwitchedOff) {
  World world;
  std::mutex compiler;
  std::promise<void> end;
  const auto ended = end.get_future().share();
  std::atomic<int> inside{0};
  for (Script* script : {&fake_script<Logp>(), &fake_script<Add>()}) {
    script->on_plan = [&, ended](const rlk_private_params*) {
      ++inside;
      const std::lock_guard lock(compiler);
      ended.wait();
    };
  }
  OpCall &logp = world.make("logp"), &add = world.make("add");
  auto one = world.stream(), other = world.stream();
  {
    rlk_status answers[2] = {RLK_INTERNAL, RLK_INTERNAL};
    const auto make = [&](Stream& stream, OpCall& call, rlk_status* answer) {
      *answer = world.dispatcher->call(stream, *call.decl, call.params.data(), call.input_pointers,
                                       call.output_pointers, {}, nullptr);
    };
    std::thread first(make, std::ref(*one), std::ref(logp), &answers[0]);
    while (inside < 1) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    const Impatience limits;
    std::thread second(make, std::ref(*other), std::ref(add), &answers[1]);
    first.join();
    second.join();
    EXPECT_EQ(answers[0], RLK_OK) << "the CPU serves it";
    EXPECT_EQ(answers[1], RLK_OK) << "the CPU serves it";
  }
  ASSERT_EQ(inside, 2);
  for (const auto& off : world.registry.current()->quarantined) ADD_FAILURE() << off->who() << ": " << off->reason;
  // Nothing more is sent into the plugin to wait behind them.
  ASSERT_EQ(world.call(*one, logp), RLK_OK) << world.text();
  OpCall& larger = world.make("add");
  larger.set_f64(0, 2.0);
  ASSERT_EQ(world.call(*one, larger), RLK_OK) << world.text();
  EXPECT_EQ(inside, 2);
  end.set_value();
  while (core::is_held_up(*world.plugins[1].api)) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  // Both are asked again and serve.
  for (OpCall* call : {&logp, &add}) {
    const int before = script_of("fake", call->decl->name, 0).enqueues;
    while (script_of("fake", call->decl->name, 0).enqueues == before) {
      ASSERT_EQ(world.call(*one, *call), RLK_OK) << world.text();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  ASSERT_EQ(world.synchronize(*one), RLK_OK);
  ASSERT_EQ(world.synchronize(*other), RLK_OK);
  EXPECT_TRUE(world.registry.current()->quarantined.empty());
}

// What else is inside the plugin may wait for the same lock.
TEST(Planning, OpeningWhileAPlanIsMadeIsNoReasonToSwitchThePluginOff) {
  World world;
  const rlk_plugin& plugin = *world.plugins[1].api;
  std::promise<void> end;
  const auto ended = end.get_future().share();
  std::atomic<bool> is_inside{false};
  std::thread maker([&, ended] {
    core::within_phases(plugin, {1e9, 1e9}, [&, ended](PlanPhases& phases) {
      phases.begin_plan();
      is_inside = true;
      ended.wait();
    });
  });
  while (!is_inside) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  rlk_error error = core::fresh_error();
  const auto open = [&] {
    return core::call_with_timeout(
        0.001, plugin, "device open", std::make_shared<core::TimedCall>(), [ended] { ended.wait(); }, &error);
  };
  EXPECT_EQ(open(), RLK_TIMEOUT);
  EXPECT_NE(std::string(error.text).find("plans of the plugin were being made"), std::string::npos) << error.text;
  EXPECT_TRUE(world.registry.current()->quarantined.empty());
  end.set_value();
  maker.join();
  EXPECT_FALSE(core::is_planning(plugin));
}

}  // namespace
}  // namespace rlk::test
