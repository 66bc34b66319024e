// A plugin that passed its probe and hangs in the process that uses it: it is given up where nothing can be lost by
// that, and told where it cannot.
#include <gtest/gtest.h>
#include <atomic>
#include <cfenv>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <initializer_list>
#include <mutex>
#include <thread>
#include <utility>
#include "core/declaration/error.hpp"
#include "core/dispatch/call/dispatcher.hpp"
#include "core/dispatch/trust/timeout.hpp"
#include "framework/op_call.hpp"
#include "framework/process.hpp"
#include "loader/loader.hpp"
#include "loader/register/register.hpp"
#include "tests/loader/host_fault.hpp"

namespace rlk::loader {
namespace {

class HangsInTheHost : public Host, public ::testing::WithParamInterface<const char*> {};

TEST_P(HangsInTheHost, IsGivenUpAndTheCpuServes) {
  registrar = std::make_unique<Registrar>(&registry, loader::host_services());
  const auto begin = std::chrono::steady_clock::now();
  {
    const ScopedEnv fault("RLK_FAULT_UNDECLARED", (std::string(GetParam()) + ":stall").c_str());
    registrar->publish(&plugins, {kShort, nullptr});
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
  std::printf("| %-26s | %-12s | %s |\n", GetParam(), std::string(to_string(record().state)).c_str(),
              record().reason.c_str());
  EXPECT_EQ(record().state, State::deferred);
  EXPECT_EQ(record().reason_code, "TIMED_OUT");
  EXPECT_TRUE(record().broken) << "somebody must look at it";
  EXPECT_NE(record().reason.find("given up"), std::string::npos) << record().reason;
  const auto now = registry.current();
  const core::RejectedPlugin* rejected = now->find_rejected("fault");
  ASSERT_NE(rejected, nullptr);
  EXPECT_EQ(rejected->reason_code, "TIMED_OUT");
  dispatcher = std::make_unique<core::Dispatcher>(registry, core::Policy());
  ASSERT_EQ(make_stream("cpu", &stream), RLK_OK) << error.text;
  EXPECT_EQ(add(*stream), RLK_OK) << error.text;
  end();
}
INSTANTIATE_TEST_SUITE_P(Everywhere, HangsInTheHost,
                         ::testing::Values("entry", "create", "raw_probe", "count", "raw_describe"),
                         [](const auto& instance) { return std::string(instance.param); });

// While it is used: what hangs before anything is written is given up, and the CPU serves.
class HangsInUse : public Host, public ::testing::WithParamInterface<const char*> {};

TEST_P(HangsInUse, IsGivenUpOnceAndTheCpuServes) {
  publish();
  core::set_patience(kShort);
  const auto begin = std::chrono::steady_clock::now();
  std::string told;
  {
    const ScopedEnv fault("RLK_FAULT_UNDECLARED", (std::string(GetParam()) + ":stall").c_str());
    rlk_status status = make_stream("acme", &stream);
    if (status == RLK_OK) {
      EXPECT_EQ(add(*stream), RLK_OK) << error.text;
    } else {
      EXPECT_EQ(status, RLK_TIMEOUT) << error.text;
      EXPECT_NE(std::string(error.text).find("given up"), std::string::npos) << error.text;
    }
    told = switched_off();
  }
  core::set_patience(1.0);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(8));
  std::printf("| %-26s | %s |\n", GetParam(), told.c_str());
  EXPECT_NE(told.find("TIMEOUT"), std::string::npos) << told;
  std::unique_ptr<core::Stream> cpu;
  ASSERT_EQ(make_stream("cpu", &cpu), RLK_OK) << error.text;
  EXPECT_EQ(add(*cpu), RLK_OK) << error.text;
  cpu.reset();
  stream.reset();
  // The thread that was left behind is inside the plugin for ever: nothing of it is destroyed.
  static_cast<void>(dispatcher.release());
  static_cast<void>(registrar.release());
}
INSTANTIATE_TEST_SUITE_P(Everywhere, HangsInUse, ::testing::Values("open", "raw_stream_create", "raw_plan_create"),
                         [](const auto& instance) { return std::string(instance.param); });

// In a process of its own: no thread there can load anything any more.
TEST_F(Host, APluginThatHangsWhileItIsLoadedIsGivenUpAndHoldsNobodyElseBack) {
  probe_own({"fault", "fault_second_acme"});
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(rlk::testing::join(rlk::testing::in_fork([&] {
              alarm(20);
              setenv("RLK_FAULT_UNDECLARED", "load:stall", 1);
              Registrar here(&registry, loader::host_services());
              here.publish(&plugins, {kShort, nullptr});
              const PluginRecord& second = plugins.at(2).record;
              const bool right =
                  plugins.at(0).record.state == State::registered && record().reason_code == "TIMED_OUT" &&
                  record().reason.find("phase load") != std::string::npos && second.reason_code == "TIMED_OUT" &&
                  second.reason.find("plugin fault") != std::string::npos;
              if (!right) std::printf("%s; %s\n", record().reason.c_str(), second.reason.c_str());
              return right ? 0 : 1;
            })),
            0)
      << "-14: it hung";
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
}

// exit() needs the lock that the hanging thread holds, after everything else was done.
TEST_F(Host, AProcessEndsWithItsOwnStatusAlthoughAPluginHangsWhileItIsLoaded) {
  probe_own({"fault"});
  EXPECT_EQ(rlk::testing::join(rlk::testing::in_fork([&]() -> int {
              alarm(20);
              setenv("RLK_FAULT_UNDECLARED", "load:stall", 1);
              Registrar here(&registry, loader::host_services());
              here.publish(&plugins, {kShort, nullptr});
              std::exit(record().reason_code == "TIMED_OUT" ? 7 : 1);
            })),
            7)
      << "-14: it did not end";
}

TEST_F(Host, WhoeverEndsTheRuntimeDoesNotWaitForAPluginThatHangs) {
  registrar = std::make_unique<Registrar>(&registry, loader::host_services());
  const ScopedEnv fault("RLK_FAULT_UNDECLARED", "create:stall");
  const std::atomic<bool> cancel{true};
  const auto begin = std::chrono::steady_clock::now();
  registrar->publish(&plugins, {1.0, &cancel});
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
  EXPECT_EQ(record().reason_code, "CANCELLED");
}

TEST_F(Host, APluginThatEndsTheThreadInCreateIsRejected) {
  const ScopedEnv fault("RLK_FAULT_UNDECLARED", "raw_create:end_thread");
  publish();
  EXPECT_EQ(record().state, State::rejected);
  EXPECT_EQ(record().reason_code, "EXITED");
  EXPECT_NE(record().reason.find("ended its thread"), std::string::npos) << record().reason;
}

TEST_F(Host, AProbeInThisProcessThatHangsIsGivenUpToo) {
  add_plugin("fault");
  options.mode = ProbeMode::inprocess;
  set("RLK_PROBE_TIMEOUT", "0.5");
  const ScopedEnv fault("RLK_FAULT_UNDECLARED", "create:stall");
  const PluginRecord record = probe_one();
  EXPECT_EQ(record.state, State::deferred);
  EXPECT_EQ(record.reason_code, "TIMED_OUT");
  EXPECT_EQ(record.id, "fault");
}

struct Hang {
  const char* where;
  const char* who;   // is switched off
  const char* says;  // a part of the evidence
};
class HangsInsideACall : public Host, public ::testing::WithParamInterface<Hang> {};

// A plugin that hangs where it may write cannot be given up: it is named at once and switched off for all others.
TEST_P(HangsInsideACall, IsNamedAtOnceAndOtherThreadsGoOn) {
  publish();
  std::mutex mutex;
  std::string told;
  registry.on_quarantine([&](const core::Quarantined& unit, bool only_suspected) {
    const std::lock_guard lock(mutex);
    told += unit.who() + " (" + unit.reason_code + (only_suspected ? ", suspected" : "") + ")";
  });
  const auto heard = [&] {
    const std::lock_guard lock(mutex);
    return told;
  };
  ASSERT_NO_FATAL_FAILURE(dispatch_with({{"RLK_CALL_TIMEOUT", "0.4"}, {"RLK_WATCH", "off"}}));
  std::unique_ptr<core::Stream> other;
  ASSERT_EQ(make_stream("acme", &stream), RLK_OK) << error.text;
  ASSERT_EQ(make_stream("acme", &other), RLK_OK) << error.text;
  const std::string release = folder / "release";
  rlk_status late = RLK_INTERNAL;
  std::thread victim;
  {
    const ScopedEnv file("RLK_FAULT_RELEASE_FILE", release.c_str());
    const ScopedEnv fault("RLK_FAULT_UNDECLARED", (std::string(GetParam().where) + ":hold").c_str());
    victim = std::thread([&] { late = add(*stream); });
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (heard().empty() && std::chrono::steady_clock::now() < until)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_EQ(heard(), std::string(GetParam().who) + " (TIMEOUT)") << "told while it hangs";
  std::printf("| %-20s | %s |\n", GetParam().where, switched_off().c_str());
  EXPECT_NE(switched_off().find(GetParam().says), std::string::npos) << switched_off();
  EXPECT_NE(switched_off().find("by plugin fault has not returned for"), std::string::npos);
  EXPECT_NE(switched_off().find("of process " + std::to_string(getpid())), std::string::npos);
  const auto& add_decl = *core::find_declaration("add");
  const uint64_t before = dispatcher->counters().of(add_decl).staged.load();
  EXPECT_EQ(add(*other), RLK_OK) << error.text;
  EXPECT_EQ(dispatcher->counters().of(add_decl).staged.load(), before + 1) << "the CPU took over";
  std::ofstream(release).put('\n');
  victim.join();
  EXPECT_EQ(late, RLK_OK) << "who comes back late has its result: " << error.text;
  other.reset();
  end();
}
INSTANTIATE_TEST_SUITE_P(Everywhere, HangsInsideACall,
                         ::testing::Values(Hang{"raw_query", "add/simple for dtype f32", "query by"},
                                           Hang{"raw_enqueue", "add/simple for dtype f32", "enqueue on acme:0 by"},
                                           Hang{"raw_synchronize", "add/simple for dtype f32",
                                                "add/simple of plugin fault alone was under way there"}),
                         [](const auto& instance) { return std::string(instance.param.where).substr(4); });

TEST_F(Host, ACanaryThatHangsIsGivenUpAndTheCpuServes) {
  publish();
  ASSERT_NO_FATAL_FAILURE(dispatch_with({{"RLK_CALL_TIMEOUT", "0.5"}}));
  ASSERT_EQ(make_stream("acme", &stream), RLK_OK) << error.text;
  {
    const ScopedEnv fault("RLK_FAULT_UNDECLARED", "raw_enqueue:stall");
    EXPECT_EQ(add(*stream), RLK_OK) << error.text;
  }
  EXPECT_NE(switched_off().find("has not returned for 0.5 s; it is given up"), std::string::npos) << switched_off();
  EXPECT_EQ(add(*stream), RLK_OK) << error.text;
  end();
}

// The time to wait that the caller gives is no hang, nor is what is within the limit.
TEST_F(Host, WhatReturnsInTimeIsNotTakenForAHang) {
  publish();
  ASSERT_NO_FATAL_FAILURE(dispatch_with({{"RLK_CALL_TIMEOUT", "0.4"}, {"RLK_WATCH", "off"}}));
  ASSERT_EQ(make_stream("acme", &stream), RLK_OK) << error.text;
  const std::string release = folder / "release";
  ASSERT_EQ(add(*stream), RLK_OK) << error.text;
  {
    const ScopedEnv file("RLK_FAULT_RELEASE_FILE", release.c_str());
    const ScopedEnv fault("RLK_FAULT_UNDECLARED", "raw_synchronize:hold");
    std::thread later([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(1500));
      std::ofstream(release).put('\n');
    });
    EXPECT_EQ(dispatcher->synchronize(*stream, 60'000'000'000u, &error), RLK_OK);
    later.join();
  }
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(add(*stream), RLK_OK);
    std::this_thread::sleep_for(std::chrono::milliseconds(150));
  }
  EXPECT_EQ(switched_off(), "");
  end();
}

}  // namespace
}  // namespace rlk::loader
