// What a plugin that passed its probe may still do to the process that uses it: every phase, every fault. The process
// lives, each fault is told with its reason, and the calls are served.
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
#include "core/dispatch/dispatcher.hpp"
#include "core/dispatch/within.hpp"
#include "framework/op_call.hpp"
#include "framework/process.hpp"
#include "loader/loader.hpp"
#include "loader/register/register.hpp"
#include "tests/loader/staged_loader.hpp"

namespace rlk::loader {
namespace {

using rlk::testing::ScopedEnv;

// The built-in CPU and the fault plugin, which had no fault in its probe and has one from now on.
class Host : public StagedLoader {
protected:
  Host() : plugins(probed_once()) {}
  // Files of its own, which nobody has loaded yet.
  void probe_own(std::initializer_list<const char*> names) {
    for (const char* name : names) add_plugin(name);
    plugins = probe();
    plugins.insert(plugins.begin(), {built_in_record("cpu"), {}});
  }
  void publish() {
    registrar = std::make_unique<Registrar>(&registry, core::host_services());
    registrar->publish(&plugins);
    const core::Policy policy;
    dispatcher = std::make_unique<core::Dispatcher>(registry, policy);
  }
  const PluginRecord& record() const { return plugins.at(1).record; }

  rlk_status make_stream(const char* backend, std::unique_ptr<core::Stream>* made) {
    core::DeviceState* device = nullptr;
    rlk_status status = dispatcher->device(backend, 0, &device, &error);
    if (status == RLK_OK) status = core::Stream::create(*device, dispatcher->counters(), 0, made, &error);
    return status;
  }
  // 1 + 2 at every place.
  rlk_status add(core::Stream& on) {
    test::OpCall call(*core::find_declaration("add"));
    for (size_t i = 0; i < 2; ++i) fill(call.inputs[i], i == 0 ? 1.0f : 2.0f);
    fill(call.outputs[0], -1.0f);
    rlk_status status =
        dispatcher->call(on, *call.decl, call.params.data(), call.input_pointers, call.output_pointers, {}, &error);
    if (status == RLK_OK) status = dispatcher->synchronize(on, UINT64_MAX, &error);
    const test::Argument& out = call.outputs[0];
    EXPECT_TRUE(status != RLK_OK || static_cast<const float*>(out.data)[0] == 3.0f) << "a wrong number";
    return status;
  }
  // Given back to the plugin when the device's state dies.
  rlk_status use_memory(core::Stream& on) {
    void* memory = nullptr;
    const rlk_status status = on.device().memory.allocate(*on.clock(), 64, &memory, &error);
    if (status == RLK_OK) on.device().memory.deallocate(memory, on.mark(false), nullptr);
    return status;
  }
  static void fill(const test::Argument& argument, float value) {
    int64_t count = 1;
    for (const int64_t size : argument.shape) count *= size;
    for (int64_t i = 0; i < count; ++i) static_cast<float*>(argument.data)[i] = value;
  }
  void end() {
    stream.reset();
    dispatcher.reset();
    registrar.reset();
  }
  // "PLUGIN_EXCEPTION: ..." of what was switched off, "" when nothing was.
  std::string switched_off() const {
    std::string all;
    const auto now = registry.current();
    for (const auto& entry : now->quarantined)
      all += entry->who() + " (" + entry->reason_code + "): " + entry->reason + "; ";
    return all;
  }

  // One probe for all tests that do not mind a library that is loaded already.
  static const std::vector<ProbedPlugin>& probed_once() {
    struct Once : Host {
      explicit Once(int) : Host(std::vector<ProbedPlugin>()) { probe_own({"fault"}); }
      void TestBody() override {}
      std::vector<ProbedPlugin> take() const { return plugins; }
    };
    static const Once once(0);
    static const std::vector<ProbedPlugin> found = once.take();
    return found;
  }
  explicit Host(std::vector<ProbedPlugin> given) : plugins(std::move(given)) {}

  core::Registry registry;
  std::vector<ProbedPlugin> plugins;
  std::unique_ptr<Registrar> registrar;
  std::unique_ptr<core::Dispatcher> dispatcher;
  std::unique_ptr<core::Stream> stream;
  rlk_error error = core::fresh_error();
};

// Where the fault is told: of the plugin at registration, of the stream or call that met it, or of what was switched
// off so that the call could go on.
enum class Told { rejected, error, switched_off, fallback };

struct HostFault {
  const char* fault;
  Told told;
  const char* code;
  const char* says;
};
class InTheHost : public Host, public ::testing::WithParamInterface<HostFault> {};

TEST_P(InTheHost, IsToldAndCallsGoOn) {
  const HostFault& expected = GetParam();
  ASSERT_EQ(record().state, State::smoke_tested) << record().reason;
  std::string told, where;
  rlk_status served = RLK_OK;
  {
    const ScopedEnv fault("RLK_FAULT_UNDECLARED", expected.fault);
    publish();
    if (record().state == State::rejected) {
      where = "rejected";
      told = record().reason_code + ": " + record().reason;
    } else {
      served = make_stream("acme", &stream);
      if (served == RLK_OK) served = use_memory(*stream);
      if (served == RLK_OK) served = add(*stream);
      if (served != RLK_OK) {
        where = "error";
        told = core::name_of_status(served) + std::string(": ") + error.text;
      } else {
        EXPECT_EQ(add(*stream), RLK_OK) << "the second call: " << error.text;
      }
      const auto& counted = dispatcher->counters().of(*core::find_declaration("add"));
      EXPECT_LE(counted.failures.load(), 1u) << "met once, not at each call";
      for (const core::FallbackCounter* one : dispatcher->counters().fallbacks(*core::find_declaration("add"))) {
        if (where.empty()) told = one->reason_code + ": " + one->reason;
      }
      if (!told.empty() && where.empty()) where = "fallback";
    }
    std::unique_ptr<core::Stream> cpu;
    EXPECT_EQ(make_stream("cpu", &cpu), RLK_OK) << error.text;
    EXPECT_EQ(add(*cpu), RLK_OK) << "the CPU serves throughout: " << error.text;
    cpu.reset();
    end();
  }
  const std::string off = switched_off();
  if (!off.empty()) where = "switched off", told = off;
  std::printf("| %-26s | %-12s | %s |\n", expected.fault, where.c_str(), told.substr(0, 110).c_str());
  const char* kWhere[] = {"rejected", "error", "switched off", "fallback"};
  EXPECT_EQ(where, kWhere[static_cast<int>(expected.told)]);
  EXPECT_NE(told.find(expected.code), std::string::npos) << told;
  EXPECT_NE(told.find(expected.says), std::string::npos) << told;
}

constexpr const char* kUnknown = "an exception of unknown type left the plugin";

INSTANTIATE_TEST_SUITE_P(
    Everywhere, InTheHost,
    ::testing::Values(HostFault{"entry:throw_int", Told::rejected, "ENTRY_FAILED", kUnknown},
                      HostFault{"raw_create:throw", Told::rejected, "CREATE_FAILED", "the vendor said no"},
                      HostFault{"raw_create:throw_int", Told::rejected, "CREATE_FAILED", kUnknown},
                      HostFault{"raw_probe:throw_int", Told::rejected, "CREATE_FAILED", kUnknown},
                      HostFault{"raw_count:throw_int", Told::rejected, "ENUMERATE_FAILED", kUnknown},
                      HostFault{"raw_describe:throw_int", Told::rejected, "ENUMERATE_FAILED", kUnknown},
                      HostFault{"raw_open:throw_int", Told::switched_off, "PLUGIN_EXCEPTION",
                                "in device_open: an exception of unknown type"},
                      HostFault{"raw_stream_create:throw_int", Told::switched_off, "PLUGIN_EXCEPTION",
                                "in stream create: an exception of unknown type"},
                      HostFault{"raw_allocate:throw_int", Told::switched_off, "PLUGIN_EXCEPTION",
                                "in allocate: an exception of unknown type"},
                      HostFault{"raw_query:throw", Told::switched_off, "PLUGIN_EXCEPTION", "the vendor said no"},
                      HostFault{"raw_query:throw_int", Told::switched_off, "PLUGIN_EXCEPTION", kUnknown},
                      HostFault{"raw_plan_create:throw_int", Told::switched_off, "PLUGIN_EXCEPTION", kUnknown},
                      HostFault{"raw_enqueue:throw", Told::switched_off, "PLUGIN_EXCEPTION", "the vendor said no"},
                      HostFault{"raw_enqueue:throw_int", Told::switched_off, "PLUGIN_EXCEPTION", kUnknown},
                      HostFault{"raw_enqueue:lost", Told::switched_off, "DEVICE_LOST", "without a text"},
                      HostFault{"raw_enqueue:no_memory", Told::fallback, "OUT_OF_MEMORY", "without a text"},
                      HostFault{"raw_synchronize:throw_int", Told::switched_off, "PLUGIN_EXCEPTION",
                                "in stream synchronize: an exception of unknown type"},
                      HostFault{"raw_plan_destroy:throw_int", Told::switched_off, "PLUGIN_EXCEPTION", "plan destroy"},
                      HostFault{"raw_stream_destroy:throw_int", Told::switched_off, "PLUGIN_EXCEPTION",
                                "stream destroy"},
                      HostFault{"raw_deallocate:throw_int", Told::switched_off, "PLUGIN_EXCEPTION", "deallocate"},
                      HostFault{"raw_close:throw_int", Told::switched_off, "PLUGIN_EXCEPTION", "device close"},
                      HostFault{"raw_destroy:throw_int", Told::switched_off, "PLUGIN_EXCEPTION", "destroy"}),
    [](const auto& instance) {
      std::string name = instance.param.fault;
      name[name.find(':')] = '_';
      return name;
    });

TEST_F(Host, APluginThatThrowsInCreateTakesNoOtherWithIt) {
  probe_own({"fault", "fault_attached", "fault_second_acme"});
  ASSERT_EQ(plugins.size(), 4u);
  const ScopedEnv fault("RLK_FAULT_UNDECLARED", "raw_create:throw_int");
  publish();
  EXPECT_EQ(plugins[0].record.state, State::registered);
  EXPECT_EQ(plugins[1].record.reason_code, "CREATE_FAILED");
  EXPECT_EQ(plugins[2].record.reason_code, "NO_DEVICE") << "its own create is right, its owner is not there";
  EXPECT_EQ(plugins[3].record.reason_code, "CREATE_FAILED");
}

// Patience of half a second instead of a minute.
constexpr double kShort = 0.5 / 60;

class HangsInTheHost : public Host, public ::testing::WithParamInterface<const char*> {};

TEST_P(HangsInTheHost, IsGivenUpAndTheCpuServes) {
  registrar = std::make_unique<Registrar>(&registry, core::host_services());
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

// In a process of its own: nobody there can load anything any more.
TEST_F(Host, APluginThatHangsWhileItIsLoadedIsGivenUpAndHoldsNobodyElseBack) {
  probe_own({"fault", "fault_second_acme"});
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(rlk::testing::join(rlk::testing::in_fork([&] {
              alarm(20);
              setenv("RLK_FAULT_UNDECLARED", "load:stall", 1);
              Registrar here(&registry, core::host_services());
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

TEST_F(Host, WhoeverEndsTheRuntimeDoesNotWaitForAPluginThatHangs) {
  registrar = std::make_unique<Registrar>(&registry, core::host_services());
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

// Who hangs where something may be written cannot be given up: it is named at once and switched off for all others.
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
  core::Policy policy;
  ASSERT_EQ(
      core::Policy::make(
          [](const char* name) {
            return name == std::string("RLK_CALL_TIMEOUT") ? "0.4" : name == std::string("RLK_WATCH") ? "off" : nullptr;
          },
          {}, {}, &policy, &error),
      RLK_OK);
  dispatcher = std::make_unique<core::Dispatcher>(registry, policy);
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

// Right in the child and wrong here: found before the first call is served.
TEST_F(Host, AnImplementationThatIsWrongInThisProcessAloneServesNoCall) {
  publish();
  core::Policy policy;
  ASSERT_EQ(core::Policy::make([](const char*) { return nullptr; }, {}, {}, &policy, &error), RLK_OK);
  dispatcher = std::make_unique<core::Dispatcher>(registry, policy);
  ASSERT_EQ(make_stream("acme", &stream), RLK_OK) << error.text;
  const ScopedEnv fault("RLK_FAULT_UNDECLARED", "enqueue:wrong_f32");
  const auto& counted = dispatcher->counters().of(*core::find_declaration("add"));
  EXPECT_EQ(add(*stream), RLK_OK) << error.text;
  EXPECT_EQ(counted.staged.load(), 1u) << "the CPU serves";
  std::printf("| %-20s | %s |\n", "wrong in the host", switched_off().c_str());
  EXPECT_NE(switched_off().find("add/simple for dtype f32"), std::string::npos) << switched_off();
  EXPECT_NE(switched_off().find("a first small call in this process failed, although its probe passed"),
            std::string::npos)
      << switched_off();
  EXPECT_EQ(switched_off().find("f64"), std::string::npos) << "nobody asked for f64";
  EXPECT_EQ(counted.failures.load(), 0u) << "no call met it";
  end();
}

TEST_F(Host, ACanaryThatHangsIsGivenUpAndTheCpuServes) {
  publish();
  core::Policy policy;
  ASSERT_EQ(
      core::Policy::make([](const char* name) { return name == std::string("RLK_CALL_TIMEOUT") ? "0.5" : nullptr; }, {},
                         {}, &policy, &error),
      RLK_OK);
  dispatcher = std::make_unique<core::Dispatcher>(registry, policy);
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
  core::Policy policy;
  ASSERT_EQ(
      core::Policy::make(
          [](const char* name) {
            return name == std::string("RLK_CALL_TIMEOUT") ? "0.4" : name == std::string("RLK_WATCH") ? "off" : nullptr;
          },
          {}, {}, &policy, &error),
      RLK_OK);
  dispatcher = std::make_unique<core::Dispatcher>(registry, policy);
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

class FloatMode : public Host, public ::testing::WithParamInterface<const char*> {};

TEST_P(FloatMode, ThatAPluginSetsIsNotTheCallers) {
  if (std::strncmp(GetParam(), "load:", 5) == 0) probe_own({"fault"});
  const int rounding = std::fegetround();
  volatile float tiny = 1e-39f;  // a denormal
  {
    const ScopedEnv fault("RLK_FAULT_UNDECLARED", GetParam());
    publish();
    ASSERT_EQ(make_stream("acme", &stream), RLK_OK) << error.text;
    EXPECT_EQ(add(*stream), RLK_OK) << error.text;
    EXPECT_EQ(std::fegetround(), rounding);
    EXPECT_GT(tiny * 1.0f, 0.0f) << "denormals are flushed";
    end();
  }
  EXPECT_EQ(std::fegetround(), rounding);
  EXPECT_GT(tiny * 1.0f, 0.0f) << "denormals are flushed";
  std::fesetround(FE_TONEAREST);
}
INSTANTIATE_TEST_SUITE_P(Everywhere, FloatMode,
                         ::testing::Values("load:round_up", "load:flush", "entry:round_up", "create:round_up",
                                           "create:flush", "open:round_up", "raw_stream_create:flush",
                                           "raw_query:round_up", "raw_plan_create:flush", "enqueue:round_up",
                                           "enqueue:flush", "raw_synchronize:flush", "raw_plan_destroy:round_up",
                                           "raw_stream_destroy:round_up", "raw_destroy:flush"),
                         [](const auto& instance) {
                           std::string name = instance.param;
                           name[name.find(':')] = '_';
                           return name;
                         });

}  // namespace
}  // namespace rlk::loader
