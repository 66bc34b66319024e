// A record as JSON and back, with its units as JSON for people, as text of their own (unit_text.hpp) for the prober's
// protocol and the cache; and a shorter form for `list --json`.
#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>

#include "core/declaration/numerics.hpp"
#include "loader/store/exact_text.hpp"
#include "loader/store/record.hpp"
#include "loader/store/support.hpp"
#include "loader/store/unit_text.hpp"

namespace rlk::loader {
namespace {

using core::UnitResult;
using nlohmann::json;
using nlohmann::ordered_json;

std::string dump(const ordered_json& value) {
  return value.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

ordered_json devices_json(const PluginRecord& record) {
  ordered_json list = ordered_json::array();
  for (const DeviceInfo& device : record.devices) {
    list.push_back({{"index", device.index},
                    {"name", device.name},
                    {"arch", device.arch},
                    {"memory_bytes", device.memory_bytes},
                    {"uuid", device.uuid},
                    {"pci_bus_id", device.pci_bus_id},
                    {"numa_node", device.numa_node < 0 ? ordered_json(nullptr) : ordered_json(device.numa_node)}});
  }
  return list;
}

ordered_json evidence_json(const PluginRecord& record) {
  ordered_json list = ordered_json::array();
  for (const Evidence& item : record.evidence)
    list.push_back({{"kind", item.kind},
                    {"value", item.value},
                    {"supports", item.supports < 0 ? ordered_json(nullptr) : ordered_json(item.supports != 0)}});
  return list;
}

// Numbers of 8 hexadecimal digits, one after the other.
std::string text_of_classes(const std::vector<uint32_t>& classes) {
  std::string text;
  char digits[9];
  for (const uint32_t number : classes) {
    std::snprintf(digits, sizeof(digits), "%08x", number);
    text += digits;
  }
  return text;
}
std::vector<uint32_t> classes_of_text(const std::string& text) {
  std::vector<uint32_t> classes;
  for (size_t at = 0; at + 8 <= text.size(); at += 8) {
    uint32_t number = 0;
    if (std::from_chars(text.data() + at, text.data() + at + 8, number, 16).ptr != text.data() + at + 8) break;
    classes.push_back(number);
  }
  return classes;
}

constexpr std::string_view kVerdicts[] = {"verified", "failed", "declined"};

// JSON has no infinity: null stands for it.
ordered_json number_json(double number) {
  return std::isfinite(number) ? ordered_json(number) : ordered_json(nullptr);
}

// Nothing was measured where nothing was run.
bool is_untried(const UnitResult& unit) {
  return unit.cases == 0 && unit.reason_code == core::kCanary;
}

ordered_json unit_json(const UnitResult& unit) {
  const auto measured = [&](double number) { return is_untried(unit) ? ordered_json(nullptr) : number_json(number); };
  ordered_json out = {{"op", unit.op},
                      {"implementation", unit.implementation},
                      {"dtype", unit.dtype},
                      {"feature", unit.feature},
                      {"variant", unit.variant},
                      {"verdict", kVerdicts[static_cast<size_t>(unit.verdict)]},
                      {"numerics", core::names_of_numerics(unit.numerics)},
                      {"cases", unit.cases},
                      {"worst_error_ratio", measured(unit.worst_error_ratio)},
                      {"worst_error_ulp", measured(unit.worst_error_ulp)},
                      {"reason_code", unit.reason_code},
                      {"reason", unit.reason}};
  if (!unit.size_classes.empty()) out["size_classes"] = text_of_classes(unit.size_classes);
  return out;
}

// The members that `list` and the full form share, in the order of the published schema.
ordered_json summary_json(const PluginRecord& record) {
  return {{"id", record.id},
          {"backend", record.backend},
          {"version", record.version},
          {"abi", record.abi},
          {"state", to_string(record.state)},
          {"reason_code", record.reason_code},
          {"reason", shown(record.reason)},
          {"hint", shown(record.hint)},
          {"broken", record.broken},
          {"path", shown(record.path)},
          {"source", shown(record.source)},
          {"tried", record.tried},
          {"devices", devices_json(record)},
          {"evidence", evidence_json(record)}};
}

// Readers: a member that is absent or of the wrong type keeps the default. A record is made of these alone, so what
// comes in from a child or a file is either a complete record or an error, never half of one.
void read(const json& from, const char* name, std::string* out) {
  if (auto it = from.find(name); it != from.end() && it->is_string()) *out = it->get<std::string>();
}
void read(const json& from, const char* name, bool* out) {
  if (auto it = from.find(name); it != from.end() && it->is_boolean()) *out = it->get<bool>();
}
template <class Integer>
void read_integer(const json& from, const char* name, Integer* out) {
  if (auto it = from.find(name); it != from.end() && it->is_number_integer()) *out = it->get<Integer>();
}
void read(const json& from, const char* name, std::vector<std::string>* out) {
  auto it = from.find(name);
  if (it == from.end() || !it->is_array()) return;
  for (const json& item : *it)
    if (item.is_string() || item.is_object()) out->push_back(exact_text(item));
}
template <class Enum>
bool read_enum(const json& from, const char* name, Enum* out, std::string* error) {
  std::string text;
  read(from, name, &text);
  if (parse(text, out)) return true;
  *error = fmt::format("member \"{}\" has the unknown value \"{}\"", name, text);
  return false;
}
template <class Function>
bool for_each_object(const json& from, const char* name, std::string* error, Function&& function) {
  auto it = from.find(name);
  if (it == from.end()) return true;
  if (!it->is_array()) {
    *error = std::string("member \"") + name + "\" is not an array";
    return false;
  }
  for (const json& item : *it) {
    if (!item.is_object()) {
      *error = std::string("member \"") + name + "\" contains something that is not an object";
      return false;
    }
    if (!function(item)) return false;
  }
  return true;
}

double read_number(const json& from, const char* name) {
  const auto it = from.find(name);
  return it != from.end() && it->is_number() ? it->get<double>() : std::numeric_limits<double>::infinity();
}

bool read_unit(const json& from, UnitResult* unit, std::string* error) {
  read(from, "op", &unit->op);
  read(from, "implementation", &unit->implementation);
  read(from, "dtype", &unit->dtype);
  read(from, "feature", &unit->feature);
  read(from, "variant", &unit->variant);
  std::vector<std::string> classes;
  read(from, "numerics", &classes);
  for (const std::string& name : classes) unit->numerics |= core::numerics_of_name(name);
  read_integer(from, "cases", &unit->cases);
  read(from, "reason_code", &unit->reason_code);
  read(from, "reason", &unit->reason);
  if (!is_untried(*unit)) {
    unit->worst_error_ratio = read_number(from, "worst_error_ratio");
    unit->worst_error_ulp = read_number(from, "worst_error_ulp");
  }
  std::string size_classes;
  read(from, "size_classes", &size_classes);
  unit->size_classes = classes_of_text(size_classes);
  std::string verdict;
  read(from, "verdict", &verdict);
  const auto known = std::find(std::begin(kVerdicts), std::end(kVerdicts), verdict);
  if (unit->op.empty() || known == std::end(kVerdicts)) {
    *error = fmt::format("a unit has the operator \"{}\" and the verdict \"{}\"", unit->op, verdict);
    return false;
  }
  unit->verdict = static_cast<UnitResult::Verdict>(known - std::begin(kVerdicts));
  return true;
}

bool read_record(const json& from, PluginRecord* record, std::string* error) {
  read(from, "id", &record->id);
  read(from, "backend", &record->backend);
  read(from, "version", &record->version);
  read(from, "abi", &record->abi);
  read(from, "reason_code", &record->reason_code);
  read(from, "reason", &record->reason);
  read(from, "hint", &record->hint);
  read(from, "broken", &record->broken);
  if (from.contains("path")) record->path = exact_text(from["path"]);
  read(from, "source", &record->source);
  read(from, "tried", &record->tried);
  read(from, "notes", &record->notes);
  read(from, "loaded_files", &record->loaded_files);
  read(from, "output", &record->output);
  read(from, "from_cache", &record->from_cache);
  read(from, "is_place", &record->is_place);
  if (!read_enum(from, "state", &record->state, error)) return false;
  return for_each_object(from, "history", error,
                         [&](const json& item) {
                           StateChange& change = record->history.emplace_back();
                           read_integer(item, "unix_us", &change.unix_us);
                           read(item, "reason_code", &change.reason_code);
                           return read_enum(item, "state", &change.state, error) &&
                                  read_enum(item, "place", &change.place, error);
                         }) &&
         for_each_object(from, "devices", error,
                         [&](const json& item) {
                           DeviceInfo& device = record->devices.emplace_back();
                           read_integer(item, "index", &device.index);
                           read(item, "name", &device.name);
                           read(item, "arch", &device.arch);
                           read_integer(item, "memory_bytes", &device.memory_bytes);
                           read(item, "uuid", &device.uuid);
                           read(item, "pci_bus_id", &device.pci_bus_id);
                           read_integer(item, "numa_node", &device.numa_node);
                           return true;
                         }) &&
         for_each_object(from, "evidence", error,
                         [&](const json& item) {
                           Evidence& evidence = record->evidence.emplace_back();
                           read(item, "kind", &evidence.kind);
                           read(item, "value", &evidence.value);
                           bool supports = false;
                           read(item, "supports", &supports);
                           evidence.supports = item.contains("supports") && item["supports"].is_null() ? -1 : supports;
                           return true;
                         }) &&
         for_each_object(from, "units", error,
                         [&](const json& item) { return read_unit(item, &record->units.emplace_back(), error); });
}

// All but the units.
ordered_json head_json(const PluginRecord& record) {
  ordered_json out = summary_json(record);
  out["history"] = ordered_json::array();
  for (const StateChange& change : record.history) {
    out["history"].push_back({{"state", to_string(change.state)},
                              {"place", to_string(change.place)},
                              {"unix_us", change.unix_us},
                              {"reason_code", change.reason_code}});
  }
  for (const auto& [name, texts] : {std::pair("notes", &record.notes), {"loaded_files", &record.loaded_files}}) {
    out[name] = ordered_json::array();
    for (const std::string& text : *texts) out[name].push_back(shown(text));
  }
  out["output"] = record.output;
  out["from_cache"] = record.from_cache;
  out["is_place"] = record.is_place;
  return out;
}

}  // namespace

std::string record_to_json(const PluginRecord& record) {
  ordered_json out = head_json(record);
  out["units"] = ordered_json::array();
  for (const UnitResult& unit : record.units) out["units"].push_back(unit_json(unit));
  return dump(out);
}

std::string record_to_text(const PluginRecord& record) {
  ordered_json head = head_json(record);
  head["path"] = exact_json(record.path);
  head["loaded_files"] = ordered_json::array();
  for (const std::string& file : record.loaded_files) head["loaded_files"].push_back(ordered_json(exact_json(file)));
  return dump(head) + "\n" + units_to_text(record.units);
}

bool record_from_text(std::string_view text, PluginRecord* record, std::string* error) {
  const size_t end = text.find('\n');  // dump() breaks no lines
  PluginRecord fresh;
  if (!record_from_json(text.substr(0, end), &fresh, error)) return false;
  if (end == std::string_view::npos) {
    *error = "the record has no units";
    return false;
  }
  if (!units_from_text(text.substr(end + 1), &fresh.units, error)) return false;
  *record = std::move(fresh);
  return true;
}

bool record_from_json(std::string_view text, PluginRecord* record, std::string* error) {
  return record_from_document(json::parse(text, nullptr, /*allow_exceptions=*/false), record, error);
}

bool record_from_document(const json& document, PluginRecord* record, std::string* error) {
  if (!document.is_object()) {
    *error = "the text is not a JSON object";
    return false;
  }
  PluginRecord fresh;
  if (!read_record(document, &fresh, error)) return false;
  *record = std::move(fresh);
  return true;
}

std::string list_to_json(const HostIdentity& host, const std::vector<PluginRecord>& records, Store* store) {
  ordered_json out = {{"schema", 1}, {"host", {{"version", host.version}, {"abi", host.abi}}}};
  out["plugins"] = ordered_json::array();
  ordered_json places = ordered_json::array();
  for (const PluginRecord& record : records) {
    if (record.is_place) {
      places.push_back({{"path", shown(record.path)},
                        {"source", shown(record.source)},
                        {"reason_code", record.reason_code},
                        {"reason", shown(record.reason)},
                        {"hint", record.hint},
                        {"broken", record.broken}});
      continue;
    }
    ordered_json entry = summary_json(record);
    const Support support = support_of(record, store);
    entry["tier"] = support.tier();
    entry["tier_reason"] = support.reason;
    const OperatorCounts counts = count_operators(record);
    entry["ops"] = {{"verified", counts.verified},
                    {"partial", counts.partial},
                    {"unsupported", counts.unsupported},
                    {"quarantined", counts.quarantined},
                    {"waiting", counts.waiting}};
    out["plugins"].push_back(std::move(entry));
  }
  // Only where there is one: a machine in order has the three members above.
  if (!places.empty()) out["search"] = std::move(places);
  return dump(out);
}

}  // namespace rlk::loader
