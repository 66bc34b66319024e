// Reports that stand for a smoke test: the same suite has tried the very same file on the same kind of card with the
// same branch of the driver, on hardware, and failed nothing. A canary of each operator confirms it on this machine;
// one that fails ends the report's standing, and everything is tried.
#pragma once

#include <string>
#include <vector>

#include "loader/discover/environment.hpp"
#include "loader/screen/allow.hpp"
#include "loader/screen/trust.hpp"
#include "loader/store/record.hpp"
#include "loader/store/store.hpp"

namespace rlk::loader {

struct StandingReport {
  std::string name;  // what units and notes call it: "h200.json of 2026-11-28"
  PluginRecord record;
};

// RLK_REPORTS: "use", the default, or "ignore". False, with `use` true, when the value is neither.
bool uses_reports_of(const Environment& environment, bool* use);

// What may stand for the trial of a plugin's file: beside it, or in the store's seed.
class ReportShelf {
public:
  // All outlive the shelf. The allow-list, where it is required, must name a report too.
  ReportShelf(const Environment& environment, const Identity& identity, const AllowList& allowed, Store* store);

  // A line for each report that rlk believes, which changes when its content does: verdicts depend on them.
  std::vector<std::string> identities(const PluginRecord& record) const;
  // Those that are about this very file and count. `notes` gets a line for each that is passed over for its owner.
  std::vector<StandingReport> reports_of(const PluginRecord& record, const HostIdentity& host,
                                         std::vector<std::string>* notes) const;

private:
  struct Candidate {
    std::string name, sha256, text;  // text only where it was not read from a file
    std::string path;
  };
  std::vector<Candidate> candidates(const PluginRecord& record, std::vector<std::string>* notes) const;

  const Identity& identity_;
  const AllowList& allowed_;
  Store* store_;
  bool use_ = true;
};

// The first that was made on the same kinds of devices, by the same branch of the driver and the same versions of
// libraries, as the record's evidence tells; nullptr: there is none.
const StandingReport* find_standing(const std::vector<StandingReport>& reports, const PluginRecord& record);

// The report's units of an operator, which say what they rest on; none where a unit that the canary verified is not
// verified there too.
std::vector<core::UnitResult> units_confirmed(const StandingReport& report, const std::string& op,
                                              const std::vector<core::UnitResult>& canary);

}  // namespace rlk::loader
