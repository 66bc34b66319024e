// Whose reports rlk believes, what must be the same, and what a unit of a report says here.
#include "loader/probe/standing_report.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <system_error>
#include <utility>

#include "loader/store/file.hpp"
#include "loader/store/report.hpp"
#include "loader/store/seed.hpp"
#include "loader/store/sha256.hpp"

namespace rlk::loader {
namespace {

using core::UnitResult;

// "580" of "580.159.04".
std::string branch_of(const std::string& version) {
  return version.substr(0, version.find('.'));
}

// Of the driver the branch counts, since its releases only fix faults; of a library that computes, the version.
std::set<std::string> versions_of(const PluginRecord& record) {
  std::set<std::string> versions;
  for (const Evidence& item : record.evidence) {
    if (item.kind == "driver_version") versions.insert(item.kind + " " + branch_of(item.value));
    if (item.kind == "runtime_version" || item.kind == "library_version") versions.insert(item.kind + " " + item.value);
  }
  return versions;
}

std::set<std::pair<std::string, std::string>> kinds_of(const PluginRecord& record) {
  std::set<std::pair<std::string, std::string>> kinds;
  for (const DeviceInfo& device : record.devices) kinds.emplace(device.name, device.arch);
  return kinds;
}

bool is_same_unit(const UnitResult& a, const UnitResult& b) {
  return a.op == b.op && a.implementation == b.implementation && a.dtype == b.dtype && a.feature == b.feature &&
         a.variant == b.variant;
}

}  // namespace

bool uses_reports_of(const Environment& environment, bool* use) {
  const std::string value = environment.get("RLK_REPORTS").value_or("use");
  *use = value != "ignore";
  return value == "use" || value == "ignore";
}

ReportShelf::ReportShelf(const Environment& environment, const Identity& identity, const AllowList& allowed,
                         Store* store)
    : identity_(identity), allowed_(allowed), store_(store) {
  uses_reports_of(environment, &use_);
}

std::vector<ReportShelf::Candidate> ReportShelf::candidates(const PluginRecord& record,
                                                            std::vector<std::string>* notes) const {
  std::vector<Candidate> found;
  if (!use_ || record.path.empty()) return found;
  const auto pass_over = [&](const std::string& path, const std::string& why) {
    if (notes != nullptr) notes->push_back(fmt::format("the report {} stands for nothing: {}", path, why));
  };
  for (const std::string& named : reports_beside(record.path, record.id)) {
    std::error_code none;
    const std::string path = std::filesystem::canonical(named, none);
    if (none) continue;
    if (const TrustResult trust = check_trust(path, identity_); trust.problem != nullptr) {
      pass_over(path, "another user could replace it: " + trust.text);
      continue;
    }
    const auto sha256 = sha256_of(store_, path);
    const auto refusal = allowed_.mode == AllowMode::require ? allowed_.refuse(path, sha256) : std::nullopt;
    if (refusal) {
      pass_over(path, *refusal);
    } else if (sha256) {
      found.push_back({path.substr(path.rfind('/') + 1), *sha256, {}, path});
    }
  }
  if (store_->seed() == nullptr) return found;
  for (const auto& [name, text] : store_->seed()->entries_of_prefix(fmt::format("{}{}-", kReportPrefix, record.id))) {
    Sha256 hash;
    hash.add(text);
    const std::string sha256 = hash.finish(), path = store_->seed()->path() + ": " + name;
    const auto refusal = allowed_.mode == AllowMode::require ? allowed_.refuse(path, sha256) : std::nullopt;
    if (refusal) {
      pass_over(path, *refusal);
    } else {
      found.push_back({name, sha256, text, {}});
    }
  }
  return found;
}

std::vector<std::string> ReportShelf::identities(const PluginRecord& record) const {
  std::vector<std::string> identities;
  for (const Candidate& candidate : candidates(record, nullptr)) identities.push_back("report " + candidate.sha256);
  return identities;
}

std::vector<StandingReport> ReportShelf::reports_of(const PluginRecord& record, const HostIdentity& host,
                                                    std::vector<std::string>* notes) const {
  std::vector<StandingReport> standing;
  const std::vector<Candidate> found = candidates(record, notes);
  if (found.empty()) return standing;
  const std::string content = sha256_of(store_, record.path).value_or("");
  for (const Candidate& candidate : found) {
    auto report = candidate.path.empty() ? report_of_text(candidate.text) : read_report(candidate.path);
    if (!report || report->record.id != record.id || report->plugin_sha256 != content || content.empty()) continue;
    if (report->host.version != host.version || report->host.abi != host.abi) continue;
    if (!objection_to(report->record).empty()) continue;
    standing.push_back({fmt::format("{} of {}", candidate.name, report->date), std::move(report->record)});
  }
  return standing;
}

const StandingReport* find_standing(const std::vector<StandingReport>& reports, const PluginRecord& record) {
  const auto kinds = kinds_of(record);
  const auto versions = versions_of(record);
  for (const StandingReport& report : reports) {
    const auto tried = kinds_of(report.record);
    if (kinds.empty() || report.record.version != record.version) continue;
    if (std::includes(tried.begin(), tried.end(), kinds.begin(), kinds.end()) && versions == versions_of(report.record))
      return &report;
  }
  return nullptr;
}

std::vector<UnitResult> units_confirmed(const StandingReport& report, const std::string& op,
                                        const std::vector<UnitResult>& canary) {
  std::vector<UnitResult> units;
  for (const UnitResult& unit : report.record.units)
    if (unit.op == op) units.push_back(unit);
  const bool is_covered = std::all_of(canary.begin(), canary.end(), [&](const UnitResult& seen) {
    if (seen.verdict != UnitResult::Verdict::verified) return true;
    return std::any_of(units.begin(), units.end(), [&](const UnitResult& unit) {
      return is_same_unit(unit, seen) && unit.verdict == UnitResult::Verdict::verified;
    });
  });
  if (!is_covered) return {};
  for (UnitResult& unit : units) {
    if (unit.verdict != UnitResult::Verdict::verified) continue;
    unit.reason = fmt::format("tried by the report {}; a canary of its operator on this machine{}{}", report.name,
                              unit.reason.empty() ? "" : "; ", unit.reason);
    unit.reason_code = core::kReported;
  }
  return units;
}

}  // namespace rlk::loader
