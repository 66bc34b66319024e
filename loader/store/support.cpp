// Reports: what one holds, when it counts, and where they are looked for.
#include "loader/store/support.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "loader/store/file.hpp"

namespace rlk::loader {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr size_t kMaxReportBytes = size_t{16} << 20;
constexpr size_t kMaxReports = 64;

// The device nodes or PCI functions of the vendor: what a simulated runtime cannot bring along. A look at the PCI bus
// that found none outweighs a node that several vendors share.
bool saw_hardware(const PluginRecord& record) {
  bool saw = false;
  for (const Evidence& item : record.evidence) {
    if (item.kind == "pci_device" && item.supports == 0) return false;
    if (item.kind == "device_node" || item.kind == "pci_device") saw = saw || item.supports > 0;
  }
  return saw;
}

std::string on_what(const PluginRecord& record) {
  if (record.devices.empty()) return "no device";
  return (record.devices.size() > 1 ? fmt::format("{} x ", record.devices.size()) : "") + record.devices[0].name;
}

struct Report {
  std::string date;
  PluginRecord record;
};
bool read_report(const std::string& path, Report* out) {
  const std::optional<std::string> text = read_file(path, kMaxReportBytes);
  if (!text) return false;
  const json document = json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (!document.is_object() || document.value("document", json()) != "conformance_report" ||
      document.value("schema", json()) != 1 || !document.contains("plugin") ||
      !document.value("date", json()).is_string())
    return false;
  out->date = document["date"].get<std::string>();
  std::string ignored;
  return record_from_document(document["plugin"], &out->record, &ignored);
}

std::vector<std::string> reports_of(const PluginRecord& record) {
  const std::string folder = record.path.substr(0, record.path.rfind('/') + 1) + "reports/" + record.id;
  std::vector<std::string> paths;
  const Folder open = open_folder(folder);
  if (open == nullptr || record.id.find('/') != std::string::npos) return paths;
  while (const dirent* entry = readdir(open.get())) {
    const std::string name = entry->d_name;
    if (name.size() > 5 && name.compare(name.size() - 5, 5, ".json") == 0) paths.push_back(folder + "/" + name);
  }
  std::sort(paths.begin(), paths.end());
  if (paths.size() > kMaxReports) paths.resize(kMaxReports);
  return paths;
}

std::string on_one_line(const ordered_json& value) {
  return value.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

// Each element of a list on a line of its own: where two reports differ, the lines are the units that differ.
std::string in_lines(const ordered_json& object, const std::string& indent) {
  std::string members;
  for (const auto& [name, value] : object.items()) {
    members += fmt::format("{}{} {}: ", members.empty() ? "\n" : ",\n", indent, on_one_line(name));
    if (value.is_object()) {
      members += in_lines(value, indent + " ");
    } else if (value.is_array() && !value.empty()) {
      std::string elements;
      for (const ordered_json& element : value)
        elements += fmt::format("{}{}  {}", elements.empty() ? "\n" : ",\n", indent, on_one_line(element));
      members += fmt::format("[{}\n{} ]", elements, indent);
    } else {
      members += on_one_line(value);
    }
  }
  return fmt::format("{{{}\n{}}}", members, indent);
}

}  // namespace

std::string objection_to(const PluginRecord& record) {
  size_t verified = 0;
  for (const core::UnitResult& unit : record.units) {
    if (unit.verdict == core::UnitResult::Verdict::failed)
      return fmt::format("{} {} {} failed", unit.op, unit.implementation, unit.dtype);
    verified += unit.verdict == core::UnitResult::Verdict::verified && unit.cases > 0;
  }
  if (verified == 0) return "nothing was verified";
  if (record.devices.empty()) return "there was no device";
  if (!saw_hardware(record))
    return "its evidence has no device node or PCI device of the vendor: no hardware was there";
  return {};
}

Support support_of(const PluginRecord& record) {
  if (record.path.empty() && record.id == "cpu")
    return {true, "built in: the tests of rlk's build run on the processor itself"};
  Support support;
  support.reason = "no conformance report from hardware";
  std::string newest;
  for (const std::string& path : reports_of(record)) {
    Report report;
    if (!read_report(path, &report) || report.record.id != record.id) {
      if (!support.active) support.reason = path + " is not a report of this plugin";
      continue;
    }
    const std::string text =
        fmt::format("conformance of {} on {}, {}", report.record.version, on_what(report.record), report.date);
    const std::string objection = objection_to(report.record);
    if (!objection.empty()) {
      if (!support.active) support.reason = fmt::format("{}, does not count: {}", text, objection);
    } else if (report.record.version != record.version) {
      if (!support.active) support.reason = fmt::format("{}, is of another version than {}", text, record.version);
    } else if (!support.active || report.date > newest) {
      support = {true, text};
      newest = report.date;
    }
  }
  return support;
}

std::string report_to_json(const HostIdentity& host, const PluginRecord& record, bool full, const std::string& date) {
  ordered_json plugin = ordered_json::parse(record_to_json(record));
  for (const char* local : {"path", "source", "history", "notes", "loaded_files", "output", "from_cache", "is_place"})
    plugin.erase(local);
  for (auto& device : plugin["devices"]) device.erase("uuid"), device.erase("pci_bus_id"), device.erase("numa_node");
  for (auto& unit : plugin["units"]) unit.erase("size_classes");
  const std::string objection = objection_to(record);
  const ordered_json out = {{"schema", 1},
                            {"document", "conformance_report"},
                            {"date", date},
                            {"full", full},
                            {"counts", objection.empty()},
                            {"objection", objection},
                            {"host", {{"version", host.version}, {"abi", host.abi}}},
                            {"plugin", std::move(plugin)}};
  return in_lines(out, "") + "\n";
}

}  // namespace rlk::loader
