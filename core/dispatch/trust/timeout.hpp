// Watchdog for plugin code that can be abandoned (opening a device, making a stream or a plan): it runs on a thread of
// its own, with a timeout.
#pragma once

#include <functional>

namespace rlk::core {

// Longest times, with patience 1.
inline constexpr double kOpenSeconds = 60.0;   // of a device, and of a stream
inline constexpr double kPlanSeconds = 240.0;  // to make a plan; what compiles longer does so in the background
// Scales them, as RLK_PROBE_TIMEOUT scales the phases of a probe. [thread-safe]
void set_patience(double scale);
double patience();

// False when the work did not return within `seconds` times the patience. It then goes on in the background, and must
// own all that it uses. If no thread can be started it runs on this one. What the work throws is thrown here.
bool run_with_timeout(double seconds, std::function<void()> work);

}  // namespace rlk::core
