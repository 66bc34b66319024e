// One child process that may crash, hang, print or lie: started, watched against time budgets, ended for certain.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace rlk::loader {

struct PhaseBudget {
  std::string phase;
  double seconds = 0.0;
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
};

enum class ChildEnd {
  finished,     // a result came
  exited,       // ended by exit() without a result
  crashed,      // ended by a signal
  timed_out,    // killed: a budget was used up
  cancelled,    // killed: the caller asked for it
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
};

// Runs the child in a session of its own with an empty signal mask, default signal actions and no standard input.
// Blocks until it is gone; then nothing of its process group is left. [thread-safe] `on_message` is called on the
// calling thread; what it throws ends the child and is thrown on. A process that leaves the group (setsid) or cannot be
// killed because it waits in the kernel is left behind and named in `text`.
ChildOutcome run_child(const ChildCommand& command, const std::function<void(std::string_view)>& on_message = {});

// The two ends of one rule: no child outlives its parent and keeps a device busy. The parent passes the words on the
// child's command line, before it starts it.
std::vector<std::string> parent_words();
// For the child, first of all: the kernel kills it when the thread that started it ends. False when those words are not
// at the end of its command line, or when that process ended before the kernel was asked: then nobody waits for an
// answer, and the caller exits.
bool end_with_parent(int argc, char** argv);
// The exit code of a child for which end_with_parent was false.
inline constexpr int kExitWithoutParent = 4;

// "SIGSEGV" for 11.
std::string signal_name(int signal);

}  // namespace rlk::loader
