// One probe in a child process, seen from the parent: what is asked, and what the child's end means for the record.
#pragma once

#include <atomic>
#include <string>
#include <vector>

#include "loader/discover/environment.hpp"
#include "loader/probe/examine.hpp"
#include "loader/probe/process.hpp"
#include "loader/store/record.hpp"

namespace rlk::loader {

// RLK_PROBE_TIMEOUT in seconds over its default; 1 when unset or not a positive number.
double timeout_scale_of(const Environment& environment);
// The same; false when the variable is set to something else than a positive number.
bool timeout_scale_of(const Environment& environment, double* scale);
inline constexpr double kDefaultProbeTimeoutSeconds = 60.0;
std::vector<PhaseBudget> phase_budgets(double scale);

// The prober's executable: RLK_PROBER, or bin/ or libexec/rlk/ beside the folder of this library, or where the build
// installs it. Empty when there is none.
std::string find_prober(const Environment& environment);

struct ChildProbe {
  std::string prober;  // absolute path of the executable
  Environment environment;
  double scale = 1.0;  // of all time budgets
  std::vector<OwnerCandidate> owners;
  bool canary = false;  // of a built-in: only a canary is tried
  const std::atomic<bool>* cancel = nullptr;
};

// Takes a screened (or built-in) record to smoke_tested, partial, rejected or deferred.
void probe_in_child(const ChildProbe& probe, PluginRecord* record);

// The request as the prober reads it. False with `error` when the text is none.
std::string encode_request(const PluginRecord& record, const std::vector<OwnerCandidate>& owners, double smoke_seconds,
                           bool canary = false);
bool decode_request(const std::string& text, PluginRecord* record, ExamineOptions* options, std::string* error);

}  // namespace rlk::loader
