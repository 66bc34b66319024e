// The steps of a case run, in the order in which their failures say most.
#include "core/conformance/case_run.hpp"

#include <fmt/core.h>

#include <cstring>

#include "core/conformance/bias.hpp"
#include "core/conformance/classes.hpp"
#include "core/conformance/hints.hpp"
#include "core/declaration/numerics.hpp"

namespace rlk::core::conformance {
namespace {

// As floats of every width the first is NaN and the second finite and large; as an integer the first is -1. What is
// read beyond an end, or from a workspace that was never written, cannot look right under both.
constexpr uint8_t kPoison = 0xff;
constexpr uint8_t kOtherPoison = 0x7b;
// A difference between runs may be rare: a plan that claims to be deterministic is run this often on every case.
constexpr int kRepeats = 3;

class CaseRun {
public:
  CaseRun(Harness& harness, Examples& examples, const rlk_implementation& implementation, const Example& example,
          uint32_t numerics, const Claim& claim, const CaseRunOptions& options)
      : harness_(harness),
        examples_(examples),
        implementation_(implementation),
        example_(example),
        numerics_(numerics),
        claim_(claim),
        options_(options) {}

  Verdict run() {
    Verdict verdict;
    verdict.failure = steps(verdict);
    verdict.quality = quality_;
    return verdict;
  }

private:
  const ConcreteCall& call() const { return example_.call; }
  bool claims(uint32_t bit) const { return (claim_.support.numerics & bit) != 0; }
  bool has_fault() const { return !example_.answer->faults.empty(); }

  // Where nothing may be rounded, `accurate` is what check() judges by.
  bool is_accurate() const { return claims(RLK_NUMERICS_ACCURATE) || !may_round(*call().decl, call().dtypes[0]); }

  // The values of an outcome, under the bounds of the classes that are claimed.
  std::optional<Failure> checked(const Outcome& outcome, uint8_t poison) { return checked(example_, outcome, poison); }
  std::optional<Failure> checked(const Example& example, const Outcome& outcome, uint8_t poison) {
    if (options_.seen != nullptr) *options_.seen = {example.call, *example.answer, outcome.outputs};
    Quality quality;
    std::optional<Failure> failure = check(example.call, *example.answer, outcome, poison, quality);
    quality_.merge(quality);
    if (failure && failure->code == "NOT_WRITTEN") failure->text += when_it_comes(example, poison);
    if (failure) failure->text += hint_for(example.call, outcome, poison);
    if (!failure && is_accurate() && !quality.inaccurate.empty()) {
      failure = Failure{"NOT_ACCURATE", quality.inaccurate + " by the class accurate, which it claims"};
    }
    return failure;
  }

  // Work that is launched on a stream of the plugin's own is not waited for with the call's, and comes too late.
  std::string when_it_comes(const Example& example, uint8_t poison) {
    RunSettings settings;
    settings.poison = poison;
    const Outcome later = harness_.look_again(example.call, settings);
    Quality ignored;
    if (check(example.call, *example.answer, later, poison, ignored)) return {};
    return "; a little later the right result was there: is it launched on the stream that plan_enqueue was given, or "
           "on another one?";
  }

  std::optional<Failure> steps(Verdict& verdict) {
    if (auto failure = harness_.make_plan(implementation_, call(), numerics_, claim_, plan_)) return failure;
    verdict.numerics = RLK_NUMERICS_TOLERANCE;

    RunSettings settings;
    settings.poison = kPoison;
    const Outcome first = harness_.run(plan_, call(), settings);
    if (auto failure = checked(first, kPoison)) return failure;
    if (is_accurate()) verdict.numerics |= RLK_NUMERICS_ACCURATE;
    if (example_.spec.content == Content::positive) {
      if (auto failure = check_bias(call(), *example_.answer, first, quality_)) return failure;
    }
    // Where no arithmetic is specified there is nothing to be the same as, and the claim earns nothing.
    if (claims(RLK_NUMERICS_PORTABLE) && call().decl->portable && has_elements()) {
      if (auto failure = check_portable(call(), *example_.answer, first)) return failure;
      verdict.numerics |= RLK_NUMERICS_PORTABLE;
    }

    settings.poison = kOtherPoison;
    settings.prepare = false;
    if (example_.spec.brief) {
      // Large calls are brief ones, and what differs from run to run often does so in large ones alone.
      if (!claims(RLK_NUMERICS_DETERMINISTIC)) return std::nullopt;
      const Outcome again = harness_.run(plan_, call(), settings);
      return again.failure ? again.failure : same_bits(first, again, "run to run", "NONDETERMINISTIC");
    }

    if (options_.other_data) {
      if (auto failure = other_data_through_the_plan()) return failure;
    }

    settings.poll = true;
    for (int repeat = 1; repeat < (claims(RLK_NUMERICS_DETERMINISTIC) ? kRepeats : 2); ++repeat) {
      const Outcome again = harness_.run(plan_, call(), settings);
      if (auto failure = checked(again, settings.poison)) return failure;
      if (!claims(RLK_NUMERICS_DETERMINISTIC)) continue;
      if (auto failure = same_bits(first, again, "run to run", "NONDETERMINISTIC")) return failure;
      settings.poison = static_cast<uint8_t>(settings.poison ^ (kPoison ^ kOtherPoison));
    }
    if (claims(RLK_NUMERICS_DETERMINISTIC) && has_elements()) verdict.numerics |= RLK_NUMERICS_DETERMINISTIC;

    if (claims(RLK_NUMERICS_BATCH_INVARIANT) && !has_fault()) {
      bool tried = false;
      if (auto failure = parts(first, tried)) return failure;
      if (tried) verdict.numerics |= RLK_NUMERICS_BATCH_INVARIANT;
    }
    if (options_.graph_replay && harness_.can_capture() && !has_fault() &&
        (plan_.info().flags & RLK_PLAN_CAPTURABLE) != 0) {
      return from_a_graph(first);
    }
    return std::nullopt;
  }

  bool has_elements() const {
    for (const Argument& output : call().outputs) {
      if (output.present && output.count() > 0) return true;
    }
    return false;
  }

  std::optional<Failure> same_bits(const Outcome& a, const Outcome& b, const char* what, const char* code) const {
    for (size_t i = 0; i < call().outputs.size(); ++i) {
      if (!call().outputs[i].present) continue;
      const std::string difference = first_difference(call(), i, a.outputs[i], b.outputs[i]);
      if (!difference.empty()) return Failure{code, fmt::format("{}, expected the same bits {}", difference, what)};
    }
    return std::nullopt;
  }

  // Other data, and other sizes where the plan says it serves them: nothing of the first call may show. After a data
  // error it also proves that the error does not stick.
  std::optional<Failure> other_data_through_the_plan() {
    Case other = example_.spec;
    other.content = Content::ordinary;
    bool strided = other.misaligned_by != 0;
    for (const Variation& v : other.variations) strided |= v.layout != Layout::contiguous;
    const rlk_plan_info& info = plan_.info();
    // A plan for strided tensors may know their strides, which follow from the sizes.
    if (!strided) other = with_other_sizes(other, info.dynamic_symbols, info.symbol_min, info.symbol_max);
    const std::shared_ptr<const Example> example = examples_.get(other, true);
    if (example == nullptr) return std::nullopt;
    RunSettings settings;
    settings.poison = kPoison;
    settings.is_planned = false;
    std::optional<Failure> failure = checked(*example, harness_.run(plan_, example->call, settings), kPoison);
    if (!failure || harness_.broken()) return failure;
    failure->text = fmt::format("with other data through the same plan ({}): {}", example->words, failure->text);

    // Is it the plan, or would the call be wrong with a plan of its own too?
    const Claim claim = harness_.query(implementation_, example->call, numerics_);
    OwnedPlan fresh;
    if (claim.kind != Claim::Kind::accepted ||
        harness_.make_plan(implementation_, example->call, numerics_, claim, fresh)) {
      return failure;
    }
    Quality ignored;
    settings.is_planned = true;
    if (!check(example->call, *example->answer, harness_.run(fresh, example->call, settings), kPoison, ignored)) {
      failure->code = "STALE_PLAN";
      failure->text += "; a plan of its own gives the right result";
    }
    return failure;
  }

  std::optional<Failure> parts(const Outcome& whole, bool& tried) {
    for (const Part& part : parts_of(call(), whole.outputs)) {
      const Claim claim = harness_.query(implementation_, part.call, numerics_);
      if (claim.kind != Claim::Kind::accepted) continue;
      if ((claim.support.numerics & RLK_NUMERICS_BATCH_INVARIANT) == 0) continue;
      OwnedPlan plan;
      if (auto failure = harness_.make_plan(implementation_, part.call, numerics_, claim, plan)) return failure;
      RunSettings settings;
      settings.poison = kOtherPoison;
      const Outcome outcome = harness_.run(plan, part.call, settings);
      if (outcome.failure) {
        return Failure{outcome.failure->code, fmt::format("with {}: {}", part.name, outcome.failure->text)};
      }
      if (auto failure = compare_part(part, outcome)) return failure;
      tried = true;
    }
    return std::nullopt;
  }

  static std::optional<Failure> compare_part(const Part& part, const Outcome& outcome) {
    for (size_t i = 0; i < part.expected.size(); ++i) {
      const Part::Expected& expected = part.expected[i];
      if (!expected.compared) continue;
      std::vector<std::byte> got = outcome.outputs[i];
      const auto element = static_cast<size_t>(size_of(part.call.outputs[i].dtype));
      for (size_t k = 0; k < expected.skip.size(); ++k) {
        if (expected.skip[k]) std::memcpy(got.data() + k * element, expected.bytes.data() + k * element, element);
      }
      const std::string difference = first_difference(part.call, i, expected.bytes, got);
      if (difference.empty()) continue;
      return Failure{"NOT_BATCH_INVARIANT",
                     fmt::format("{} in the whole call and with {}, expected the same bits", difference, part.name)};
    }
    return std::nullopt;
  }

  std::optional<Failure> from_a_graph(const Outcome& first) {
    RunSettings settings;
    settings.poison = kOtherPoison;
    settings.capture = true;
    const Outcome replayed = harness_.run(plan_, call(), settings);
    std::optional<Failure> failure = checked(replayed, kOtherPoison);
    if (!failure && claims(RLK_NUMERICS_DETERMINISTIC)) {
      failure = same_bits(first, replayed, "as without a graph", "NONDETERMINISTIC");
    }
    if (failure) failure->text = "replayed from a graph: " + failure->text;
    return failure;
  }

  Harness& harness_;
  Examples& examples_;
  const rlk_implementation& implementation_;
  const Example& example_;
  uint32_t numerics_;
  const Claim& claim_;
  const CaseRunOptions& options_;
  OwnedPlan plan_;
  Quality quality_;
};

}  // namespace

Verdict try_case(Harness& harness, Examples& examples, const rlk_implementation& implementation, const Example& example,
                 uint32_t numerics, const Claim& claim, const CaseRunOptions& options) {
  return CaseRun(harness, examples, implementation, example, numerics, claim, options).run();
}

}  // namespace rlk::core::conformance
