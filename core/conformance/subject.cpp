// Collects the cases that the implementations accept, runs them, shrinks what failed, and sums up.
#include "core/conformance/subject.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <exception>
#include <map>
#include <memory>
#include <new>
#include <set>
#include <tuple>
#include <utility>

#include "core/conformance/accepted_cases.hpp"
#include "core/conformance/canary.hpp"
#include "core/conformance/case_run.hpp"
#include "core/conformance/large.hpp"
#include "core/conformance/layouts.hpp"
#include "core/conformance/make_shown_case.hpp"
#include "core/conformance/random_calls.hpp"
#include "core/conformance/sample.hpp"
#include "core/conformance/schedule.hpp"
#include "core/conformance/sizes.hpp"
#include "core/conformance/units.hpp"

namespace rlk::core::conformance {
namespace {

constexpr double kLargeSeconds = 60;

Extent extent_of(const ConformanceOptions& options) {
  return options.canary ? Extent::outline : options.smoke ? Extent::smoke : Extent::full;
}

// Whether the words stand in the text, whole: "N=5,V=37" has no "N=5,V=3".
bool has_words(const std::string& text, const std::string& words) {
  return (" " + text + " ").find(" " + words + " ") != std::string::npos;
}

class Run {
public:
  Run(const Subject& subject, Harness& harness, Surroundings& around, Examples& examples,
      const ConformanceOptions& options, const Budget& budget)
      : decl_(*subject.decl),
        dtype_choice_(subject.dtype_choice),
        implementations_(*subject.implementations),
        harness_(harness),
        around_(around),
        examples_(examples),
        options_(options),
        budget_(budget),
        units_(implementations_.size()),
        has_failed_(implementations_.size()),
        large_notes_(implementations_.size()),
        accepted_(decl_, dtype_choice_, implementations_, harness, extent_of(options), options.seed,
                  [this](size_t i, const Work& work, const Claim& claim) { refuse(i, work, claim); }) {}

  // Asks for every case.
  void collect() {
    if (options_.random_calls > 0) return draw();
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
  void draw() {
    for (const Case& c : random_cases(decl_, dtype_choice_, options_.random_calls, options_.seed)) {
      for (size_t i = 0; i < implementations_.size(); ++i) accepted_.offer(i, c, Stage::together);
    }
  }

  // What lies beyond a switch that no test reaches is another algorithm, which the suite has not tried.
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
    if (options_.most_elements > 0 && elements_of(work.call) > options_.most_elements) return false;
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
      if (options_.progress) options_.progress(what);  // silence is the plugin's, not the reference's
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

}  // namespace

std::vector<UnitResult> try_subject(const Subject& subject, Harness& harness, Surroundings& around, Examples& examples,
                                    const ConformanceOptions& options, const Budget& budget) {
  Run run(subject, harness, around, examples, options, budget);
  run.collect();
  return run.results();
}

std::string budget_passed(const ConformanceOptions& options) {
  return "not tried: the budget of " + std::to_string(options.budget_s) + " s had passed";
}

}  // namespace rlk::core::conformance
