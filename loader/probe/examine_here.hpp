// A plugin examined in this process, for a debugger (RLK_PROBE=inprocess): a crash ends us, a hang does not.
#pragma once

#include "loader/probe/attempt.hpp"
#include "loader/probe/examine.hpp"

namespace rlk::loader {

// `how` gets its place and its phases here. One that hangs is given up, and its thread goes on in the background.
void examine_here(ExamineOptions how, const Patience& patience, PluginRecord* record);

}  // namespace rlk::loader
