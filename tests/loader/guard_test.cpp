// Plugins that fight the process that watches them: nothing of theirs outlives the probe or the loader, and the loader
// does not hang.
#include "loader/probe/guard.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

#include "framework/process.hpp"
#include "loader/probe/tree.hpp"
#include "tests/loader/staged_loader.hpp"

namespace rlk::loader {
namespace {

using Clock = std::chrono::steady_clock;

class Guarded : public StagedLoader {
protected:
  Guarded() : pid_file(folder / "pid") {
    add_plugin("fault");
    set("RLK_FAULT_PID_FILE", pid_file);
    set("RLK_PROBE_TIMEOUT", "1");
  }
  ~Guarded() override {
    if (const pid_t pid = written_pid(); pid > 0) kill(pid, SIGKILL);  // where the test failed
  }
  pid_t written_pid() const {
    std::ifstream file(pid_file);
    pid_t pid = 0;
    file >> pid;
    return pid;
  }
  pid_t await_pid() const {
    const auto until = Clock::now() + std::chrono::seconds(20);
    while (written_pid() == 0 && Clock::now() < until) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    return written_pid();
  }
  static bool is_gone(pid_t pid) {
    const auto until = Clock::now() + std::chrono::seconds(10);
    while (Clock::now() < until) {
      std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
      std::string number, name, state;
      if (!(file >> number >> name >> state) || state == "Z" || state == "X") return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    return false;
  }
  // A probe in a process of its own, which the test may end, or free when it hangs.
  pid_t probe_in_fork() {
    return rlk::testing::in_fork([&] { return probe_one().reason_code == "TIMED_OUT" ? 0 : 1; });
  }
  static bool ends_within(pid_t pid, std::chrono::seconds longest) {
    const auto until = Clock::now() + longest;
    while (Clock::now() < until) {
      if (waitpid(pid, nullptr, WNOHANG) == pid) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    kill(pid, SIGCONT);
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
    return false;
  }

  const std::string pid_file;
};

class KilledHost : public Guarded, public ::testing::WithParamInterface<const char*> {};
TEST_P(KilledHost, IsNotOutlivedByItsPlugin) {
  set_fault(GetParam());
  set("RLK_PROBE_TIMEOUT", "600");
  const pid_t host = probe_in_fork();
  const pid_t plugin = await_pid();
  ASSERT_GT(plugin, 0);
  kill(host, SIGKILL);
  rlk::testing::join(host);
  EXPECT_TRUE(is_gone(plugin)) << "process " << plugin << " runs on";
}
INSTANTIATE_TEST_SUITE_P(Ways, KilledHost, ::testing::Values("create:undo_death", "create:daemon_stall"),
                         [](const auto& instance) { return std::string(instance.param).substr(7); });

class HostileToItsParent : public Guarded, public ::testing::WithParamInterface<const char*> {};
TEST_P(HostileToItsParent, RunsIntoItsDeadlineLikeAnyOther) {
  set_fault(GetParam());
  const pid_t host = probe_in_fork();
  EXPECT_TRUE(ends_within(host, std::chrono::seconds(30))) << "the loader's process hangs";
}
INSTANTIATE_TEST_SUITE_P(Ways, HostileToItsParent,
                         ::testing::Values("create:stop_parent", "create:trace_parent", "create:trace_grandparent"),
                         [](const auto& instance) { return std::string(instance.param).substr(7); });

TEST_F(Guarded, ADaemonIsEndedWithTheProbeAndNamed) {
  set_fault("create:daemon");
  set("RLK_PROBE_TIMEOUT", "60");
  const PluginRecord record = probe_one();
  EXPECT_EQ(record.state, State::smoke_tested) << record.reason;
  const pid_t daemon = written_pid();
  ASSERT_GT(daemon, 0);
  EXPECT_TRUE(is_gone(daemon)) << "process " << daemon << " runs on";
  ASSERT_FALSE(record.notes.empty());
  EXPECT_NE(record.notes.back().find(std::to_string(daemon) + " (acme-daemon)"), std::string::npos)
      << record.notes.back();
}

TEST_F(Guarded, ADaemonOfAPluginThatHangsIsNamedToo) {
  set_fault("create:daemon_stall");
  const PluginRecord record = probe_one();
  EXPECT_EQ(record.reason_code, "TIMED_OUT");
  const pid_t daemon = written_pid();
  ASSERT_GT(daemon, 0);
  EXPECT_TRUE(is_gone(daemon)) << "process " << daemon << " runs on";
  ASSERT_FALSE(record.notes.empty());
  EXPECT_NE(record.notes.back().find(std::to_string(daemon) + " (acme-daemon)"), std::string::npos);
}

TEST(ProcessTree, FindsTheProcessWhoseThreadTracesAThread) {
  const pid_t child = rlk::testing::in_fork([] {
    std::thread([] {
      while (true) pause();
    }).join();
    return 0;
  });
  pid_t second = 0;
  for (int i = 0; i < 200 && second == 0; ++i, std::this_thread::sleep_for(std::chrono::milliseconds(10))) {
    for (const auto& task : std::filesystem::directory_iterator("/proc/" + std::to_string(child) + "/task"))
      if (const pid_t id = std::stoi(task.path().filename()); id != child) second = id;
  }
  ASSERT_NE(second, 0);
  EXPECT_TRUE(tracers_of(child).empty());
  std::thread([&] {
    ASSERT_EQ(ptrace(PTRACE_ATTACH, second, nullptr, nullptr), 0);
    waitpid(second, nullptr, __WALL);
    EXPECT_EQ(tracers_of(child), std::vector<pid_t>{getpid()});
    ptrace(PTRACE_DETACH, second, nullptr, nullptr);
  }).join();
  kill(child, SIGKILL);
  EXPECT_EQ(rlk::testing::join(child), -SIGKILL);
}

TEST(ProcessTree, FindsAndEndsADaemonBelowItsRoot) {
  EXPECT_TRUE(descendants_of(getpid()).empty());
  const pid_t child = rlk::testing::in_fork([] {
    setsid();
    while (true) pause();
    return 0;
  });
  for (int i = 0; i < 200 && getsid(child) != child; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  const std::vector<ProcessSeen> found = descendants_of(getpid());
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].pid, child);
  EXPECT_EQ(found[0].session, child);
  EXPECT_EQ(end_descendants(getpid()).size(), 1u);
  EXPECT_EQ(rlk::testing::join(child), -SIGKILL);
}

}  // namespace
}  // namespace rlk::loader
