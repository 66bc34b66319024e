// What a report holds, when it counts, and where reports are looked for.
#include "loader/store/report.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "loader/store/file.hpp"
#include "loader/store/store.hpp"

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

std::string text_member(const json& object, const char* name) {
  const auto it = object.find(name);
  return it != object.end() && it->is_string() ? it->get<std::string>() : std::string();
}

// The short form in the store: a line of JSON, and the record. The number is raised with what either means.
constexpr const char* kShortPrefix = "report_in_short-1-";
constexpr const char* kNoReport = "none";

std::string short_text_of(const Report& report) {
  const json head = {{"date", report.date},
                     {"version", report.host.version},
                     {"abi", report.host.abi},
                     {"plugin_sha256", report.plugin_sha256}};
  return head.dump(-1, ' ', false, json::error_handler_t::replace) + "\n" + record_to_text(report.record);
}

std::optional<Report> report_of_short_text(std::string_view text) {
  const size_t end = text.find('\n');
  if (end == std::string_view::npos) return std::nullopt;
  const json head = json::parse(text.substr(0, end), nullptr, /*allow_exceptions=*/false);
  if (!head.is_object()) return std::nullopt;
  Report report;
  report.date = text_member(head, "date");
  report.host = {text_member(head, "version"), text_member(head, "abi")};
  report.plugin_sha256 = text_member(head, "plugin_sha256");
  std::string ignored;
  if (!record_from_text(text.substr(end + 1), &report.record, &ignored)) return std::nullopt;
  return report;
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

std::optional<Report> report_of_text(std::string_view text) {
  const json document = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!document.is_object() || document.value("document", json()) != "conformance_report" ||
      document.value("schema", json()) != 1 || !document.contains("plugin") ||
      !document.value("date", json()).is_string())
    return std::nullopt;
  Report report;
  report.date = text_member(document, "date");
  report.plugin_sha256 = text_member(document, "plugin_sha256");
  if (const auto host = document.find("host"); host != document.end() && host->is_object())
    report.host = {text_member(*host, "version"), text_member(*host, "abi")};
  std::string ignored;
  if (!record_from_document(document["plugin"], &report.record, &ignored)) return std::nullopt;
  return report;
}

std::optional<Report> read_report(const std::string& path) {
  const std::optional<std::string> text = read_file(path, kMaxReportBytes);
  return text ? report_of_text(*text) : std::nullopt;
}

std::optional<Report> read_report_in_short(const std::string& path, Store* store) {
  const auto identity = identity_of(path);
  if (!identity) return std::nullopt;
  const std::string name = kShortPrefix + hash_bytes(to_string(*identity));
  if (const auto known = store != nullptr ? store->get(name) : std::nullopt) {
    if (*known == kNoReport) return std::nullopt;
    if (auto report = report_of_short_text(*known)) return report;
  }
  std::optional<Report> report = read_report(path);
  if (report) report->record.units = representative_units(report->record.units);
  if (store != nullptr && is_settled(*identity) && identity_of(path) == identity)
    store->put(name, report ? short_text_of(*report) : kNoReport);
  return report;
}

std::vector<std::string> reports_beside(const std::string& plugin_path, const std::string& id) {
  const std::string folder = plugin_path.substr(0, plugin_path.rfind('/') + 1) + "reports/" + id;
  std::vector<std::string> paths;
  if (plugin_path.empty() || id.find('/') != std::string::npos) return paths;
  const Folder open = open_folder(folder);
  if (open == nullptr) return paths;
  while (const dirent* entry = readdir(open.get())) {
    const std::string name = entry->d_name;
    if (name.size() > 5 && name.compare(name.size() - 5, 5, ".json") == 0) paths.push_back(folder + "/" + name);
  }
  std::sort(paths.begin(), paths.end());
  if (paths.size() > kMaxReports) paths.resize(kMaxReports);
  return paths;
}

std::string on_what(const PluginRecord& record) {
  if (record.devices.empty()) return "no device";
  return (record.devices.size() > 1 ? fmt::format("{} x ", record.devices.size()) : "") + record.devices[0].name;
}

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

std::string report_to_json(const HostIdentity& host, const PluginRecord& record, const std::string& plugin_sha256,
                           bool full, const std::string& date) {
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
                            {"plugin_sha256", plugin_sha256},
                            {"plugin", std::move(plugin)}};
  return in_lines(out, "") + "\n";
}

}  // namespace rlk::loader
