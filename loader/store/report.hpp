// Recorded conformance reports: the files reports/ID/*.json beside librlk_plugin_ID.so, written by `rlk-plugins
// conformance
// --report` (plugins/REPORTS.md). A report is a claim of its sender; what it says of itself is never believed: whether
// it passed and whether there was hardware follows from its units and its evidence.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "loader/store/record.hpp"

namespace rlk::loader {

struct Report {
  std::string date;           // 2026-01-31
  HostIdentity host;          // of the suite that judged
  std::string plugin_sha256;  // of the plugin's file; "" in a report that does not name it
  PluginRecord record;        // without what is of that machine alone
};
// Nothing when the text is no report.
std::optional<Report> report_of_text(std::string_view text);
std::optional<Report> read_report(const std::string& path);
// With representative units alone (record.hpp). The store, where there is one, keeps that short form by the file's
// identity (device, inode, size and times, of which its owner can set back all but the last), as it keeps its SHA-256:
// a report that changed is read again.
class Store;
std::optional<Report> read_report_in_short(const std::string& path, Store* store);

// The files where reports of a plugin with this path and id are looked for, in the order of their names. 64 at most.
std::vector<std::string> reports_beside(const std::string& plugin_path, const std::string& id);

// "4 x NVIDIA H200".
std::string on_what(const PluginRecord& record);

// `plugin_sha256` is of the file that was tried; "" where it was built in.
std::string report_to_json(const HostIdentity& host, const PluginRecord& record, const std::string& plugin_sha256,
                           bool full, const std::string& date);
// Why the run of a record does not count: what failed, or that no hardware was seen; empty when it counts.
std::string objection_to(const PluginRecord& record);

}  // namespace rlk::loader
