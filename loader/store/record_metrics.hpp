// What is known of plugins, as gauges in the text format of Prometheus.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "loader/store/record.hpp"

namespace rlk::loader {

// A value of a label, without its quotes: fit to print, and escaped.
std::string label_text(std::string_view value);

// How far each plugin came (rlk_plugin_info, always 1), and how many operators of one that is in use are verified, or
// wait for their trial (rlk_operators). Places that hold no plugin are left out.
std::string prometheus_of_plugins(const std::vector<PluginRecord>& records);

}  // namespace rlk::loader
