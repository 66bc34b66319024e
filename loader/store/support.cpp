// The newest report that counts decides.
#include "loader/store/support.hpp"

#include <fmt/core.h>

#include "loader/store/report.hpp"

namespace rlk::loader {

Support support_of(const PluginRecord& record, Store* store) {
  if (record.path.empty() && record.id == "cpu")
    return {true, "built in: the tests of rlk's build run on the processor itself"};
  Support support;
  support.reason = "no conformance report from hardware";
  std::string newest;
  for (const std::string& path : reports_beside(record.path, record.id)) {
    const std::optional<Report> report = read_report_in_short(path, store);
    if (!report || report->record.id != record.id) {
      if (!support.active) support.reason = path + " is not a report of this plugin";
      continue;
    }
    const std::string text =
        fmt::format("conformance of {} on {}, {}", report->record.version, on_what(report->record), report->date);
    const std::string objection = objection_to(report->record);
    if (!objection.empty()) {
      if (!support.active) support.reason = fmt::format("{}, does not count: {}", text, objection);
    } else if (report->record.version != record.version) {
      if (!support.active) support.reason = fmt::format("{}, is of another version than {}", text, record.version);
    } else if (!support.active || report->date > newest) {
      support = {true, text};
      newest = report->date;
    }
  }
  return support;
}

}  // namespace rlk::loader
