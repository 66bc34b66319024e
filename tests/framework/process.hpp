// Programs and functions that a test runs in another process.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <utility>
#include <vector>

namespace rlk::testing {

// Starts `body` in a forked process; its return value is the exit code. Wait for it with join().
template <class Body>
pid_t in_fork(Body&& body) {
  const pid_t pid = fork();
  if (pid == 0) _exit(body());
  return pid;
}

// The exit code, or minus the signal that ended it.
inline int join(pid_t pid) {
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

struct CommandResult {
  int code = -1;  // exit code, or minus the signal that ended it
  std::string out;
  std::string err;
  bool timed_out = false;
};

// Runs a program with `environment` ("NAME=value") added to this process's own. Killed after `seconds`.
inline CommandResult run_command(const std::vector<std::string>& command,
                                 const std::vector<std::string>& environment = {}, double seconds = 120.0) {
  CommandResult result;
  int out[2];
  int err[2];
  if (pipe2(out, O_CLOEXEC) != 0 || pipe2(err, O_CLOEXEC) != 0) {
    ADD_FAILURE() << "pipe2 failed";
    return result;
  }
  const pid_t pid = in_fork([&] {
    dup2(out[1], 1);
    dup2(err[1], 2);
    for (const std::string& entry : environment) {
      const size_t equals = entry.find('=');
      setenv(entry.substr(0, equals).c_str(), entry.substr(equals + 1).c_str(), 1);
    }
    std::vector<char*> argv;
    for (const std::string& argument : command) argv.push_back(const_cast<char*>(argument.c_str()));
    argv.push_back(nullptr);
    execv(argv[0], argv.data());
    return 127;
  });
  close(out[1]);
  close(err[1]);
  const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  pollfd polled[2] = {{out[0], POLLIN, 0}, {err[0], POLLIN, 0}};
  while (polled[0].fd >= 0 || polled[1].fd >= 0) {
    poll(polled, 2, 100);
    for (int i = 0; i < 2; ++i) {
      if (polled[i].fd < 0 || polled[i].revents == 0) continue;
      char piece[8192];
      const ssize_t got = read(polled[i].fd, piece, sizeof(piece));
      if (got > 0) (i == 0 ? result.out : result.err).append(piece, static_cast<size_t>(got));
      if (got == 0) polled[i].fd = -1;
    }
    if (std::chrono::steady_clock::now() > until) {
      result.timed_out = true;
      kill(pid, SIGKILL);
      break;
    }
  }
  close(out[0]);
  close(err[0]);
  result.code = join(pid);
  return result;
}

}  // namespace rlk::testing
