// One probe in a child process, seen from the parent: what is asked, and what the child's end means for the record.
#pragma once

#include <atomic>
#include <functional>
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

// The test itself stops then, before it would be killed. Scaled, as the phases are.
inline constexpr double kSmokeSeconds = 200.0;

struct ChildProbe {
  std::string prober;  // absolute path of the executable
  Environment environment;
  double scale = 1.0;  // of all time budgets
  std::vector<OwnerCandidate> owners;
  bool canary = false;  // of a built-in: only a canary is tried
  // One operator after another, as ExamineOptions has it: some of those that wait, or all for a first look.
  bool by_operator = false;
  std::vector<std::string> operators, wanted;
  std::vector<StandingReport> reports{};
  double smoke_seconds = kSmokeSeconds;  // for all operators
  // By operator: when it answers true between the first operator's begin and the last one's end, the rest waits.
  std::function<bool()> enough = nullptr;
  // Once, when the plugin has reported its devices and nothing of them was tried.
  std::function<void(const PluginRecord&)> on_devices = nullptr;
  // By operator: what would be said of the plugin if the child ended now, after each of them.
  std::function<void(const PluginRecord&)> on_tried = nullptr;
  const std::atomic<bool>* cancel = nullptr;
};

// Takes a screened (or built-in) record to smoke_tested, partial, rejected or deferred. Its units are what is known.
// By operator, one that shows no sign of life is put off while others wait, and fails when it is tried again. False
// when operators were to be tried and the child did not come so far: what was known of the others before is not touched
// by it.
bool probe_in_child(const ChildProbe& probe, PluginRecord* record);

// The request as the prober reads it. False with `error` when the text is none.
std::string encode_request(const PluginRecord& record, const ChildProbe& probe);
bool decode_request(const std::string& text, PluginRecord* record, ExamineOptions* options, std::string* error);

}  // namespace rlk::loader
