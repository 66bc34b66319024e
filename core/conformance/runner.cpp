// Runs the schedule of every operator, dtype and implementation of a target, and counts the cases there are.
#include <fmt/core.h>

#include <algorithm>
#include <exception>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <set>
#include <stdexcept>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "core/conformance/accepted_cases.hpp"
#include "core/conformance/canary.hpp"
#include "core/conformance/case_run.hpp"
#include "core/conformance/conformance.hpp"
#include "core/conformance/device_checks.hpp"
#include "core/conformance/large.hpp"
#include "core/conformance/layouts.hpp"
#include "core/conformance/make_shown_case.hpp"
#include "core/conformance/parallel_work.hpp"
#include "core/conformance/plan_reuse.hpp"
#include "core/conformance/sample.hpp"
#include "core/conformance/schedule.hpp"
#include "core/conformance/units.hpp"
#include "core/declaration/processor_wait.hpp"

namespace rlk::core {
namespace conformance {
namespace {

constexpr unsigned kMostThreads = 4;
constexpr double kLargeSeconds = 60;

Extent extent_of(const ConformanceOptions& options) {
  return options.canary ? Extent::outline : options.smoke ? Extent::smoke : Extent::full;
}

std::string budget_passed(const ConformanceOptions& options) {
  return "not tried: the budget of " + std::to_string(options.budget_s) + " s had passed";
}

// Whether the words stand in the text, whole: "N=5,V=37" has no "N=5,V=3".
bool has_words(const std::string& text, const std::string& words) {
  return (" " + text + " ").find(" " + words + " ") != std::string::npos;
}

// One operator and dtype, all implementations of it: a golden answer serves them all.
class Run {
public:
  Run(const OpDecl& decl, int dtype_choice, const std::vector<const rlk_implementation*>& implementations,
      Harness& harness, Surroundings& around, Examples& examples, const ConformanceOptions& options,
      const Budget& budget)
      : decl_(decl),
        dtype_choice_(dtype_choice),
        implementations_(implementations),
        harness_(harness),
        around_(around),
        examples_(examples),
        options_(options),
        budget_(budget),
        units_(implementations.size()),
        has_failed_(implementations.size()),
        large_notes_(implementations.size()),
        accepted_(decl, dtype_choice, implementations, harness, extent_of(options), options.seed,
                  [this](size_t i, const Work& work, const Claim& claim) { refuse(i, work, claim); }) {}

  // Asks for every case.
  void collect() {
    accepted_.walk();
    if (options_.canary) keep_canaries();
  }

  // Of what was collected.
  std::vector<UnitResult> results() {
    work_all();
    shrink();
    work_all();
    for (size_t i = 0; i < implementations_.size() && options_.large_elements > 0; ++i) try_large_calls(i);
    std::vector<UnitResult> list;
    for (size_t i = 0; i < implementations_.size(); ++i) {
      for (UnitResult& result : units_[i].results()) {
        result.op = decl_.name;
        result.implementation = implementations_[i]->name;
        result.dtype = dtype_name();
        add_large_note(i, result);
        list.push_back(std::move(result));
      }
      add_untested_switches(*implementations_[i], list);
    }
    return list;
  }

private:
  // What lies beyond a switch that no test reaches is another algorithm, which nobody has tried.
  void add_untested_switches(const rlk_implementation& implementation, std::vector<UnitResult>& list) const {
    for (uint32_t i = 0; i < implementation.n_switches; ++i) {
      const rlk_switch* change = implementation.switches[i];
      if (change == nullptr || is_tested(decl_, dtype_choice_, *change)) continue;
      UnitResult& result = list.emplace_back();
      result.op = decl_.name;
      result.implementation = implementation.name;
      result.dtype = dtype_name();
      const std::string symbol = change->symbol != nullptr ? change->symbol : "";
      result.feature = fmt::format("switch:{}={}", symbol, change->at);
      result.reason_code = "SWITCH_UNTESTED";
      result.reason =
          fmt::format("the algorithm changes at {} = {}, which no test reaches: what lies beyond is not verified",
                      symbol.empty() ? "a size of no symbol" : symbol, change->at);
    }
  }

  const char* dtype_name() const { return unit_dtype_name(decl_, static_cast<size_t>(dtype_choice_)); }

  // One job of each kind stays; the others are taken as passed, with what they claim.
  void keep_canaries() {
    std::vector<int64_t> worth;
    for (const Work& work : accepted_.work()) worth.push_back(worth_as_canary(work.spec, work.call));
    using Kind = std::tuple<size_t, int, std::string, uint32_t>;  // implementation, form, variant, classes
    const auto kind_of = [&](const Work& work, const Job& job) {
      return Kind(job.implementation, work.spec.form, job.claim.variant, job.claim.support.numerics);
    };
    std::map<Kind, size_t> chosen;  // of the work
    for (size_t w = 0; w < accepted_.work().size(); ++w) {
      const Work& work = accepted_.work()[w];
      for (const Job& job : work.jobs) {
        const auto [at, is_new] = chosen.emplace(kind_of(work, job), w);
        if (!is_new && worth[w] > worth[at->second]) at->second = w;
      }
    }
    for (size_t w = 0; w < accepted_.work().size(); ++w) {
      Work& work = accepted_.work()[w];
      std::vector<Job> kept;
      for (Job& job : work.jobs) {
        if (chosen.at(kind_of(work, job)) == w) {
          kept.push_back(std::move(job));
          continue;
        }
        Event event;
        event.kind = Event::Kind::passed;
        event.tried = false;
        event.variant = job.claim.variant;
        event.words = work.features;
        event.numerics = earned_by(work.spec, work.call, job.claim.support.numerics);
        event.size_class = class_of(work);
        units_[job.implementation].add(std::move(event));
      }
      work.jobs = std::move(kept);
    }
  }

  void refuse(size_t i, const Work& work, const Claim& claim) {
    Event event;
    event.words = work.features;
    event.code = claim.reason_code;
    event.reason = claim.reason;
    if (claim.kind == Claim::Kind::failed) {
      event.kind = Event::Kind::failed;
      event.reason = title(i, work) + ": " + claim.reason;
    }
    units_[i].add(std::move(event));
  }

  std::string title(size_t i, const Work& work) const {
    return fmt::format("{} {} {}", decl_.name, implementations_[i]->name, work.words);
  }

  void work_all() {
    std::vector<Work*> order;
    for (Work& work : accepted_.work()) order.push_back(&work);
    std::stable_sort(order.begin(), order.end(), [](const Work* a, const Work* b) { return a->stage < b->stage; });
    std::vector<Case> upcoming;
    for (Work* work : order) {
      std::erase_if(work->jobs, [&](const Job& job) { return !is_asked_for(*work, job); });
      if (!work->jobs.empty() && !options_.canary)
        upcoming.push_back(work->spec);  // canaries have threads of their own
    }
    examples_.expect(upcoming);
    for (Work* work : order) {
      for (const Job& job : std::exchange(work->jobs, {})) run(*work, job);
    }
    examples_.expect({});
  }

  bool is_asked_for(const Work& work, const Job& job) const {
    if (options_.only.empty() && !options_.picks) return true;
    const std::string what = title(job.implementation, work);
    return (options_.only.empty() || has_words(what, options_.only)) &&
           (!options_.picks || options_.picks(*implementations_[job.implementation], what));
  }

  void run(const Work& work, const Job& job) {
    Units& units = units_[job.implementation];
    if (options_.one_failure && has_failed_[job.implementation]) return;
    if (units.is_known_to_fail(job.claim.variant, work.features)) return;
    Event event;
    event.variant = job.claim.variant;
    event.words = work.features;
    if (harness_.broken()) {
      event.kind = Event::Kind::unrun;
      event.code = harness_.broken()->code;
      event.reason = "not tried, because of what came before: " + harness_.broken()->text;
    } else if (budget_.is_used_up()) {
      event.kind = Event::Kind::unrun;
      event.code = "BUDGET";
      event.reason = budget_passed(options_);
    } else {
      try_it(work, job, event);
    }
    units.add(std::move(event));
  }

  // Beside the cases, which end where memory for them and for their right answers is cheap.
  void try_large_calls(size_t i) {
    // Two dtypes have the time that it takes; what is left to see of the others comes cheaply, or is left.
    const double seconds = dtype_choice_ < 2 ? kLargeSeconds : kLargeSeconds / 10;
    LargeOptions options{options_.large_elements, seconds, {}, options_.progress};
    options.is_asked_for = [&](const std::string& title) {
      return (options_.only.empty() || has_words(title, options_.only)) &&
             (!options_.picks || options_.picks(*implementations_[i], title));
    };
    for (size_t form = 0; form < decl_.forms.size(); ++form) {
      if (has_failed_[i] || harness_.broken() || budget_.is_used_up()) return;
      std::optional<LargeCaseRun> large;
      try {
        large =
            try_large(harness_, examples_, *implementations_[i], decl_, dtype_choice_, static_cast<int>(form), options);
      } catch (const std::exception& e) {
        large.emplace().failure = Failure{"EXCEPTION", e.what()};
      }
      if (large) note_large(i, std::move(*large));
    }
  }

  void note_large(size_t i, LargeCaseRun large) {
    large_notes_[i] = std::move(large.note);
    if (large.call.decl == nullptr && !large.failure) return;
    Event event;
    event.kind = large.failure ? Event::Kind::failed : Event::Kind::passed;
    event.variant = large.variant;
    event.quality = large.quality;
    if (large.call.decl != nullptr) {
      const std::vector<std::string> words = features(large.call);
      event.words = {words.begin(), words.end()};
      event.size_class = class_of(large.call, event.words);
    }
    if (large.failure) {
      event.code = large.failure->code;
      event.reason = large.title + ": " + large.failure->text;
      has_failed_[i] = true;
    }
    units_[i].add(std::move(event));
  }

  // What is verified is not verified there.
  void add_large_note(size_t i, UnitResult& result) const {
    if (large_notes_[i].empty() || !result.feature.empty() || result.verdict != UnitResult::Verdict::verified) return;
    if (result.reason_code.empty()) result.reason_code = "SIZES_IN_PART";
    result.reason += (result.reason.empty() ? "" : "; ") + large_notes_[i];
  }

  static uint32_t class_of(const Work& work) { return class_of(work.call, work.features); }
  static uint32_t class_of(const ConcreteCall& call, const Words& of_call) {
    const Descriptors tensors(call);
    uint32_t alignment = UINT32_MAX;
    for (const auto list : {tensors.inputs(), tensors.outputs()}) {
      for (const rlk_tensor* tensor : list) {
        if (tensor != nullptr) alignment = std::min(alignment, tensor->alignment);
      }
    }
    std::vector<std::string> words(of_call.begin(), of_call.end());
    for (std::string& word : layout_words(tensors.inputs(), tensors.outputs())) words.push_back(std::move(word));
    return size_class(call, alignment, words);
  }

  void try_it(const Work& work, const Job& job, Event& event) {
    const std::string what = title(job.implementation, work);
    if (options_.progress) options_.progress(what);
    Verdict verdict;
    Seen seen;
    try {
      const rlk_implementation& implementation = *implementations_[job.implementation];
      const std::shared_ptr<const Example> example = examples_.get(work.spec, false);
      if (options_.progress) options_.progress(what);  // who watches for silence need not wait for the reference
      event.size_class = class_of(work);
      // A plan that keeps what it should not does so under every instruction set.
      verdict = try_case(harness_, examples_, implementation, *example, job.numerics, job.claim,
                         {options_.graph_replay, !options_.canary, options_.show ? &seen : nullptr});
      if (!verdict.failure && !options_.canary && stands_for_its_variant(job, *example)) {
        PlanReuse reuse =
            try_plan_reuse(harness_, around_, examples_, implementation, *example, job.numerics, job.claim);
        verdict.failure = std::move(reuse.failure);
        if (!reuse.note.empty()) event.code = "CONDUCT_IN_PART";
        event.reason = std::move(reuse.note);
      }
      std::optional<Failure> thrown = harness_.take_thrown();
      if (!thrown) thrown = around_.take_thrown();
      if (!verdict.failure) verdict.failure = std::move(thrown);
    } catch (const std::bad_alloc&) {
      verdict.failure = Failure{"NO_MEMORY", "host memory is exhausted"};
    } catch (const std::exception& e) {
      verdict.failure = Failure{"EXCEPTION", e.what()};
    } catch (...) {
      verdict.failure = Failure{"EXCEPTION", "an exception of unknown type left the plugin"};
    }
    const bool was_not_ready = verdict.failure && verdict.failure->code == kNotReady;
    event.kind = was_not_ready ? Event::Kind::unrun : verdict.failure ? Event::Kind::failed : Event::Kind::passed;
    event.quality = verdict.quality;
    event.numerics = verdict.numerics;
    if (options_.show && seen.call.decl != nullptr && (verdict.failure || !options_.only.empty())) {
      options_.show(shown(what, job.claim.variant, verdict.failure, seen));
    }
    if (!verdict.failure) return;
    event.code = verdict.failure->code;
    event.reason =
        fmt::format("{}{}: {}", what, job.claim.variant.empty() ? "" : " (variant " + job.claim.variant + ")",
                    verdict.failure->text);
    if (was_not_ready) return;
    failed_.push_back({job.implementation, work.spec});
    has_failed_[job.implementation] = true;
  }

  // Reuse of a plan is tried once, with the first ordinary call of the variant.
  bool stands_for_its_variant(const Job& job, const Example& example) {
    if (example.spec.content != Content::ordinary || !shows_variations(example.call)) return false;
    return reuse_tried_.emplace(job.implementation, job.claim.variant, job.claim.support.numerics).second;
  }

  // A failure of many variations together says little: each alone, and its pairs, are tried too.
  void shrink() {
    for (const auto& [implementation, spec] : std::exchange(failed_, {})) {
      for (const Case& alone : each_alone(spec)) accepted_.offer(implementation, alone, Stage::single);
      if (spec.variations.size() < 3) continue;
      for (const Case& pair : pairs_within(spec)) accepted_.offer(implementation, pair, Stage::together);
    }
  }
  const OpDecl& decl_;
  int dtype_choice_;
  const std::vector<const rlk_implementation*>& implementations_;
  Harness& harness_;
  Surroundings& around_;
  Examples& examples_;
  const ConformanceOptions& options_;
  const Budget& budget_;
  std::vector<Units> units_;
  std::vector<bool> has_failed_;          // by implementation
  std::vector<std::string> large_notes_;  // by implementation: how far large calls were tried
  AcceptedCases accepted_;
  std::set<std::tuple<size_t, std::string, uint32_t>> reuse_tried_;  // implementation, variant, classes
  std::vector<std::pair<size_t, Case>> failed_;
};

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

// An operator and dtype, and who has it.
struct Subject {
  const OpDecl* decl;
  int dtype_choice;
  const std::vector<const rlk_implementation*>* implementations;
};

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
      const auto& [decl, dtype, implementations] = subjects[i];
      Run run(*decl, dtype, *implementations, harness, around, examples, mine, budget);
      run.collect();
      found[i] = run.results();
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
  for (const auto& [decl, dtype, implementations] : subjects) {
    if (budget.is_used_up()) {  // what is not tried need not be enumerated, which for many operators takes long
      for (const rlk_implementation* implementation : *implementations) {
        results.push_back(whole(*implementation, UnitResult::Verdict::declined, "BUDGET", budget_passed(options)));
        results.back().dtype = unit_dtype_name(*decl, static_cast<size_t>(dtype));
      }
      continue;
    }
    Run run(*decl, dtype, *implementations, harness, around, examples, options, budget);
    run.collect();
    for (UnitResult& result : run.results()) results.push_back(std::move(result));
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
