// Children that crash, hang, lie and print: what the parent says of each, and that nothing is left of them.
#include "loader/probe/process.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <stdexcept>
#include <thread>

#include "framework/env.hpp"
#include "framework/process.hpp"
#include "loader/probe/descriptors.hpp"

namespace rlk::loader {
namespace {

const std::string kChild = RLK_TEST_OBJECTS "/loader_child";

ChildCommand command(std::vector<std::string> arguments, double create_seconds = 20.0) {
  ChildCommand out;
  out.program = kChild;
  out.arguments = std::move(arguments);
  out.environment = {"PATH=/usr/bin:/bin", "RLK_TEST_VARIABLE=staged"};
  for (const auto& [name, value] : rlk::testing::crashes_stay_crashes()) out.environment.push_back(name + "=" + value);
  out.request = "a request";
  out.budgets = {{"start", 20.0}, {"create", create_seconds}};
  return out;
}

size_t open_descriptors() {
  size_t count = 0;
  DIR* folder = opendir("/proc/self/fd");
  while (readdir(folder) != nullptr) ++count;
  closedir(folder);
  return count;
}

bool is_alive(pid_t pid) {
  return kill(pid, 0) == 0;
}

// One processor for this process, what it starts, and so many others that never rest.
class CrowdedProcessor {
public:
  explicit CrowdedProcessor(int others) {
    sched_getaffinity(0, sizeof(before_), &before_);
    cpu_set_t one;
    CPU_ZERO(&one);
    for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++cpu)
      if (CPU_ISSET(cpu, &before_)) CPU_SET(cpu, &one);
    sched_setaffinity(0, sizeof(one), &one);
    for (int i = 0; i < others; ++i)
      others_.push_back(rlk::testing::in_fork([]() -> int {
        while (true) clock();
      }));
  }
  ~CrowdedProcessor() {
    for (const pid_t other : others_) {
      kill(other, SIGKILL);
      waitpid(other, nullptr, 0);
    }
    sched_setaffinity(0, sizeof(before_), &before_);
  }
  CrowdedProcessor(const CrowdedProcessor&) = delete;
  CrowdedProcessor& operator=(const CrowdedProcessor&) = delete;

private:
  cpu_set_t before_;
  std::vector<pid_t> others_;
};

TEST(Child, WaitingForAProcessorIsNotItsFault) {
  if (access("/proc/self/schedstat", R_OK) != 0) GTEST_SKIP() << "this kernel does not tell how long a process waited";
  const CrowdedProcessor crowded(2);
  ChildCommand half_a_second = command({"burn_half_a_second"}, 1.2);  // by the clock it takes 1.5 s or more
  EXPECT_EQ(run_child(half_a_second).text, "finished");
  half_a_second.budgets.back().seconds = 60.0;
  half_a_second.silence_seconds = 1.2;
  EXPECT_EQ(run_child(half_a_second).text, "finished");
}

TEST(Child, AnOrdinaryOneFinishes) {
  const ChildOutcome outcome = run_child(command({"fine"}));
  EXPECT_EQ(outcome.end, ChildEnd::finished) << outcome.text;
  EXPECT_EQ(outcome.result, "fine");
  EXPECT_EQ(outcome.phase, "create");
  EXPECT_EQ(outcome.activity, "step 1");
  EXPECT_EQ(outcome.output, "");
}

constexpr int kNoneSoHigh = 77;
class Descriptors : public ::testing::TestWithParam<void (*)(int, int)> {};
TEST_P(Descriptors, AreClosedHoweverHighButTheOneThatIsKept) {
  const int code = rlk::testing::join(rlk::testing::in_fork([] {
    const auto is_open = [](int fd) { return fcntl(fd, F_GETFD) >= 0; };
    rlimit files = {};
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    const int high = fcntl(0, F_DUPFD, 1500), kept = fcntl(0, F_DUPFD, 700);
    if (high < 0) return kNoneSoHigh;
    for (const int low : {10, 1023, 1024}) dup2(0, low);
    GetParam()(3, kept);
    for (const int fd : {10, 1023, 1024, high})
      if (is_open(fd)) return 1;
    if (!is_open(kept) || !is_open(2)) return 2;
    dup2(kept, 3);  // the lowest is the one to keep
    GetParam()(3, 3);
    return is_open(3) && !is_open(kept) ? 0 : 3;
  }));
  if (code == kNoneSoHigh) GTEST_SKIP() << "this process may have no descriptor above 1500";
  EXPECT_EQ(code, 0);
}
INSTANTIATE_TEST_SUITE_P(Ways, Descriptors, ::testing::Values(&close_descriptors, &close_listed_descriptors),
                         [](const auto& instance) { return instance.index == 0 ? "by_range" : "by_list"; });

TEST(Child, RunsInASessionOfItsOwnWithACleanState) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGUSR1);
  sigset_t before;
  pthread_sigmask(SIG_BLOCK, &set, &before);
  const auto handler = signal(SIGUSR2, SIG_IGN);
  const ChildOutcome outcome = run_child(command({"report"}));
  signal(SIGUSR2, handler);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  EXPECT_EQ(outcome.result,
            "request=a request pid_is_session=1 stdin=0 blocked=0 ignored=0 variable=staged home=unset");
}

struct Crash {
  const char* name;
  int signal;
};
class CrashingChild : public ::testing::TestWithParam<Crash> {};
TEST_P(CrashingChild, IsNamedWithSignalPhaseAndActivity) {
  const ChildOutcome outcome = run_child(command({"crash", std::to_string(GetParam().signal)}));
  EXPECT_EQ(outcome.end, ChildEnd::crashed);
  EXPECT_EQ(outcome.code, GetParam().signal);
  EXPECT_EQ(outcome.text.rfind(std::string("killed by ") + GetParam().name + " in phase create, at step 1", 0), 0u)
      << outcome.text;
}
INSTANTIATE_TEST_SUITE_P(Signals, CrashingChild,
                         ::testing::Values(Crash{"SIGSEGV", SIGSEGV}, Crash{"SIGABRT", SIGABRT},
                                           Crash{"SIGBUS", SIGBUS}, Crash{"SIGFPE", SIGFPE}, Crash{"SIGILL", SIGILL},
                                           Crash{"SIGKILL", SIGKILL}),
                         [](const auto& instance) { return std::string(instance.param.name); });

TEST(Child, RealFaultsAreCrashesToo) {
  EXPECT_EQ(run_child(command({"segfault"})).code, SIGSEGV);
  EXPECT_EQ(run_child(command({"abort"})).code, SIGABRT);
}

TEST(Child, AnExitWithoutAResultIsNamedWithItsCode) {
  const ChildOutcome outcome = run_child(command({"exit"}));
  EXPECT_EQ(outcome.end, ChildEnd::exited);
  EXPECT_EQ(outcome.code, 3);
  EXPECT_EQ(outcome.text, "ended with exit code 3 in phase create, at step 1");
}

TEST(Child, OneThatEndsBeforeItReadsItsRequestDoesNotHurtUs) {
  ChildCommand early = command({"exit_at_once"});
  early.request.assign(4 << 20, 'r');  // more than the socket holds: our write meets a closed end
  const ChildOutcome outcome = run_child(early);
  EXPECT_EQ(outcome.end, ChildEnd::exited);
  EXPECT_EQ(outcome.code, 7);
  EXPECT_EQ(outcome.phase, "start");
}

class HangingChild : public ::testing::TestWithParam<const char*> {};
TEST_P(HangingChild, IsKilledWhenItsPhaseIsOver) {
  const ChildOutcome outcome = run_child(command({GetParam()}, 0.5));
  EXPECT_EQ(outcome.end, ChildEnd::timed_out) << outcome.text;
  EXPECT_EQ(outcome.text.rfind("not done after 0.5 s in phase create", 0), 0u) << outcome.text;
  EXPECT_EQ(outcome.text.find("does not end"), std::string::npos) << outcome.text;
  EXPECT_LT(outcome.seconds, 15.0);
}
INSTANTIATE_TEST_SUITE_P(Ways, HangingChild,
                         ::testing::Values("hang", "hang_ignoring_signals", "spin", "close_and_hang", "flood_output"),
                         [](const auto& instance) { return std::string(instance.param); });

TEST(Child, AGrandchildThatIgnoresSignalsAndHoldsOurPipesIsKilledToo) {
  const ChildOutcome outcome = run_child(command({"leave_a_grandchild"}));
  ASSERT_EQ(outcome.end, ChildEnd::finished) << outcome.text;
  const pid_t grandchild = std::stoi(outcome.result);
  for (int i = 0; i < 100 && is_alive(grandchild); ++i) {
    // Dead but not yet reaped by the process that inherited it is as good as gone.
    char state = 0;
    const std::string path = "/proc/" + std::to_string(grandchild) + "/stat";
    if (FILE* file = fopen(path.c_str(), "r")) {
      if (fscanf(file, "%*d %*s %c", &state) != 1) state = 0;
      fclose(file);
    }
    if (state == 'Z') return;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  EXPECT_FALSE(is_alive(grandchild));
}

TEST(Child, WhatItPrintsCannotCorruptTheProtocolAndItsEndIsKept) {
  const ChildOutcome outcome = run_child(command({"print_garbage"}));
  ASSERT_EQ(outcome.end, ChildEnd::finished) << outcome.text;
  EXPECT_EQ(outcome.result, "fine");
  EXPECT_EQ(outcome.output.size(), 4096u);
  EXPECT_NE(outcome.output.find("last words on stderr"), std::string::npos);
  EXPECT_NE(outcome.output.find("line 1999"), std::string::npos);
}

TEST(Child, GarbageOnTheProtocolIsFoundAndEndsIt) {
  for (const char* way : {"garble_protocol", "huge_frame"}) {
    const ChildOutcome outcome = run_child(command({way}));
    EXPECT_EQ(outcome.end, ChildEnd::garbled) << way << ": " << outcome.text;
    EXPECT_LT(outcome.seconds, 15.0) << way;
  }
}

TEST(Child, MessagesAreKeptWhenItCrashesLater) {
  std::vector<std::string> messages;
  const ChildOutcome outcome =
      run_child(command({"messages_then_crash"}), [&](std::string_view text) { messages.emplace_back(text); });
  EXPECT_EQ(outcome.end, ChildEnd::crashed);
  EXPECT_EQ(messages, (std::vector<std::string>{"one", "two"}));
  EXPECT_EQ(outcome.activity, "step 2");
}

TEST(Child, HeartbeatsHoldOffTheSilenceLimit) {
  ChildCommand alive = command({"slow_but_alive"});
  alive.silence_seconds = 2.0;
  EXPECT_EQ(run_child(alive).end, ChildEnd::finished);
  ChildCommand silent = command({"hang"});
  silent.silence_seconds = 2.0;  // it must have begun by then, also on a busy machine
  const ChildOutcome outcome = run_child(silent);
  EXPECT_EQ(outcome.end, ChildEnd::timed_out);
  EXPECT_EQ(outcome.text, "no sign of life for 2.0 s in phase create, at step 1");
}

TEST(Child, EachPhaseHasItsOwnTime) {
  ChildCommand phases = command({"many_phases"});
  phases.other_seconds = 10.0;
  EXPECT_EQ(run_child(phases).end, ChildEnd::finished);
  phases.arguments = {"phases_then_hang"};
  phases.budgets.push_back({"phase 3", 0.05});
  const ChildOutcome outcome = run_child(phases);
  EXPECT_EQ(outcome.end, ChildEnd::timed_out);
  EXPECT_EQ(outcome.phase, "phase 3");
}

TEST(Child, WinsNoTimeByEnteringAPhaseAgainAndAgain) {
  for (const char* what : {"forge_one_phase", "forge_many_phases"}) {
    ChildCommand forger = command({what});
    forger.budgets = {{"create", 0.5}};
    forger.other_seconds = 0.5;
    const auto begin = std::chrono::steady_clock::now();
    const ChildOutcome outcome = run_child(forger);
    EXPECT_EQ(outcome.end, ChildEnd::timed_out) << what;
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30))
        << what;  // of the minute that it wants
  }
}

TEST(Child, AForgedNameOfMegabytesIsCutAndMadePrintable) {
  ChildCommand forger = command({"forge_a_name"});
  const ChildOutcome outcome = run_child(forger);
  EXPECT_EQ(outcome.end, ChildEnd::exited);
  EXPECT_LT(outcome.text.size(), 2000u);
  EXPECT_NE(outcome.text.find("\\x1b[31mxxx"), std::string::npos) << outcome.text;
}

TEST(Child, IsNotBlamedForTheTimeThatItsParentWasBusy) {
  const ChildOutcome outcome = run_child(command({"message_then_more"}, 0.5), [](std::string_view) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1000));  // it goes on meanwhile and says so
  });
  EXPECT_EQ(outcome.end, ChildEnd::finished) << outcome.text;
  EXPECT_EQ(outcome.phase, "next");
}

TEST(Child, IsGoneAlsoWhenTheCallbackThrows) {
  const size_t before = open_descriptors();
  EXPECT_THROW(run_child(command({"message_then_more"}),
                         [](std::string_view) { throw std::runtime_error("the callback's own"); }),
               std::runtime_error);
  EXPECT_EQ(open_descriptors(), before);
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1) << "a child is left, dead or alive";
}

TEST(Child, AResultCountsEvenWhenTheEndDoesNotCome) {
  const ChildOutcome outcome = run_child(command({"result_then_hang"}));
  EXPECT_EQ(outcome.end, ChildEnd::finished);
  EXPECT_EQ(outcome.result, "done");
}

TEST(Child, CanBeCancelled) {
  std::atomic<bool> cancel{false};
  ChildCommand hanging = command({"hang"});
  hanging.cancel = &cancel;
  std::thread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    cancel = true;
  });
  const ChildOutcome outcome = run_child(hanging);
  later.join();
  EXPECT_EQ(outcome.end, ChildEnd::cancelled);
  EXPECT_LT(outcome.seconds, 15.0);
}

TEST(Child, AProgramThatIsNotThereIsSaidSo) {
  ChildCommand absent = command({});
  absent.program = "/nowhere/rlk-prober";
  const ChildOutcome outcome = run_child(absent);
  EXPECT_EQ(outcome.end, ChildEnd::not_started);
  EXPECT_NE(outcome.text.find("/nowhere/rlk-prober: No such file"), std::string::npos) << outcome.text;
}

TEST(Child, AnApplicationThatIgnoresSigchldIsServedAllTheSame) {
  const auto handler = signal(SIGCHLD, SIG_IGN);
  EXPECT_EQ(run_child(command({"fine"})).end, ChildEnd::finished);
  EXPECT_EQ(run_child(command({"exit"})).end, ChildEnd::exited);
  EXPECT_EQ(run_child(command({"hang"}, 0.3)).end, ChildEnd::timed_out);
  signal(SIGCHLD, handler);
}

TEST(Child, LeavesNoDescriptorsAndNoZombies) {
  const size_t before = open_descriptors();
  for (const char* way : {"fine", "exit", "segfault", "garble_protocol"}) run_child(command({way}));
  run_child(command({"hang"}, 0.2));
  EXPECT_EQ(open_descriptors(), before);
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1);  // no child of ours is left, dead or alive
}

TEST(Child, ManyAtOnceDoNotDisturbEachOther) {
  std::vector<std::thread> threads;
  std::atomic<int> good{0};
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&good, i] {
      const ChildOutcome outcome = run_child(command({i % 2 == 0 ? "fine" : "segfault"}));
      good += outcome.end == (i % 2 == 0 ? ChildEnd::finished : ChildEnd::crashed) ? 1 : 0;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(good, 8);
}

}  // namespace
}  // namespace rlk::loader
