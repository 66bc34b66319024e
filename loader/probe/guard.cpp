// fork, then wait: for the worker, for the parent's end, and for a process that traces the parent.
#include "loader/probe/guard.hpp"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <string_view>
#include <vector>

#include "loader/probe/descriptors.hpp"
#include "loader/probe/tree.hpp"

namespace rlk::loader {
namespace {

constexpr timespec kTick = {1, 0};
constexpr int kExitAfterSignal = 128;

// How the worker ended, for the guard to end the same way.
struct End {
  int code = 0;
  int signal = 0;
};

[[noreturn]] void end_as(const End& end) {
  if (end.signal == 0) _exit(end.code);
  sigset_t one;
  sigemptyset(&one);
  sigaddset(&one, end.signal);
  signal(end.signal, SIG_DFL);
  sigprocmask(SIG_UNBLOCK, &one, nullptr);
  raise(end.signal);
  _exit(kExitAfterSignal + end.signal);
}

// True once the worker was reaped; orphans that were taken in are reaped on the way.
bool reap(pid_t worker, End* end) {
  int status = 0;
  for (pid_t pid = 0; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
    if (pid != worker) continue;
    *end = WIFSIGNALED(status) ? End{0, WTERMSIG(status)} : End{WEXITSTATUS(status), 0};
    return true;
  }
  return false;
}

bool is_traced_from_below(pid_t parent) {
  const std::vector<pid_t> tracers = tracers_of(parent);
  if (tracers.empty()) return false;
  const auto below = descendants_of(getpid());
  return std::any_of(below.begin(), below.end(), [&](const ProcessSeen& one) {
    return std::find(tracers.begin(), tracers.end(), one.pid) != tracers.end();
  });
}

End watch(pid_t worker, pid_t parent, const sigset_t& awaited) {
  End end;
  while (!reap(worker, &end)) {
    const int signal = sigtimedwait(&awaited, nullptr, &kTick);
    if (signal == SIGTERM || signal == SIGINT || signal == SIGHUP) return {0, signal};
    if (getppid() != parent) return {kExitWithoutParent, 0};
    if (signal < 0 && is_traced_from_below(parent)) {
      end_descendants(getpid());
      kill(parent, SIGCONT);  // the tracer's end leaves it stopped
      return {0, SIGTERM};
    }
  }
  return end;
}

[[noreturn]] void guard(pid_t worker, pid_t parent, const sigset_t& awaited) {
  close_descriptors(0, kGuardFd);  // the worker's: their other ends must see the worker's end
  prctl(PR_SET_DUMPABLE, 0);       // no process of this user can trace it
  const rlimit none = {0, 0};
  setrlimit(RLIMIT_CORE, &none);
  const End end = watch(worker, parent, awaited);
  if (waitpid(-1, nullptr, WNOHANG) == 0 || errno != ECHILD) {
    for (const std::string& name : end_descendants(getpid())) {
      const std::string line = name + '\n';
      static_cast<void>(!write(kGuardFd, line.data(), line.size()));
    }
  }
  end_as(end);
}

}  // namespace

std::vector<std::string> parent_words() {
  return {"--parent", std::to_string(getpid())};
}

bool enter_guarded(int argc, char** argv) {
  if (argc < 3 || std::string_view(argv[argc - 2]) != "--parent") return false;
  sigset_t awaited, before;
  sigemptyset(&awaited);
  for (const int signal : {SIGCHLD, SIGCONT, SIGTERM, SIGINT, SIGHUP}) sigaddset(&awaited, signal);
  sigprocmask(SIG_BLOCK, &awaited, &before);
  // The order matters: a parent that ends after this line tells us, one that ended before is no longer our parent. It
  // tells by SIGCONT, which reaches a stopped guard too.
  if (prctl(PR_SET_PDEATHSIG, SIGCONT) != 0) return false;
  const pid_t parent = getppid();  // 0: it lives in another namespace of process ids
  if (parent != 0 && std::to_string(parent) != argv[argc - 1]) return false;
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  const pid_t own = getpid();
  const pid_t worker = fork();
  if (worker > 0) guard(worker, parent, awaited);
  // If no second process can be started, the parent-death signal has to do.
  sigprocmask(SIG_SETMASK, &before, nullptr);
  if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) return false;
  close(kGuardFd);
  return getppid() == (worker == 0 ? own : parent);
}

}  // namespace rlk::loader
