// What a reload takes away: operators of which the plugin had verified something, and has nothing now.
#pragma once

#include <string>
#include <vector>

#include "loader/store/record.hpp"

namespace rlk::loader {

// In the order of their names. One that waits to be tried counts as lost: nothing of it serves now.
std::vector<std::string> lost_operators(const std::vector<PluginRecord>& before, const std::vector<PluginRecord>& now,
                                        const std::string& plugin);

}  // namespace rlk::loader
