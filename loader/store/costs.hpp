// What calls took when they were timed (`rlk-plugins bench --remember`), kept for later processes: for a plugin, its
// libraries and its devices as they are.
#pragma once

#include <string_view>
#include <vector>

#include "core/dispatch/call/measured_cost.hpp"
#include "loader/store/record.hpp"
#include "loader/store/store.hpp"

namespace rlk::loader {

inline constexpr std::string_view kCostPrefix = "costs-";

// Those of the record's plugin.
std::vector<core::MeasuredCost> read_costs(Store* store, const PluginRecord& record);
// Adds some; an older time of the same call is forgotten. False when they could not be kept.
bool remember_costs(Store* store, const PluginRecord& record, const std::vector<core::MeasuredCost>& costs);

}  // namespace rlk::loader
