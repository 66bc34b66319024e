// Runs every operator and dtype of a target, and counts the cases there are.
#include <algorithm>
#include <exception>
#include <iterator>
#include <map>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "core/conformance/conformance.hpp"
#include "core/conformance/device_checks.hpp"
#include "core/conformance/parallel_work.hpp"
#include "core/conformance/schedule.hpp"
#include "core/conformance/subject.hpp"
#include "core/declaration/processor_wait.hpp"

namespace rlk::core {
namespace conformance {
namespace {

constexpr unsigned kMostThreads = 4;

// Of a plugin that throws when a stream or memory is given back. None of its operators is verified.
void fail_all(const std::optional<Failure>& thrown, std::vector<UnitResult>& results) {
  if (!thrown) return;
  for (UnitResult& result : results) {
    if (result.verdict != UnitResult::Verdict::verified) continue;
    result.verdict = UnitResult::Verdict::failed;
    result.reason_code = thrown->code;
    result.reason = thrown->text;
  }
}

UnitResult whole(const rlk_implementation& implementation, UnitResult::Verdict verdict, std::string code,
                 std::string reason) {
  UnitResult result;
  result.op = implementation.op;
  result.implementation = implementation.name;
  result.verdict = verdict;
  result.reason_code = std::move(code);
  result.reason = std::move(reason);
  return result;
}

// Of a device that breaks its promises. None of its operators is verified.
UnitResult device_unit(const Target& target, const Failure& failure) {
  UnitResult result;
  result.op = "device";
  result.implementation = target.plugin->id != nullptr ? target.plugin->id : "";
  result.verdict = UnitResult::Verdict::failed;
  result.reason_code = failure.code;
  result.reason = failure.text;
  return result;
}

// Not tried: `code` and `reason` for each implementation.
std::vector<UnitResult> untried(const Subject& subject, const std::string& code, const std::string& reason) {
  std::vector<UnitResult> results;
  for (const rlk_implementation* implementation : *subject.implementations) {
    results.push_back(whole(*implementation, UnitResult::Verdict::declined, code, reason));
    results.back().dtype = unit_dtype_name(*subject.decl, static_cast<size_t>(subject.dtype_choice));
  }
  return results;
}

// A smoke test spends its time in waiting for short calls and in looking at their results, so several threads share it.
// Each also has threads that compute golden answers ahead. A replay captures streams, which a device may forbid while
// another thread allocates memory; large calls need the memory of all; and `picks` and `show` are one thread's.
unsigned threads_for(const ConformanceOptions& options) {
  const unsigned processors = std::thread::hardware_concurrency();
  if (options.canary) return std::min(processors, kMostThreads);
  if (options.threads > 0) return options.threads;
  const bool alone = !options.smoke || options.graph_replay || options.large_elements > 0 || options.picks ||
                     options.show || options.one_failure;
  return alone ? 1 : std::clamp(processors / Examples::kMostThreads, 1u, kMostThreads);
}

// Subjects have nothing to do with each other: each thread has a stream and memory of its own.
class SubjectRuns {
public:
  SubjectRuns(const Target& target, const std::vector<Subject>& subjects, const ConformanceOptions& options)
      : target_(target),
        subjects_(subjects),
        options_(options),
        answers_(options.answers != nullptr ? options.answers : std::make_shared<Answers>()),
        found_(subjects.size()) {
    for (const Subject& subject : subjects) ++untried_dtypes_[subject.decl];
  }

  void append_to(std::vector<UnitResult>& results) {
    if (subjects_.empty()) return;  // the device may be broken: nothing is made on it
    on_threads(threads_for(options_), subjects_.size(), [this](const auto& next) { work(next); });
    for (std::vector<UnitResult>& list : found_) {
      fail_all(thrown_, list);
      std::move(list.begin(), list.end(), std::back_inserter(results));
    }
  }

private:
  template <class Next>
  void work(const Next& next) {
    ConformanceOptions mine = options_;
    std::string told;
    mine.progress = [&](const std::string& what) { tell(what, told); };
    Harness harness(target_);
    if (auto failure = harness.start()) throw std::runtime_error(failure->text);
    Surroundings around(target_, options_.smoke);
    Examples examples(options_.seed, answers_);
    const Budget budget(options_.budget_s);
    for (size_t i = next(); i < subjects_.size(); i = next()) {
      if (const auto broken = why_broken()) {
        found_[i] = untried(subjects_[i], broken->code, "not tried, because of what came before: " + broken->text);
      } else if (budget.is_used_up()) {  // what is not tried need not be enumerated, which for many takes long
        found_[i] = untried(subjects_[i], "BUDGET", budget_passed(options_));
      } else {
        found_[i] = try_subject(subjects_[i], harness, around, examples, mine, budget);
      }
      if (harness.broken()) note(harness.broken(), broken_);
      end(*subjects_[i].decl);
    }
    tell({}, told);
    note(harness.finish(), thrown_);
    note(around.finish(), thrown_);
  }

  // Should the process end, each of what is under way may be the reason.
  void tell(const std::string& what, std::string& told) {
    const std::lock_guard lock(mutex_);
    if (const auto at = under_way_.find(std::exchange(told, what)); at != under_way_.end()) under_way_.erase(at);
    if (!what.empty()) under_way_.insert(what);
    std::string all;
    for (const std::string& one : under_way_) all += (all.empty() ? "" : ", or ") + one;
    if (options_.progress && !all.empty()) options_.progress(all);
  }

  // Of a dtype of the operator.
  void end(const OpDecl& decl) {
    const std::lock_guard lock(mutex_);
    if (--untried_dtypes_[&decl] > 0 || !options_.tried) return;
    std::vector<UnitResult> units;
    for (size_t i = 0; i < subjects_.size(); ++i)
      if (subjects_[i].decl == &decl) units.insert(units.end(), found_[i].begin(), found_[i].end());
    options_.tried(decl.name, std::move(units));
  }

  // The first one counts.
  void note(std::optional<Failure> failure, std::optional<Failure>& of_all) {
    const std::lock_guard lock(mutex_);
    if (!of_all) of_all = std::move(failure);
  }
  std::optional<Failure> why_broken() {
    const std::lock_guard lock(mutex_);
    return broken_;
  }

  const Target& target_;
  const std::vector<Subject>& subjects_;
  const ConformanceOptions& options_;
  const std::shared_ptr<Answers> answers_;      // of all threads
  std::vector<std::vector<UnitResult>> found_;  // by subject
  std::mutex mutex_;                            // of what follows
  std::optional<Failure> broken_, thrown_;
  std::multiset<std::string> under_way_;
  std::map<const OpDecl*, int> untried_dtypes_;
};

bool is_asked_for(const ConformanceOptions& options, const std::string& op) {
  return options.ops.empty() || std::find(options.ops.begin(), options.ops.end(), op) != options.ops.end();
}

std::vector<const OpDecl*> in_order(const ConformanceOptions& options) {
  std::vector<const OpDecl*> order;
  if (options.ops.empty())
    for (const OpDecl& decl : declarations()) order.push_back(&decl);
  for (const std::string& op : options.ops)
    if (const OpDecl* decl = find_declaration(op)) order.push_back(decl);
  return order;
}

void run_all(const Target& target, const ConformanceOptions& options, std::vector<UnitResult>& results) {
  std::map<std::string, std::vector<const rlk_implementation*>> by_op;
  for (uint32_t i = 0; i < target.plugin->n_implementations; ++i) {
    const rlk_implementation* implementation = target.plugin->implementations[i];
    if (!is_asked_for(options, implementation->op)) continue;
    const OpDecl* decl = find_declaration(implementation->op);
    if (decl != nullptr && has_golden(*decl)) {
      by_op[implementation->op].push_back(implementation);
    } else {
      results.push_back(whole(*implementation, UnitResult::Verdict::declined, "UNKNOWN_OPERATOR",
                              "this host has no declaration or no golden reference of " +
                                  std::string(implementation->op) + ", so nothing can be verified"));
    }
  }
  if (options.progress) options.progress("device");
  std::optional<Failure> broken;
  if (!options.canary && options.device) broken = device_checks(target, options.smoke);
  if (broken) results.push_back(device_unit(target, *broken));
  if (!broken) broken = Harness(target).start();
  std::vector<Subject> subjects;
  for (const OpDecl* declared : in_order(options)) {
    const OpDecl& decl = *declared;
    const auto found = by_op.find(decl.name);
    if (found == by_op.end()) continue;
    for (size_t d = 0; d < unit_dtype_count(decl); ++d) {
      const char* dtype = unit_dtype_name(decl, d);
      if (!options.dtype.empty() && options.dtype != dtype) continue;
      if (broken) {
        for (const rlk_implementation* implementation : found->second) {
          results.push_back(whole(*implementation, UnitResult::Verdict::failed, broken->code, broken->text));
          results.back().dtype = dtype;
        }
        continue;
      }
      subjects.push_back({&decl, static_cast<int>(d), &found->second});
    }
  }
  SubjectRuns(target, subjects, options).append_to(results);
}

}  // namespace
}  // namespace conformance

std::vector<UnitResult> run_conformance(const Target& target, const ConformanceOptions& options) {
  std::vector<UnitResult> results;
  const auto stopped = [&](const std::string& why) {
    UnitResult& result =
        results.emplace_back(conformance::device_unit(target, {"ENGINE", "the conformance engine stopped: " + why}));
    result.op = "engine";
  };
  try {
    conformance::run_all(target, options, results);
  } catch (const std::exception& e) {
    stopped(e.what());
  } catch (...) {
    stopped("an exception of unknown type left the plugin");
  }
  return results;
}

bool is_put_off(const std::vector<UnitResult>& units, const std::string& op) {
  return std::any_of(units.begin(), units.end(),
                     [&](const UnitResult& unit) { return unit.op == op && unit.reason_code == kPutOff; });
}

}  // namespace rlk::core
