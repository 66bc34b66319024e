// How far is a plugin supported? `active` needs a recorded report: the conformance suite, passed by this version of the
// plugin on its vendor's hardware. Everything else is `experimental`: rlk verifies and uses it all the same.
//
// Reports of librlk_plugin_ID.so are the files reports/ID/*.json beside it, written by `rlk-plugins conformance
// --report` (plugins/REPORTS.md). A report is a claim of who sent it; what it says of itself is never believed: whether
// it passed and whether there was hardware follows from its units and its evidence.
#pragma once

#include <string>
#include <string_view>

#include "loader/store/record.hpp"

namespace rlk::loader {

struct Support {
  bool active = false;
  std::string reason;  // which report, or why there is none that counts
  std::string_view tier() const { return active ? "active" : "experimental"; }
};
Support support_of(const PluginRecord& record);

// The report of a conformance run: the record without what is of that machine alone. `date` is 2026-01-31.
std::string report_to_json(const HostIdentity& host, const PluginRecord& record, bool full, const std::string& date);
// Why this run does not make its plugin active; empty when it does.
std::string objection_to(const PluginRecord& record);

}  // namespace rlk::loader
