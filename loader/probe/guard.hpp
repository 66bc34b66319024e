// The process between the loader and a plugin's code. It runs none of that code, and outlives what the code does to its
// own process: whatever comes of it, daemons too, ends when the work or the loader ends.
#pragma once

#include <string>
#include <vector>

namespace rlk::loader {

// Where a guard tells run_child what it ended beyond the session: a line each.
inline constexpr int kGuardFd = 4;

// The two ends of one rule: no child outlives its parent and keeps a device busy. The parent passes the words on the
// child's command line, before it starts it.
std::vector<std::string> parent_words();

// For the child, first of all, while it has one thread. True in a new process, the worker. The process that called
// becomes its guard and never returns: it ends as the worker ended, with everything that descends from it, or with all
// of it when the parent ends. False when those words are not at the end of the command line, or when that process ended
// before: then no parent waits for an answer, and the caller exits.
//
// A plugin can undo the worker's own parent-death signal, leave its session, and stop or trace its parent, which is the
// guard: run_child ends both then. The guard cannot be traced by a process of its own user. What a plugin that means
// harm still can do is what any program of this user can: kill the guard first and go on, or stop the loader's process.
bool enter_guarded(int argc, char** argv);
// The exit code of a child for which enter_guarded was false.
inline constexpr int kExitWithoutParent = 4;
// Of one that cannot talk to its parent any more, and of one whose thread did not come back from the plugin. Numbers
// that other code is unlikely to exit with.
inline constexpr int kExitWithoutSocket = 183;
inline constexpr int kExitWithoutReturn = 184;

}  // namespace rlk::loader
