// From a file to a verdict, through a real child process, with a plugin that misbehaves at every step in every way.
#include "loader/probe/probe.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>

#include "framework/process.hpp"
#include "loader/loader.hpp"
#include "loader/probe/child_probe.hpp"
#include "loader/probe/demand.hpp"
#include "loader/probe/examine.hpp"
#include "loader/probe/guard.hpp"
#include "loader/probe/process.hpp"
#include "loader/probe/protocol.hpp"
#include "loader/store/cache.hpp"
#include "tests/loader/staged_loader.hpp"

namespace rlk::loader {
namespace {

using core::UnitResult;

class Probe : public StagedLoader {
protected:
  Probe() { add_plugin("fault"); }
};

TEST_F(Probe, AGoodPluginPassesEveryState) {
  const PluginRecord record = probe_one();
  EXPECT_EQ(record.state, State::smoke_tested) << record.reason_code << ": " << record.reason;
  EXPECT_EQ(record.version, "0.2.0");
  EXPECT_EQ(record.source, "RLK_PLUGIN_PATH");
  std::string states;
  for (const StateChange& change : record.history)
    states += std::string(to_string(change.state)) + "@" + std::string(to_string(change.place)) + " ";
  EXPECT_EQ(states,
            "discovered@static screened@static loaded@child negotiated@child probed@child capability_checked@child "
            "smoke_tested@child ");
  ASSERT_EQ(record.devices.size(), 2u);
  EXPECT_EQ(record.devices[1].name, "Fault 1");
  EXPECT_EQ(record.devices[1].memory_bytes, 1u << 30);
  EXPECT_EQ(record.devices[1].uuid, "00000000-0000-0000-0000-000000000002");
  EXPECT_EQ(record.devices[0].pci_bus_id, "00000017:00:00.0");
  EXPECT_EQ(record.devices[0].numa_node, -1);
  ASSERT_EQ(record.evidence.size(), 2u);
  EXPECT_EQ(record.evidence[0].value, "/dev/fault0");
  EXPECT_EQ(record.evidence[1].kind, "runtime_fingerprint");
  EXPECT_EQ(std::count(record.loaded_files.begin(), record.loaded_files.end(), record.path), 1);
  bool verified = false;
  for (const UnitResult& unit : record.units)
    verified |= unit.op == "add" && unit.dtype == "f32" && unit.verdict == UnitResult::Verdict::verified;
  EXPECT_TRUE(verified);
}

// The prober as a process starts it that ends before the prober runs. Another process (here the test) still holds the
// socket, so that only the parent's end can tell the prober that no parent waits.
TEST(Prober, EndsWhenItsParentEndedBeforeItRan) {
  int sockets[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets), 0);
  const pid_t parent = testing::in_fork([&] {
    std::string command = "sleep 0.3; exec " RLK_TEST_PROBER " --plugin /none";
    for (const std::string& word : parent_words()) command += " " + word;
    return testing::in_fork([&] {
             dup2(sockets[1], kProtocolFd);
             execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
             return 127;
           }) > 0
               ? 0
               : 1;
  });
  ASSERT_EQ(testing::join(parent), 0);
  close(sockets[1]);
  pollfd polled = {sockets[0], POLLIN, 0};
  EXPECT_EQ(poll(&polled, 1, 20'000), 1) << "the prober still waits for its request";
  char byte = 0;
  EXPECT_EQ(recv(sockets[0], &byte, 1, MSG_DONTWAIT), 0);
  close(sockets[0]);
}

TEST(Prober, TakesNoOtherProcessForItsParent) {
  ChildCommand command;
  command.program = RLK_TEST_PROBER;
  command.arguments = {"--plugin", "/none", "--parent", "1"};
  command.request = "a request";
  const ChildOutcome outcome = run_child(command);
  EXPECT_EQ(outcome.end, ChildEnd::exited);
  EXPECT_EQ(outcome.code, kExitWithoutParent) << outcome.text << ": " << outcome.output;
}

struct FaultCase {
  const char* fault;
  State state;
  const char* code;
  const char* says;  // a part of the reason
};
class Fault : public Probe, public ::testing::WithParamInterface<FaultCase> {};

TEST_P(Fault, HasItsReason) {
  set_fault(GetParam().fault);
  set("RLK_PROBE_TIMEOUT", "60");
  const PluginRecord record = probe_one();
  EXPECT_EQ(to_string(record.state), to_string(GetParam().state)) << record.reason;
  EXPECT_EQ(record.reason_code, GetParam().code) << record.reason;
  EXPECT_NE(record.reason.find(GetParam().says), std::string::npos) << record.reason;
  EXPECT_FALSE(record.hint.empty());
  EXPECT_EQ(record.id, "fault");
  EXPECT_EQ(record.history.back().reason_code, GetParam().code);
}

INSTANTIATE_TEST_SUITE_P(
    Everywhere, Fault,
    ::testing::Values(
        FaultCase{"load:crash", State::rejected, "CRASHED", "SIGSEGV in phase load"},
        FaultCase{"load:abort", State::rejected, "CRASHED", "SIGABRT in phase load"},
        FaultCase{"load:exit", State::rejected, "EXITED", "exit code 5 in phase load"},
        FaultCase{"load:throw_int", State::rejected, "CRASHED", "in phase load"},
        FaultCase{"entry:crash", State::rejected, "CRASHED", "SIGSEGV in phase negotiate"},
        FaultCase{"entry:throw_int", State::rejected, "ENTRY_FAILED", "an exception of unknown type"},
        FaultCase{"entry:null", State::rejected, "ENTRY_FAILED", "INTERNAL: no table today"},
        FaultCase{"entry:silent_null", State::rejected, "ENTRY_FAILED", "without a text"},
        FaultCase{"entry:tiny_table", State::rejected, "ABI_MISMATCH", "size of 8 bytes"},
        FaultCase{"entry:short_table", State::rejected, "SLOT_MISSING", "rlk_plugin has"},
        FaultCase{"entry:other_major", State::rejected, "ABI_MISMATCH", "built for ABI 2.0"},
        FaultCase{"entry:other_draft", State::rejected, "ABI_MISMATCH", "draft"},
        FaultCase{"entry:needs_newer_host", State::rejected, "ABI_MISMATCH", "asks for a host of ABI 1.7"},
        FaultCase{"entry:other_id", State::rejected, "IDENTITY_MISMATCH", "somebody-else"},
        FaultCase{"entry:missing_slots", State::rejected, "SLOT_MISSING",
                  "rlk_plugin.probe is NULL; rlk_device_api is NULL; rlk_stream_api.synchronize is NULL; "
                  "rlk_stream_api.copy is NULL"},
        FaultCase{"create:crash", State::rejected, "CRASHED", "SIGSEGV in phase create"},
        FaultCase{"create:exit", State::rejected, "EXITED", "exit code 5 in phase create"},
        FaultCase{"create:throw", State::rejected, "CREATE_FAILED", "BACKEND_ERROR (acme 100): the vendor said no"},
        FaultCase{"create:throw_int", State::rejected, "CREATE_FAILED", "PLUGIN_EXCEPTION"},
        FaultCase{"create:absent", State::absent, "NO_DEVICE", "no acme driver"},
        FaultCase{"create:killed", State::deferred, "KILLED", "SIGKILL in phase create"},
        FaultCase{"probe:abort", State::rejected, "CRASHED", "SIGABRT in phase probe"},
        FaultCase{"probe:not_mine", State::absent, "WRONG_SIMT_WIDTH", "64 threads"},
        FaultCase{"probe:escapes", State::absent, "NOT_\\x1b[2J", "\\x1b[31mred\\n[rlk] [error] forged \\u202e"},
        FaultCase{"probe:none", State::absent, "NO_DEVICE", "gave no reason"},
        FaultCase{"probe:nonsense", State::rejected, "CREATE_FAILED", "verdict 99"},
        FaultCase{"count:zero", State::absent, "NO_DEVICE", "counts no devices"},
        FaultCase{"count:many", State::rejected, "ENUMERATE_FAILED", "counts 1000000 devices"},
        FaultCase{"count:throw", State::rejected, "ENUMERATE_FAILED", "device_count: BACKEND_ERROR"},
        FaultCase{"open:null", State::rejected, "ENUMERATE_FAILED", "device_open of acme:0"},
        FaultCase{"describe:throw", State::rejected, "ENUMERATE_FAILED", "device_describe of device 0"},
        FaultCase{"describe:crash", State::rejected, "CRASHED", "SIGSEGV in phase enumerate"},
        FaultCase{"enqueue:crash", State::rejected, "CRASHED", "SIGSEGV in phase operators, at"},
        FaultCase{"enqueue:throw", State::rejected, "NOTHING_VERIFIED", "the vendor said no"},
        FaultCase{"raw_stream_create:throw", State::rejected, "NOTHING_VERIFIED", "the vendor said no"},
        FaultCase{"raw_stream_query:throw", State::rejected, "NOTHING_VERIFIED", "the vendor said no"},
        FaultCase{"raw_query:throw", State::rejected, "NOTHING_VERIFIED", "the vendor said no"},
        FaultCase{"raw_query:throw_int", State::rejected, "NOTHING_VERIFIED", "an exception of unknown type"},
        FaultCase{"raw_plan_create:throw_int", State::rejected, "NOTHING_VERIFIED", "an exception of unknown type"},
        FaultCase{"raw_enqueue:throw_int", State::rejected, "NOTHING_VERIFIED", "an exception of unknown type"},
        FaultCase{"enqueue:wrong_f64", State::partial, "SOME_FAILED", "add"}),
    [](const auto& instance) {
      std::string name = instance.param.fault;
      name[name.find(':')] = '_';
      return name;
    });

class HangingAt : public Probe, public ::testing::WithParamInterface<const char*> {};

TEST_P(HangingAt, IsDeferredAndRememberedForAShortTime) {
  set_fault(std::string(GetParam()) + ":hang");
  set("RLK_PROBE_TIMEOUT", "1");
  const PluginRecord record = probe_one();
  EXPECT_EQ(record.state, State::deferred) << record.reason_code << ": " << record.reason;
  EXPECT_EQ(record.reason_code, "TIMED_OUT");
  EXPECT_TRUE(record.broken);
  const auto begin = std::chrono::steady_clock::now();
  const PluginRecord again = probe_one();
  EXPECT_TRUE(again.from_cache);
  EXPECT_EQ(again.reason_code, "TIMED_OUT");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(900)) << "it did not hang again";
}
INSTANTIATE_TEST_SUITE_P(Everywhere, HangingAt,
                         ::testing::Values("load", "entry", "create", "probe", "count", "enqueue"),
                         [](const auto& instance) { return std::string(instance.param); });

TEST_F(Probe, RanksThatStartTogetherPayForOneHang) {
  set_fault("create:hang");
  set("RLK_PROBE_TIMEOUT", "1");
  set("RLK_PROBE_RETRY", "0");  // what is remembered for later starts does not help here
  const auto begin = std::chrono::steady_clock::now();
  std::vector<std::thread> ranks;
  std::atomic<int> told{0}, measured{0};
  for (int rank = 0; rank < 5; ++rank) {
    ranks.emplace_back([&] {
      Store own(cache);
      ProbeOptions mine = options;
      mine.store = &own;
      const auto plugins = probe_plugins(discover(mine.environment, {}), mine);
      told += plugins.at(0).record.reason_code == "TIMED_OUT";
      measured += !plugins.at(0).record.from_cache;
    });
  }
  for (std::thread& rank : ranks) rank.join();
  EXPECT_EQ(told, 5);
  EXPECT_EQ(measured, 1);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(4));
  EXPECT_FALSE(probe_one().from_cache) << "0: tried anew by the next start";
}

TEST_F(Probe, WhatWasKnownBeforeACrashIsKept) {
  set_fault("probe:crash");
  const PluginRecord record = probe_one();
  EXPECT_EQ(record.reason_code, "CRASHED");
  ASSERT_FALSE(record.evidence.empty());
  EXPECT_EQ(record.evidence[0].value, "/dev/fault0");
  const State before = record.history[record.history.size() - 2].state;
  EXPECT_EQ(before, State::negotiated);
}

TEST_F(Probe, WhatAPluginPrintsIsKeptAndDoesNoHarm) {
  set_fault("create:print");
  const PluginRecord record = probe_one();
  EXPECT_EQ(record.state, State::smoke_tested) << record.reason;
  EXPECT_NE(record.output.find("a vendor's banner at create"), std::string::npos);
  EXPECT_NE(record.output.find("a vendor's warning"), std::string::npos);
}

TEST_F(Probe, APluginThatScribblesOverSmallDescriptorsDoesNotReachTheProtocol) {
  set_fault("create:scribble");
  EXPECT_EQ(probe_one().state, State::smoke_tested);
}

TEST_F(Probe, ANewerMinorVersionIsAccepted) {
  set_fault("entry:newer_minor");
  EXPECT_EQ(probe_one().state, State::smoke_tested);
}

TEST_F(Probe, TheSecondTimeTheResultIsRemembered) {
  const PluginRecord first = probe_one();
  EXPECT_FALSE(first.from_cache);
  // The fault is not part of the key: had the plugin run, it would have crashed.
  set_fault("load:crash");
  const PluginRecord second = probe_one();
  EXPECT_TRUE(second.from_cache);
  EXPECT_EQ(second.state, State::smoke_tested);
  EXPECT_EQ(second.units.size(), first.units.size());
  options.fresh = true;
  EXPECT_EQ(probe_one().reason_code, "CRASHED");
}

TEST_F(Probe, AnotherContentOrEnvironmentIsProbedAnew) {
  probe_one();
  set_fault("load:crash");
  set("ACME_VISIBLE_DEVICES", "1");
  EXPECT_EQ(probe_one().reason_code, "CRASHED");
  options.environment.values.erase("ACME_VISIBLE_DEVICES");
  EXPECT_TRUE(probe_one().from_cache);
  const std::string file = folder / "plugins/librlk_plugin_fault.so";
  folder.file("plugins/librlk_plugin_fault.so", rlk::testing::read_text(file) + "x", 0755);
  EXPECT_EQ(probe_one().reason_code, "CRASHED");
}

TEST_F(Probe, ACrashIsRememberedToo) {
  set_fault("create:crash");
  probe_one();
  set_fault("");
  const PluginRecord second = probe_one();
  EXPECT_TRUE(second.from_cache);
  EXPECT_EQ(second.reason_code, "CRASHED");
  EXPECT_NE(second.reason.find("phase create"), std::string::npos);
}

TEST_F(Probe, AFailureForWantOfDescriptorsIsTriedAgainByWhoHasMore) {
  set_fault("create:many_files");
  struct rlimit usual = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &usual), 0);
  const rlimit tight = {200, usual.rlim_max};
  ASSERT_GE(usual.rlim_cur, 400u);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &tight), 0);
  const PluginRecord failed = probe_one(), again = probe_one();
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &usual), 0);
  EXPECT_EQ(failed.reason_code, "EXITED") << failed.reason;
  ASSERT_FALSE(failed.notes.empty());
  EXPECT_NE(failed.notes.back().find("open files 200"), std::string::npos) << failed.notes.back();
  EXPECT_TRUE(again.from_cache) << "with the same limits it would fail again";
  const PluginRecord now = probe_one();
  EXPECT_FALSE(now.from_cache);
  EXPECT_EQ(now.state, State::smoke_tested) << now.reason;
}

TEST_F(Probe, OffProbesNothing) {
  options.mode = ProbeMode::off;
  EXPECT_EQ(probe_one().reason_code, "PROBE_OFF");
}

TEST_F(Probe, InProcessGivesTheSameVerdict) {
  options.mode = ProbeMode::inprocess;
  const PluginRecord record = probe_one();
  EXPECT_EQ(record.state, State::smoke_tested) << record.reason;
  EXPECT_EQ(record.history.back().place, Place::host);
  EXPECT_TRUE(store.list("probe-").empty());
}

TEST_F(Probe, AMissingProberIsSaid) {
  options.prober = "/nowhere/rlk-prober";
  const PluginRecord record = probe_one();
  EXPECT_EQ(record.reason_code, "SPAWN_FAILED");
  EXPECT_NE(record.reason.find("/nowhere/rlk-prober"), std::string::npos);
}

TEST_F(Probe, CancellingDefersWhatIsLeft) {
  const std::atomic<bool> cancel{true};
  options.cancel = &cancel;
  const PluginRecord record = probe_one();
  EXPECT_EQ(record.state, State::deferred);
  EXPECT_EQ(record.reason_code, "CANCELLED");
}

TEST_F(Probe, AnOperatorsOnlyPluginIsTestedOnTheOwnersDevice) {
  add_plugin("fault_attached");
  const std::vector<ProbedPlugin> plugins = probe();
  ASSERT_EQ(plugins.size(), 2u);
  const PluginRecord& attached = plugins[1].record;
  EXPECT_EQ(attached.id, "fault-attached");
  EXPECT_EQ(attached.state, State::smoke_tested) << attached.reason;
  EXPECT_EQ(attached.devices.size(), 2u);
}

TEST_F(Probe, AnOperatorsOnlyPluginWithoutItsOwnerSaysWhoIsMissing) {
  add_plugin("fault_attached");
  set("RLK_PLUGINS_DISABLE", "fault");
  const std::vector<ProbedPlugin> plugins = probe();
  ASSERT_EQ(plugins.size(), 2u);
  EXPECT_EQ(plugins[1].record.reason_code, "NO_DEVICE");
  EXPECT_NE(plugins[1].record.reason.find("backend acme"), std::string::npos) << plugins[1].record.reason;
}

// While another process tries one plugin's operators, for minutes maybe, a call here wants one of another plugin.
TEST_F(Probe, WaitingForOnePluginEndsWhenAnOperatorOfAnotherIsWanted) {
  folder.copy(RLK_TEST_FAULT_PLUGIN, "plugins/librlk_plugin_fault.so");
  add_plugin("fault_second_acme");
  Demand demand(&store);
  options.trial = TrialScope::more;
  options.demand = &demand;
  options.waiting = {{"fault", {"add"}}, {"a-second-acme", {"add"}}};
  options.yields_to_wanted = true;
  const auto held = FileLock::acquire(lock_path(store, "fault"), 1);
  ASSERT_TRUE(held);
  std::thread call([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    demand.want("a-second-acme", "add");
  });
  const std::vector<ProbedPlugin> plugins = probe();
  call.join();
  const auto fault = std::find_if(plugins.begin(), plugins.end(),
                                  [](const ProbedPlugin& plugin) { return plugin.record.id == "fault"; });
  ASSERT_NE(fault, plugins.end());
  EXPECT_EQ(fault->record.state, State::deferred);
  EXPECT_EQ(fault->record.reason_code, reason::kProbeBusy.code);
}

TEST_F(Probe, FinishedRecordsAreReportedOnceEach) {
  add_plugin("fault_attached");
  folder.file("plugins/librlk_plugin_junk.so", "junk");
  std::vector<std::string> finished;
  options.on_finished = [&](const PluginRecord& record) { finished.push_back(record.id); };
  probe();
  std::sort(finished.begin(), finished.end());
  EXPECT_EQ(finished, (std::vector<std::string>{"fault", "fault-attached", "junk"}));
}

TEST_F(Probe, WhatTheCallersFunctionThrowsReachesTheCallerFromEveryThread) {
  options.mode = ProbeMode::off;
  options.on_finished = [](const PluginRecord&) { throw std::runtime_error("enough"); };
  EXPECT_THROW(find_plugins({}, options), std::runtime_error);  // two backends: two threads
}

TEST_F(Probe, AFileIsNeverTriedByACanary) {
  EXPECT_EQ(probe_one().tried, kTriedEverything);
  PluginRecord record;
  record.id = "fault";
  record.backend = "acme";
  record.path = folder / "plugins/librlk_plugin_fault.so";
  ExamineOptions examine_options;
  examine_options.host = options.host;
  examine_options.place = Place::host;
  examine_options.suite.canary = true;
  examine(&record, examine_options);
  EXPECT_EQ(record.tried, kTriedEverything) << record.reason;
}

TEST(Prober, StartedByHandSaysWhatToUseInstead) {
  const auto result = rlk::testing::run_command({RLK_TEST_PROBER, "--builtin", "cpu"});
  EXPECT_EQ(result.code, 2);
  EXPECT_NE(result.err.find("rlk-plugins probe"), std::string::npos) << result.err;
}

TEST(ProbeMode, OfTheEnvironment) {
  ProbeMode mode = ProbeMode::off;
  EXPECT_TRUE(probe_mode_of({}, &mode));
  EXPECT_EQ(mode, ProbeMode::isolated);
  EXPECT_TRUE(probe_mode_of({{{"RLK_PROBE", "off"}}, false}, &mode));
  EXPECT_EQ(mode, ProbeMode::off);
  EXPECT_TRUE(probe_mode_of({{{"RLK_PROBE", "inprocess"}}, false}, &mode));
  EXPECT_EQ(mode, ProbeMode::inprocess);
  EXPECT_FALSE(probe_mode_of({{{"RLK_PROBE", "In-Process"}}, false}, &mode));
  EXPECT_EQ(mode, ProbeMode::isolated);
}

TEST(ProbeTimeout, ScalesEveryPhase) {
  const auto scale = [](const char* value) { return timeout_scale_of({{{"RLK_PROBE_TIMEOUT", value}}, false}); };
  EXPECT_EQ(timeout_scale_of({}), 1.0);
  EXPECT_EQ(scale("120"), 2.0);
  EXPECT_EQ(scale("0.6"), 0.01);
  for (const char* nonsense : {"-1", "0", "x", "5s", "nan", "1e99"}) {
    double kept = 0.0;
    EXPECT_EQ(scale(nonsense), 1.0) << nonsense;
    EXPECT_FALSE(timeout_scale_of({{{"RLK_PROBE_TIMEOUT", nonsense}}, false}, &kept)) << nonsense;
  }
  const auto once = phase_budgets(1.0);
  const auto twice = phase_budgets(2.0);
  const auto tiny = phase_budgets(0.0005);
  for (size_t i = 0; i < once.size(); ++i) {
    EXPECT_EQ(twice[i].seconds, 2 * once[i].seconds);
    EXPECT_GE(tiny[i].seconds, 0.03);  // RLK_PROBE_TIMEOUT itself is the least a phase gets
  }
}

}  // namespace
}  // namespace rlk::loader
