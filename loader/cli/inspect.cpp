// `rlk-plugins inspect` and `scope`: all that is known of one plugin; what exactly of it is verified.
#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

#include "core/declaration/numerics.hpp"
#include "loader/cli/call.hpp"
#include "loader/cli/child.hpp"
#include "loader/cli/documents.hpp"
#include "loader/cli/output.hpp"
#include "loader/cli/report.hpp"
#include "loader/cli/template.hpp"
#include "loader/cli/verbs.hpp"
#include "loader/store/support.hpp"

namespace rlk::cli {
namespace {

using core::UnitResult;
using loader::PluginRecord;

void field(const char* name, const std::string& value) {
  if (!value.empty()) std::fprintf(output(), "%-10s %s\n", name, printable(value).c_str());
}

std::string time_text(int64_t unix_us) {
  const std::time_t seconds = unix_us / 1000000;
  std::tm local = {};
  localtime_r(&seconds, &local);
  char text[64];
  const size_t size = std::strftime(text, sizeof(text), "%F %T", &local);
  std::snprintf(text + size, sizeof(text) - size, ".%03d", static_cast<int>(unix_us / 1000 % 1000));
  return text;
}

std::string milliseconds_text(int64_t us) {
  char text[32];
  std::snprintf(text, sizeof(text), us < 100000 ? "%.2f" : "%.0f", static_cast<double>(us) / 1000.0);
  return text;
}

void print_history(const PluginRecord& record) {
  Table table({"state", "where", "when", "after ms", "reason"});
  int64_t before = record.history.empty() ? 0 : record.history.front().unix_us;
  for (const loader::StateChange& change : record.history) {
    table.row({std::string(to_string(change.state)), std::string(to_string(change.place)), time_text(change.unix_us),
               milliseconds_text(change.unix_us - before), change.reason_code});
    before = change.unix_us;
  }
  if (!table.empty()) {
    std::fprintf(output(), "\n");
    table.print();
  }
}

void print_findings(const PluginRecord& record) {
  Table evidence({"evidence", "value", "speaks"});
  for (const loader::Evidence& item : record.evidence)
    evidence.row({item.kind, item.value, item.supports > 0 ? "for" : item.supports == 0 ? "against" : "for neither"});
  if (!evidence.empty()) {
    std::fprintf(output(), "\n");
    evidence.print();
  }
  Table devices({"device", "name", "arch", "memory"});
  for (const loader::DeviceInfo& device : record.devices)
    devices.row({std::to_string(device.index), device.name, device.arch, bytes_text(device.memory_bytes)});
  if (!devices.empty()) {
    std::fprintf(output(), "\n");
    devices.print();
  }
}

int run_inspect(const Arguments& arguments) {
  const Judgement judgement = judge_plugins({});
  const PluginRecord& record = find_record(judgement.records, arguments.operand(0));
  const loader::Support support = support_of(record);
  if (arguments.json()) {
    nlohmann::ordered_json out = {{"schema", 1}, {"tier", support.tier()}, {"tier_reason", support.reason}};
    out.update(nlohmann::ordered_json::parse(record_to_json(record)));
    std::fprintf(output(), "%s\n", out.dump().c_str());
    return record.broken ? kBroken : kFine;
  }
  field("plugin", record.id);
  field("backend", record.backend);
  field("version", record.version);
  field("abi", record.abi);
  field("path", record.path);
  field("source", record.source);
  std::fprintf(output(), "%-10s %s%s\n", "state", coloured(to_string(record.state), tone_of(record)).c_str(),
               record.from_cache ? ", remembered from an earlier probe" : "");
  field("support", fmt::format("{}: {}", support.tier(), support.reason));
  field("reason", reason_text(record));
  field("hint", record.reason_code.empty() ? "" : record.hint);
  field("tried", record.tried);
  for (const std::string& note : record.notes) field("note", note);
  if (const std::string tried = tried_text(record); !tried.empty()) field("note", tried);
  print_history(record);
  print_findings(record);
  if (!record.units.empty()) std::fprintf(output(), "\n");
  print_operators(record);
  print_failures(record);
  if (!record.output.empty())
    std::fprintf(output(), "\nlast words it printed while it was probed:\n%s", wrapped(record.output, 4).c_str());
  return record.broken ? kBroken : kFine;
}

// "TADB 0.71, 0.9 ulp": the classes by their first letters, the worst error over the allowed one, and in ulp.
std::string cell_text(const UnitResult& unit) {
  if (unit.verdict == UnitResult::Verdict::failed) return "FAILED";
  if (unit.verdict == UnitResult::Verdict::declined) return "declined";
  std::string classes;
  for (const core::NumericsClass& one : core::numerics_classes())
    if ((unit.numerics & one.bit) != 0) classes += one.letter;
  if (unit.cases == 0) return classes + " at build";
  return fmt::format("{} {}, {} ulp", classes, number_text(unit.worst_error_ratio), number_text(unit.worst_error_ulp));
}

void print_scope(const PluginRecord& record) {
  using Block = std::tuple<std::string, std::string, std::string>;  // operator, implementation, variant
  std::vector<Block> blocks;
  std::map<Block, std::map<std::string, std::map<std::string, const UnitResult*>>> cells;  // feature, dtype
  for (const UnitResult& unit : record.units) {
    const Block block{unit.op, unit.implementation, unit.variant};
    if (cells.find(block) == cells.end()) blocks.push_back(block);
    cells[block][unit.feature][unit.dtype] = &unit;
  }
  for (const Block& block : blocks) {
    const auto& [op, implementation, variant] = block;
    std::fprintf(output(), "%s %s%s%s\n", op.c_str(), implementation.c_str(), variant.empty() ? "" : ", variant ",
                 variant.c_str());
    std::set<std::string> dtypes;
    for (const auto& [feature, row] : cells[block])
      for (const auto& [dtype, unit] : row) dtypes.insert(dtype);
    std::vector<std::string> header = {"feature"};
    header.insert(header.end(), dtypes.begin(), dtypes.end());
    Table table(header);
    for (const auto& [feature, row] : cells[block]) {
      std::vector<Cell> line = {feature.empty() ? Cell("(plain call)") : Cell(feature)};
      for (const std::string& dtype : dtypes) {
        const auto unit = row.find(dtype);
        if (unit == row.end()) {
          line.emplace_back("not tried", Tone::faint);
          continue;
        }
        const bool verified = unit->second->verdict == UnitResult::Verdict::verified;
        const bool failed = unit->second->verdict == UnitResult::Verdict::failed;
        line.emplace_back(cell_text(*unit->second), verified ? Tone::good : failed ? Tone::bad : Tone::faint);
      }
      table.row(std::move(line));
    }
    table.print();
    std::fprintf(output(), "\n");
  }
}

int run_scope(const Arguments& arguments) {
  const Judgement judgement = judge_plugins({});
  const PluginRecord& record = find_record(judgement.records, arguments.operand(0));
  const int code = record.broken ? kBroken : kFine;
  if (arguments.has("template")) {
    std::fprintf(output(), "%s", filled_template(record).c_str());
    return code;
  }
  if (arguments.json()) {
    print_document(scope_document(record));
    return code;
  }
  if (record.units.empty()) {
    std::fprintf(output(), "%s has no units: it is %s%s\n", record.id.c_str(),
                 std::string(to_string(record.state)).c_str(),
                 record.reason_code.empty() ? "" : printable(", " + reason_text(record)).c_str());
    return code;
  }
  print_scope(record);
  if (const std::string tried = tried_text(record); !tried.empty())
    std::fprintf(output(), "%s", wrapped(tried + ". \"at build\": not tried on this machine.", 0).c_str());
  std::fprintf(
      output(), "%s",
      wrapped(
          "T tolerance, A accurate, D deterministic, B batch invariant, P portable; the numbers are the worst error "
          "against the golden reference, over what tolerance allows (1 is the limit) and in ulp. A call is taken "
          "when the plain call and each of its features are verified for its dtype.",
          0)
          .c_str());
  print_failures(record);
  return code;
}

}  // namespace

nlohmann::ordered_json scope_document(const PluginRecord& record) {
  nlohmann::ordered_json full = nlohmann::ordered_json::parse(record_to_json(record));
  for (auto& unit : full.at("units")) unit.erase("size_classes");  // numbers that mean nothing to a reader
  return {{"schema", 1}, {"id", record.id}, {"tried", record.tried}, {"units", full.at("units")}};
}

Verb verb_inspect() {
  return {"inspect",
          "All that is known of one plugin: its way through the states, evidence, devices, operators, failures.",
          "",
          "rlk-plugins inspect cpu",
          {{"ID", true}},
          {},
          run_inspect};
}

Verb verb_scope() {
  return {"scope",
          "What exactly of a plugin is verified: operator, implementation, variant, feature, dtype.",
          "",
          "rlk-plugins scope cpu",
          {{"ID", true}},
          {{"template", nullptr, "fill in the checklist for an issue about a platform, in Markdown"}},
          run_scope};
}

}  // namespace rlk::cli
