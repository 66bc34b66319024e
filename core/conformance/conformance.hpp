// Proves implementations numerically: cases generated from the declarations, run through the plugin's own tables,
// compared with the fp64 golden reference. The smoke test at load is a small subset of the same engine.
#pragma once

#include <rlk/abi.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace rlk::core {

// What is verified, and what dispatch asks for: a call is allowed when every one of its features (and the empty
// feature, the plain call) is verified for its dtype and the variant that the implementation would use.
struct UnitResult {
  std::string op;
  std::string implementation;
  std::string dtype;    // of the first dtype variable: "bf16"
  std::string feature;  // "" is the plain call; otherwise one word of features_of(): "softcap", "causal=on"
  std::string variant;
  enum class Verdict { verified, failed, declined } verdict = Verdict::declined;
  uint32_t numerics = 0;         // RLK_NUMERICS_* that were verified
  double worst_error_ratio = 0;  // worst |difference| / allowed over all elements: 1 is the limit of `tolerance`
  // Worst |difference| in ulp of the output dtype, at the golden value or the root mean square of its row where that is
  // larger; where terms cancel, in fp32 roundings of the intermediates: how many roundings away from golden.
  double worst_error_ulp = 0;
  // How far results that cannot cancel lean towards zero, in half ulps of the 16-bit dtype: 0.35 is the limit, 0.7 what
  // truncation gives. For the reader of a run's output: records do not keep it.
  double worst_shrinkage = 0;
  int cases = 0;  // that were run: 0 where a canary stood for the unit
  // Of a verified unit: what was not tried whole here ("CONDUCT_IN_PART", kCanary, kReported), mostly empty.
  std::string reason_code;  // failed, declined: "WRONG_RESULT", "NOT_WRITTEN", "RED_ZONE", "NONDETERMINISTIC", ...
  std::string reason;       // the first failing case: what was seen, where, what was expected
  // The plain unit: what sizes, with which features, were tried, or compared at run time (conformance/sample.hpp).
  std::vector<uint32_t> size_classes{};
};

// reason_code of a unit that is verified because the build's tests verified it, and a canary passed here.
inline constexpr const char* kCanary = "CANARY";
// reason_code of a unit that is verified because a recorded report of the same file on the same kind of card says so,
// and a canary of its operator passed here.
inline constexpr const char* kReported = "REPORT";
// reason_code of a unit that was not tried because its plans were still being compiled.
inline constexpr const char* kNotReady = "NOT_READY";
// reason_code of a declined unit, of no dtype, that stands for an implementation whose operator has not been tried yet.
inline constexpr const char* kWaiting = "WAITING";
// The same; once it was tried, it was silent for so long that other operators were tried before it.
inline constexpr const char* kPutOff = "PUT_OFF";
inline bool is_waiting(const UnitResult& unit) {
  return unit.verdict == UnitResult::Verdict::declined && (unit.reason_code == kWaiting || unit.reason_code == kPutOff);
}
bool is_put_off(const std::vector<UnitResult>& units, const std::string& op);

struct ShownCase;  // core/conformance/shown_case.hpp
namespace conformance {
class Answers;  // core/conformance/answers.hpp
}

struct Target {
  const rlk_plugin* plugin = nullptr;
  rlk_plugin_device* device = nullptr;  // of the plugin under test
  // Whose memory and streams: the same, or for an operators-only plugin those of the backend's own plugin.
  const rlk_plugin* owner = nullptr;
  rlk_plugin_device* owner_device = nullptr;
  rlk_plugin_instance* owner_instance = nullptr;  // for extensions (graph capture); may be nullptr
  uint32_t owner_flags = 0;                       // RLK_DEVICE_* of the owner's device
  uint64_t owner_memory_bytes = 0;                // of the owner's device, as described; 0: not known
  // Called with true before the plugin is asked for a plan and with false when it has answered: making one may take
  // longer than everything else. May be empty.
  std::function<void(bool)> planning = nullptr;
};

struct ConformanceOptions {
  bool smoke = true;  // the small subset; false: all shapes, pairs of features, switches, replay from a graph
  // Of the subset only one call of each operator, dtype, form, implementation and variant, at a size that fills
  // vectors. The units are those of the subset, with the classes that the implementation claims for its cases. Only for
  // an implementation whose whole subset the build's tests have tried, on a device that threads use at the same time.
  bool canary = false;
  bool device = true;            // first whether the device keeps its promises; false where that was seen before
  std::vector<std::string> ops;  // only these operators, in this order; empty: all
  std::string dtype;             // only this dtype of the first variable; empty: all
  std::string only;              // only cases with these words in their title (as progress has it); empty: all
  int64_t most_elements = 0;     // only cases with so many elements in their tensors at most; 0: all
  // Only cases for which this is true, with their title. May be empty.
  std::function<bool(const rlk_implementation&, const std::string&)> picks;
  // Not the generated cases but so many of each operator and dtype that are drawn at random, with the seed:
  // random_calls.hpp. 0: the generated ones.
  int64_t random_calls = 0;
  bool graph_replay = false;  // also run every capturable case captured and replayed
  // Elements of the largest calls that are tried beside the cases, as far as the device's memory goes: large.hpp. 0:
  // none.
  int64_t large_elements = 0;
  // 0: none. When it passes, what was not run stays unverified ("BUDGET"). Waiting for a processor does not count
  // (processor_wait.hpp).
  double budget_s = 0;
  bool one_failure = false;  // an implementation that has failed once is not tried further
  // That try operators and dtypes at the same time, each on a stream of its own. 0: as many as fit this machine where
  // nothing speaks against it. A fault that shows between threads may then have the code of another one.
  unsigned threads = 1;
  uint64_t seed = 1;
  // Called before every case ("logp fused bf16 softcap N=5,V=37"): heartbeat, breadcrumb. Of several threads at once it
  // names what each is at ("A, or B"), one call after the other. May be empty.
  std::function<void(const std::string&)> progress;
  // Called with the units of an operator as soon as all its dtypes were tried, one call after the other, and not while
  // progress is. What shows when the device is given back is in the result alone. May be empty.
  std::function<void(const std::string& op, std::vector<UnitResult> units)> tried;
  // Called after every case that failed, and of the cases that `only` names after every one. May be empty.
  std::function<void(const ShownCase&)> show;
  // Golden's answers that runs share, for runs of the same cases one after the other; nullptr: this run's own.
  std::shared_ptr<conformance::Answers> answers = nullptr;
};

// Runs everything that the target's implementations claim. Never throws; a failing plugin is a failed unit.
// [one caller at a time per device]
std::vector<UnitResult> run_conformance(const Target& target, const ConformanceOptions& options);

}  // namespace rlk::core
