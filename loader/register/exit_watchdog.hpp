// Watchdog for the end of the process. A thread that hangs while it loads a plugin holds the dynamic linker's lock,
// which the end of the process needs too: exit() would wait for it for ever, after all the work was done.
#pragma once

#include <functional>
#include <string>

namespace rlk::loader {

// From now on exit() comes to an end: where the thread that ends the process has done nothing for `seconds` while
// `hangs` is still true, the process ends with its own exit status, and a line on standard error names the plugin
// at fault. What runs at exit (flushed files, functions of others) runs before; destructors of libraries may not. [once
// a process]
void start_exit_watchdog(std::string plugin, double seconds, std::function<bool()> hangs);

}  // namespace rlk::loader
