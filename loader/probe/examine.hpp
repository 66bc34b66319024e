// The probe itself: takes one screened plugin through load, negotiate, create, probe, enumerate, query and smoke.
// Runs in the prober's child process; in the host only with RLK_PROBE=inprocess.
#pragma once

#include <rlk/abi.h>

#include <functional>
#include <string>
#include <vector>

#include "loader/probe/standing_report.hpp"
#include "loader/store/record.hpp"

namespace rlk::loader {

// The phases, in order, by the names that budgets and messages use. "owner" comes after probe for operators-only
// plugins: the backend's own plugin is loaded to lend its device. "smoke" tries the device, and all operators but where
// they are tried one after another, which is a phase of its own.
inline constexpr const char* kPhases[] = {"load",      "negotiate", "create", "probe",    "owner",
                                          "enumerate", "query",     "smoke",  "operators"};

// A plugin that may own the devices of a backend. An empty path means the built-in of that id.
struct OwnerCandidate {
  std::string id;
  std::string path;
};

struct ExamineOptions {
  const rlk_host* host = nullptr;
  std::vector<OwnerCandidate> owners;  // of the plugin's backend, in search order
  // Which cases run: the smoke test unless changed; when a canary fails, everything after it. Budget and progress are
  // ours.
  core::ConformanceOptions suite;
  double smoke_seconds = 0.0;  // what is not reached in this time stays unverified; 0: no limit
  // One operator after another, and what is not reached waits. The units that the record has already stay, but for
  // those of `operators`, which are tried in this order; an empty list means all in the plugin's order, but the wanted
  // ones before the others and the device before all.
  bool by_operator = false;
  std::vector<std::string> operators, wanted;
  // By operator: one of these that is about such devices stands for the trial of what it names, and a canary confirms
  // it, unless something of the plugin has failed already.
  std::vector<StandingReport> reports;
  Place place = Place::child;
  std::function<void(const std::string& phase)> on_phase;
  std::function<void(const std::string& activity)> on_activity;  // before each case of the smoke test
  std::function<void(const PluginRecord&)> on_progress;          // what is known so far, should the next step crash
};

// `record` is screened (its path is loaded) or stands for a built-in (empty path, its id is looked up). Ends in
// smoke_tested, partial or rejected.
void examine(PluginRecord* record, const ExamineOptions& options);

// Combines the results of the same units on several devices: verified is what all of them verified.
std::vector<core::UnitResult> merge_units(const std::vector<std::vector<core::UnitResult>>& per_device);

// Decides the state that a list of unit results means.
void conclude(PluginRecord* record, Place place);

}  // namespace rlk::loader
