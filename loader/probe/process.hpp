// One child process that may crash, hang, print or lie: started, watched against time budgets, ended for certain.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace rlk::loader {

// Limits do not count the time that the child waits for a processor; by the clock they are at most
// core::kWidestByTheClock times as long.
struct PhaseBudget {
  std::string phase;
  double seconds = 0.0;
  double silence_seconds = 0.0;  // longest time without any frame in it; 0: that of the command
};

struct ChildCommand {
  std::string program;                   // absolute path
  std::vector<std::string> arguments;    // without the program's name
  std::vector<std::string> environment;  // "NAME=value", the child's whole environment
  std::string request;                   // payload of the request frame
  std::vector<PhaseBudget> budgets;
  double other_seconds = 10.0;  // for a phase without a budget, and for the time before the first one
  // Longest time without any frame, inside a phase's budget; 0: no such limit.
  double silence_seconds = 0.0;
  const std::atomic<bool>* cancel = nullptr;  // when it becomes true the child is killed
  // Is asked all the time. When it answers true the child is killed: its messages said enough. May be empty.
  std::function<bool()> enough = nullptr;
};

enum class ChildEnd {
  finished,     // a result came
  exited,       // ended by exit() without a result
  crashed,      // ended by a signal
  timed_out,    // killed: a budget was used up
  cancelled,    // killed: the caller asked for it, or had enough
  garbled,      // killed: it sent something that is no frame
  not_started,  // the program could not be started
};

struct ChildOutcome {
  ChildEnd end = ChildEnd::not_started;
  std::string result;    // payload of the result frame when finished
  std::string phase;     // the phase it was in at its end; "start" before the first
  std::string activity;  // text of the last heartbeat in that phase
  std::string text;      // the end in words: "killed by SIGSEGV in phase create", ...
  std::string output;    // last 4 KiB of what it printed to stdout and stderr
  int code = 0;          // exit code, or signal number when crashed
  double seconds = 0.0;
  std::vector<std::string> left;  // what it left running in other sessions, and was ended with it: "123 (name)"
};

// Runs the child in a session of its own with an empty signal mask, default signal actions and no standard input.
// Blocks until it is gone; then nothing of its process group is left, and of a guarded child (guard.hpp) nothing that
// came of it. [thread-safe] `on_message` is called on the
// calling thread; what it throws ends the child and is thrown on. One that cannot be killed because it
// waits in the kernel is left behind and named in `text`.
ChildOutcome run_child(const ChildCommand& command, const std::function<void(std::string_view)>& on_message = {});

// "SIGSEGV" for 11.
std::string signal_name(int signal);

}  // namespace rlk::loader
