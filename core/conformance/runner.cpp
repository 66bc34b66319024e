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

// Canaries of different subjects have nothing to do with each other: each thread has a stream and memory of its own.
void try_canaries(const Target& target, const std::vector<Subject>& subjects, const ConformanceOptions& options,
                  std::vector<UnitResult>& results) {
  std::vector<std::vector<UnitResult>> found(subjects.size());
  std::mutex mutex;  // of what follows
  std::optional<Failure> thrown;
  std::set<std::string> under_way;  // should the process end here, each of them may be the reason
  const auto tell = [&](const std::string& what, std::string& told) {
    const std::lock_guard lock(mutex);
    under_way.erase(std::exchange(told, what));
    if (!what.empty()) under_way.insert(what);
    std::string all;
    for (const std::string& one : under_way) all += (all.empty() ? "" : ", or ") + one;
    if (options.progress) options.progress(all);
  };
  on_threads(std::min(std::thread::hardware_concurrency(), kMostThreads), subjects.size(), [&](const auto& next) {
    ConformanceOptions mine = options;
    std::string told;
    mine.progress = [&](const std::string& what) { tell(what, told); };
    Harness harness(target);
    if (auto failure = harness.start()) throw std::runtime_error(failure->text);
    Surroundings around(target, options.smoke);
    Examples examples(options.seed);
    const Budget budget(options.budget_s);
    for (size_t i = next(); i < subjects.size(); i = next()) {
      found[i] = try_subject(subjects[i], harness, around, examples, mine, budget);
    }
    std::optional<Failure> mine_thrown = harness.finish();
    if (!mine_thrown) mine_thrown = around.finish();
    tell({}, told);
    const std::lock_guard lock(mutex);
    if (!thrown) thrown = std::move(mine_thrown);
  });
  for (std::vector<UnitResult>& list : found) fail_all(thrown, list);
  for (std::vector<UnitResult>& list : found) std::move(list.begin(), list.end(), std::back_inserter(results));
}

void run_all(const Target& target, const ConformanceOptions& options, std::vector<UnitResult>& results) {
  std::map<std::string, std::vector<const rlk_implementation*>> by_op;
  for (uint32_t i = 0; i < target.plugin->n_implementations; ++i) {
    const rlk_implementation* implementation = target.plugin->implementations[i];
    if (!options.op.empty() && options.op != implementation->op) continue;
    const OpDecl* decl = find_declaration(implementation->op);
    if (decl != nullptr && has_golden(*decl)) {
      by_op[implementation->op].push_back(implementation);
    } else {
      results.push_back(whole(*implementation, UnitResult::Verdict::declined, "UNKNOWN_OPERATOR",
                              "this host has no declaration or no golden reference of " +
                                  std::string(implementation->op) + ", so nothing can be verified"));
    }
  }
  const Budget budget(options.budget_s);
  if (options.progress) options.progress("device");
  std::optional<Failure> broken;
  if (!options.canary && options.device) broken = device_checks(target, options.smoke);
  if (broken) results.push_back(device_unit(target, *broken));
  Harness harness(target);
  if (!broken) broken = harness.start();
  Surroundings around(target, options.smoke);
  Examples examples(options.seed);
  std::vector<Subject> subjects;
  for (const OpDecl& decl : declarations()) {
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
  if (options.canary) return try_canaries(target, subjects, options, results);
  for (const Subject& subject : subjects) {
    if (budget.is_used_up()) {  // what is not tried need not be enumerated, which for many operators takes long
      for (const rlk_implementation* implementation : *subject.implementations) {
        results.push_back(whole(*implementation, UnitResult::Verdict::declined, "BUDGET", budget_passed(options)));
        results.back().dtype = unit_dtype_name(*subject.decl, static_cast<size_t>(subject.dtype_choice));
      }
      continue;
    }
    for (UnitResult& result : try_subject(subject, harness, around, examples, options, budget))
      results.push_back(std::move(result));
  }
  std::optional<Failure> thrown = harness.finish();
  if (!thrown) thrown = around.finish();
  fail_all(thrown, results);
}

int count(const OpDecl& decl, bool smoke) {
  std::set<std::string> words;
  for (size_t d = 0; d < unit_dtype_count(decl); ++d) {
    for (size_t form = 0; form < decl.forms.size(); ++form) {
      schedule(decl, static_cast<int>(d), static_cast<int>(form), smoke ? Extent::smoke : Extent::full, {}, 1,
               [&](const Case& c, Stage) {
                 ConcreteCall call;
                 if (resolve(c, call)) words.insert(describe(c, call));
                 return std::vector<std::string>{""};
               });
    }
  }
  return static_cast<int>(words.size());
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

std::vector<CaseCount> count_cases() {
  std::vector<CaseCount> counts;
  for (const OpDecl& decl : declarations()) {
    counts.push_back({decl.name, conformance::count(decl, true), conformance::count(decl, false)});
  }
  return counts;
}

}  // namespace rlk::core
