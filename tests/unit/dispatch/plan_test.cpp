// When a plan is made, when it is used again, when it dies; and that using it again allocates nothing.
#include <atomic>
#include <chrono>
#include <filesystem>
#include <future>
#include <iterator>
#include <new>
#include <stdexcept>
#include <thread>

#include "core/dispatch/trust/timeout.hpp"
#include "unit/dispatch/world.hpp"

#ifndef RLK_SANITIZED  // sanitizers have an operator new of their own
namespace {

// Every operator new of this program is counted while the count is on.
thread_local bool counting = false;
thread_local int allocations = 0;

}  // namespace

// Not inlined: the compiler would else see malloc paired with delete.
__attribute__((noinline)) void* operator new(size_t bytes) {
  if (counting) ++allocations;
  if (void* memory = std::malloc(bytes == 0 ? 1 : bytes)) return memory;
  throw std::bad_alloc();
}
__attribute__((noinline)) void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  if (counting) ++allocations;
  return std::malloc(bytes == 0 ? 1 : bytes);
}
__attribute__((noinline)) void operator delete(void* memory) noexcept {
  std::free(memory);
}
__attribute__((noinline)) void operator delete(void* memory, const std::nothrow_t&) noexcept {
  std::free(memory);
}
__attribute__((noinline)) void operator delete(void* memory, size_t) noexcept {
  std::free(memory);
}
#endif

namespace rlk::test {
namespace {

using sdk::ops::Add;
using sdk::ops::Logp;

void set_rows(OpCall& call, int64_t rows) {
  call.symbols[RLK_LOGP_SYM_N] = call.symbols[RLK_LOGP_SYM_R] = rows;
  call.rebuild();
}

TEST(Plan, OnePlanServesChangingTokenCounts) {
  World world;
  auto stream = world.stream("cpu");
  OpCall& call = world.make("logp");
  int made = 0;
  for (int64_t rows = 0; rows < 300; ++rows) {
    set_rows(call, rows);
    ASSERT_EQ(world.call(*stream, call), RLK_OK) << world.text();
    EXPECT_EQ(cpu_script<Logp>().last_first_symbol, rows) << "the execution is told the actual size";
    made = cpu_script<Logp>().plans;
  }
  EXPECT_EQ(made, 1);
  EXPECT_EQ(world.counters("logp").plan_misses, 1u);
  EXPECT_EQ(world.counters("logp").plan_hits, 299u);
  EXPECT_EQ(world.counters("logp").calls, 300u);
  // Candidates are asked anew for every order of magnitude of N and R: 0, 1, 2-3, 4-7, ..., 256-511.
  EXPECT_EQ(world.counters("logp").decisions, 10u);
}

TEST(Plan, BoundsAreRespected) {
  World world;
  Script& script = cpu_script<Logp>();
  script.symbol_min = {0, 0, 0};
  script.symbol_max = {7, 7, INT64_MAX};
  auto stream = world.stream("cpu");
  OpCall& call = world.make("logp");
  for (const int64_t rows : {4, 5, 6, 7, 4, 5}) {
    set_rows(call, rows);
    ASSERT_EQ(world.call(*stream, call), RLK_OK) << world.text();
  }
  EXPECT_EQ(script.plans, 1);
  script.symbol_min = {8, 8, 0};
  script.symbol_max = {INT64_MAX, INT64_MAX, INT64_MAX};
  for (const int64_t rows : {8, 100, 7, 9, 4}) {
    set_rows(call, rows);
    ASSERT_EQ(world.call(*stream, call), RLK_OK) << world.text();
  }
  EXPECT_EQ(script.plans, 2);
}

TEST(Plan, BoundsThatLeaveOutTheCallAreAFailure) {
  World world;
  cpu_script<Logp>().symbol_max = {3, 3, 3};
  auto stream = world.stream("cpu");
  OpCall& call = world.make("logp");
  ASSERT_EQ(world.call(*stream, call), RLK_OK) << world.text();
  EXPECT_EQ((cpu_script<Logp, 1>().enqueues), 1);
  ASSERT_EQ(world.registry.current()->quarantined.size(), 1u);
  EXPECT_EQ(world.registry.current()->quarantined[0]->reason_code, "INTERNAL");
}

TEST(Plan, WhatIsNotPolymorphicIsPlannedPerSize) {
  World world;
  cpu_script<Logp>().dynamic_symbols = 0;
  auto stream = world.stream("cpu");
  OpCall& call = world.make("logp");
  for (const int64_t rows : {4, 5, 6, 4, 5, 6}) {
    set_rows(call, rows);
    ASSERT_EQ(world.call(*stream, call), RLK_OK) << world.text();
  }
  EXPECT_EQ(cpu_script<Logp>().plans, 3);
}

TEST(Plan, TheStructureOfACallIsInTheKey) {
  World world;
  auto stream = world.stream("cpu");
  const auto plans_for = [&](OpCall& call) {
    const int before = cpu_script<Logp>().plans;
    EXPECT_EQ(world.call(*stream, call), RLK_OK) << world.text();
    EXPECT_EQ(world.call(*stream, call), RLK_OK) << world.text();
    return cpu_script<Logp>().plans - before;
  };
  OpCall& call = world.make("logp");
  EXPECT_EQ(plans_for(call), 1);
  call.set_f64(0, 0.5);
  EXPECT_EQ(plans_for(call), 1) << "parameters";
  call.symbols[RLK_LOGP_SYM_V] = 38;
  call.rebuild();
  EXPECT_EQ(plans_for(call), 1) << "a symbol that is not dynamic";
  call.inputs[RLK_LOGP_IN_BIAS].given = true;
  call.rebuild();
  EXPECT_EQ(plans_for(call), 1) << "presence";
  call.dtypes[1] = Dtype::i32;
  call.rebuild();
  EXPECT_EQ(plans_for(call), 1) << "dtypes";
  call.inputs[0].alignment = 16;
  call.refresh();
  EXPECT_EQ(plans_for(call), 1) << "alignment";
  call.inputs[0].data = call.allocate(1280);
  call.inputs[0].strides[0] = 64;
  call.refresh();
  EXPECT_EQ(plans_for(call), 1) << "strides";
  call.inputs[0].strides[0] = 48;
  call.refresh();
  EXPECT_EQ(plans_for(call), 1) << "other strides";
  EXPECT_EQ(plans_for(call), 0) << "the same";
}

TEST(Plan, AliasingIsInTheKey) {
  World world;
  auto stream = world.stream("cpu");
  OpCall& call = world.make("add");
  ASSERT_EQ(world.call(*stream, call), RLK_OK);
  call.outputs[0].data = call.inputs[0].data;
  call.refresh();
  ASSERT_EQ(world.call(*stream, call), RLK_OK) << world.text();
  EXPECT_EQ(cpu_script<Add>().plans, 2);
}

#ifndef RLK_SANITIZED
TEST(Plan, TheHotPathAllocatesNothing) {
  World world;
  for (const char* name : {"logp", "add"}) {
    SCOPED_TRACE(name);
    auto stream = world.stream("cpu");
    OpCall& call = world.make(name);
    // The script's own work allocates: it is told to do none.
    cpu_script<Logp>().fail_enqueue = cpu_script<Add>().fail_enqueue = RLK_OK;
    allocations = 0;
    counting = true;
    ASSERT_EQ(world.call(*stream, call), RLK_OK) << world.text();
    counting = false;
    EXPECT_GT(allocations, 0) << "the count counts";
    for (int i = 0; i < 2; ++i) ASSERT_EQ(world.call(*stream, call), RLK_OK) << world.text();
    int inside = 0;
    const auto off = [&](const sdk::Run&) { inside = allocations, counting = false; };
    cpu_script<Logp>().on_enqueue = cpu_script<Add>().on_enqueue = off;
    allocations = 0;
    counting = true;
    const rlk_status status = world.call(*stream, call);
    counting = false;
    EXPECT_EQ(status, RLK_OK);
    EXPECT_EQ(inside, 0);
    EXPECT_EQ(allocations, inside);
    cpu_script<Logp>().on_enqueue = cpu_script<Add>().on_enqueue = nullptr;
  }
}
#endif

TEST(Plan, OneInFlightPlansArePooled) {
  World world;
  Script& script = fake_script<Logp>();
  script.plan_flags = RLK_PLAN_PREPARE;  // not shareable
  auto stream = world.stream();
  OpCall& call = world.make("logp");
  ASSERT_EQ(world.call(*stream, call), RLK_OK) << world.text();
  ASSERT_EQ(world.synchronize(*stream), RLK_OK);
  ASSERT_EQ(world.call(*stream, call), RLK_OK);
  ASSERT_EQ(world.synchronize(*stream), RLK_OK);
  EXPECT_EQ(script.plans, 1) << "idle again";

  fake(stream->handle()).worker->hold(true);
  for (int i = 0; i < 4; ++i) ASSERT_EQ(world.call(*stream, call), RLK_OK) << world.text();
  EXPECT_EQ(script.plans, 4) << "an instance per execution in flight";
  fake(stream->handle()).worker->hold(false);
  ASSERT_EQ(world.synchronize(*stream), RLK_OK);
  for (int i = 0; i < 4; ++i) {
    ASSERT_EQ(world.call(*stream, call), RLK_OK);
    ASSERT_EQ(world.synchronize(*stream), RLK_OK);
  }
  EXPECT_EQ(script.plans, 4);
  EXPECT_EQ(script.prepares, 10);
  EXPECT_EQ(world.counters("logp").plan_misses, 1u);
  stream.reset();
  world.dispatcher.reset();
  EXPECT_EQ(script.destroyed, 4);
  EXPECT_EQ(fake_log().violations, 0);
}

size_t threads_of_this_process() {
  return static_cast<size_t>(std::distance(std::filesystem::directory_iterator("/proc/self/task"), {}));
}

TEST(Plan, AnInstanceThatThePluginDoesNotReturnIsGivenUp) {
  World world;
  std::promise<void> end;
  std::atomic<int> made{0};
  std::atomic<bool> is_inside{false};
  Script& script = fake_script<Logp>();
  script.plan_flags = RLK_PLAN_PREPARE;  // not shareable
  script.on_plan = [&, ended = end.get_future().share()](const rlk_private_params*) {
    if (++made != 2) return;
    is_inside = true;
    ended.wait();
    is_inside = false;
    throw std::runtime_error("too late");  // a plan that came now would have no owner
  };
  auto stream = world.stream();
  OpCall& call = world.make("logp");
  fake(stream->handle()).worker->hold(true);
  ASSERT_EQ(world.call(*stream, call), RLK_OK) << world.text();
  core::set_patience(0.001);
  world.call(*stream, call);  // comes back, whatever serves it
  core::set_patience(1);
  EXPECT_EQ(made, 2);
  EXPECT_TRUE(is_inside) << "left behind";
  fake(stream->handle()).worker->hold(false);
  world.synchronize(*stream);
  const size_t threads = threads_of_this_process();
  end.set_value();
  for (int i = 0; i < 10000 && (is_inside || threads_of_this_process() >= threads); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_LT(threads_of_this_process(), threads) << "it ends";
}

TEST(Plan, ACallerThatRunsAheadWaitsForTheOldestInstance) {
  World world;
  fake_script<Logp>().plan_flags = 0;
  fake_log().delay_us = 200;
  auto stream = world.stream();
  OpCall& call = world.make("logp");
  for (int i = 0; i < 100; ++i) ASSERT_EQ(world.call(*stream, call), RLK_OK) << world.text();
  EXPECT_LE(fake_script<Logp>().plans, 16);
  ASSERT_EQ(world.synchronize(*stream), RLK_OK);
  EXPECT_EQ(fake_script<Logp>().runs, 100);
}

TEST(Plan, TheCacheIsBoundedAndDropsWhatIsOldOnlyWhenNothingIsInFlight) {
  World world(World::kAll, {}, {}, /*max_plans=*/4);
  Script& script = fake_script<Logp>();
  auto stream = world.stream();
  OpCall* calls[8];
  for (int i = 0; i < 8; ++i) {
    calls[i] = &world.make("logp");
    calls[i]->set_f64(0, 0.5 + i);
  }
  world.plugins[1].units.push_back(unit("logp", "first", "f32", "temperature"));
  world.publish();
  fake(stream->handle()).worker->hold(true);
  for (OpCall* call : calls) ASSERT_EQ(world.call(*stream, *call), RLK_OK) << world.text();
  EXPECT_EQ(world.dispatcher->plan_count(), 4u);
  EXPECT_EQ(script.destroyed, 0) << "all are in flight";
  fake(stream->handle()).worker->hold(false);
  ASSERT_EQ(world.synchronize(*stream), RLK_OK);
  EXPECT_EQ(script.destroyed, 4);
  // The newest are still there, the oldest are made anew.
  const int before = script.plans;
  ASSERT_EQ(world.call(*stream, *calls[7]), RLK_OK);
  EXPECT_EQ(script.plans, before);
  ASSERT_EQ(world.call(*stream, *calls[0]), RLK_OK);
  EXPECT_EQ(script.plans, before + 1);
  EXPECT_EQ(fake_log().violations, 0);
}

TEST(Plan, DroppedPlansDieEvenIfNobodySynchronizes) {
  World world(World::kAll, {}, {}, /*max_plans=*/2);
  world.plugins[1].units.push_back(unit("logp", "first", "f32", "temperature"));
  world.publish();
  auto stream = world.stream();
  for (int i = 0; i < 50; ++i) {
    OpCall& call = world.make("logp");
    call.set_f64(0, 0.5 + i);
    ASSERT_EQ(world.call(*stream, call), RLK_OK) << world.text();
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  EXPECT_GT(fake_script<Logp>().destroyed, 30);
  ASSERT_EQ(world.synchronize(*stream), RLK_OK);
  EXPECT_EQ(fake_log().violations, 0);
}

TEST(Plan, ANewGenerationKeepsThePlans) {
  World world;
  auto stream = world.stream("cpu");
  OpCall& call = world.make("logp");
  ASSERT_EQ(world.call(*stream, call), RLK_OK);
  world.publish();
  ASSERT_EQ(world.call(*stream, call), RLK_OK);
  EXPECT_EQ(world.counters("logp").decisions, 1u) << "the same again is no new generation";
  world.publish({{"acme", "acme", "NO_DEVICE", "there is none"}});
  ASSERT_EQ(world.call(*stream, call), RLK_OK);
  EXPECT_EQ(cpu_script<Logp>().plans, 1);
  EXPECT_EQ(world.counters("logp").decisions, 2u);
}

TEST(Plan, ThreadsShareOnePlan) {
  World world;
  constexpr int kThreads = 4, kCalls = 200;
  std::vector<std::thread> threads;
  std::atomic<int> failures{0};
  for (int t = 0; t < kThreads; ++t) {
    OpCall* call = &world.make("logp");
    threads.emplace_back([&, call] {
      auto stream = world.stream();
      for (int i = 0; i < kCalls; ++i) {
        rlk_error error = {sizeof(rlk_error), 0, 0, {}, {}};
        failures += world.dispatcher->call(*stream, *call->decl, nullptr, call->input_pointers, call->output_pointers,
                                           {}, &error) != RLK_OK;
      }
      failures += world.dispatcher->synchronize(*stream, UINT64_MAX, nullptr) != RLK_OK;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failures, 0);
  EXPECT_EQ(fake_script<Logp>().runs, kThreads * kCalls);
  EXPECT_EQ(world.counters("logp").plan_misses, 1u);
}

TEST(Plan, ThreadsUnderEvictionAndNewGenerations) {
  World world(World::kAll, {}, {}, /*max_plans=*/3);
  world.plugins[1].units.push_back(unit("logp", "first", "f32", "temperature"));
  world.publish();
  std::vector<std::thread> threads;
  std::atomic<int> failures{0};
  for (int t = 0; t < 3; ++t) {
    std::vector<OpCall*> calls;
    for (int i = 0; i < 6; ++i) {
      calls.push_back(&world.make("logp"));
      calls.back()->set_f64(0, 0.5 + i);
    }
    threads.emplace_back([&world, &failures, calls, t] {
      auto stream = world.stream();
      for (int i = 0; i < 200; ++i) {
        OpCall& call = *calls[static_cast<size_t>(i * 7 + t) % calls.size()];
        failures += world.dispatcher->call(*stream, *call.decl, call.params.data(), call.input_pointers,
                                           call.output_pointers, {}, nullptr) != RLK_OK;
        if (i % 16 == 0) failures += world.dispatcher->synchronize(*stream, UINT64_MAX, nullptr) != RLK_OK;
      }
      failures += world.dispatcher->synchronize(*stream, UINT64_MAX, nullptr) != RLK_OK;
    });
  }
  for (int i = 0; i < 20; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    world.publish();
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failures, 0);
  EXPECT_EQ(fake_log().violations, 0);
}

}  // namespace
}  // namespace rlk::test
