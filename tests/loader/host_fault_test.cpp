// What a plugin that passed its probe may still do to the process that uses it: every phase, every fault. The process
// lives, each fault is reported with its reason, and the calls are served.
#include <gtest/gtest.h>

#include <atomic>
#include <cfenv>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
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

// Where the fault shows: in the plugin at registration, in the stream or call that met it, or in what was switched
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

// pthread_cancel unwinds by force, which nothing of rlk could stop: it is not let happen.
class CancelsInTheHost : public Host, public ::testing::WithParamInterface<const char*> {};

TEST_P(CancelsInTheHost, ItsOwnThreadAndChangesNothing) {
  const ScopedEnv fault("RLK_FAULT_UNDECLARED", (std::string(GetParam()) + ":cancel").c_str());
  publish();
  ASSERT_EQ(record().state, State::registered) << record().reason;
  ASSERT_EQ(make_stream("acme", &stream), RLK_OK) << error.text;
  EXPECT_EQ(add(*stream), RLK_OK) << error.text;
  end();
}
INSTANTIATE_TEST_SUITE_P(Everywhere, CancelsInTheHost, ::testing::Values("create", "raw_create", "raw_open"),
                         [](const auto& instance) { return std::string(instance.param); });

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

// Right in the child and wrong here: found before the first call is served.
TEST_F(Host, AnImplementationThatIsWrongInThisProcessAloneServesNoCall) {
  publish();
  ASSERT_NO_FATAL_FAILURE(dispatch_with({}));
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

TEST_F(Host, KeepsItsWorkingFolderWhereAPluginChangesIt) {
  const auto before = std::filesystem::current_path();
  ASSERT_NE(before, "/");
  for (const char* where : {"entry:chdir", "create:chdir", "raw_describe:chdir"}) {
    const ScopedEnv fault("RLK_FAULT_UNDECLARED", where);
    publish();
    EXPECT_EQ(std::filesystem::current_path(), before) << where;
    std::filesystem::current_path(before);
    end();
  }
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
