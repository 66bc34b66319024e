// Where a forward is finite, its gradient is finite and right: at the largest numbers of a dtype, at probabilities of
// exactly 0 and 1, and at ratios that overflow. For every loss, for log-probabilities and for attention, with each
// setting of their parameters, some numbers of a generated case are replaced by such ones; a call whose golden forward
// stays finite is judged, golden's own gradient first.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <random>
#include <string>

#include "conformance/hosts.hpp"
#include "conformance/simple/target.hpp"
#include "core/conformance/compare.hpp"
#include "core/conformance/data.hpp"
#include "core/conformance/elements.hpp"
#include "core/conformance/golden_bridge.hpp"
#include "core/conformance/quality.hpp"
#include "core/conformance/schedule.hpp"
#include "loader/host/services.hpp"

extern "C" const rlk_plugin* rlk_cpu_entry_v1(const rlk_host*, rlk_error*);

namespace rlk::test {

using namespace core;
using namespace core::conformance;

namespace {

const OpDecl* forward_of(const OpDecl& backward) {
  for (const OpDecl& decl : declarations()) {
    if (std::string_view(decl.backward) == backward.name) return &decl;
  }
  return nullptr;
}

// Scores are products here: of their factors, and of nothing else, there are large ones.
bool has_products(const OpDecl& decl) {
  return std::string_view(decl.family) == "attention" || std::string_view(decl.name).substr(0, 7) == "linear_";
}
bool takes_edges(const OpDecl& decl, const ArgDecl& input) {
  const Domain kind = input.domain.kind;
  const std::string_view name = input.name;
  if ((kind != Domain::real && kind != Domain::uniform) || name.substr(0, 5) == "grad_") return false;
  const auto ends = [&](std::string_view word) {
    return name.size() >= word.size() && name.substr(name.size() - word.size()) == word;
  };
  return !has_products(decl) || name[0] == 'q' || name[0] == 'k' || ends("hidden") || ends("weight");
}

// What a caller may have there: log-probabilities are 0 at most, products are numbers of fp32, and where a ratio comes
// from a saved lse, that has digits behind the point (the declarations say so).
double edge_of(const OpDecl& decl, const DomainDecl& domain, Dtype dtype, std::mt19937_64& engine) {
  const double largest = largest_of(dtype);
  if (domain.kind == Domain::uniform && domain.max <= 0) return engine() % 2 == 0 ? 0 : -std::min(largest, 1e4);
  const double most = has_products(decl) ? 1e18 : std::string_view(decl.family) == "policy" ? 6e4 : largest;
  const double edges[] = {0, 1e4, 1e10, 1e18, most / 4, most};
  const double edge = std::min({largest, most, edges[engine() % std::size(edges)]});
  return engine() % 2 == 0 ? -edge : edge;
}

// All that is finite in golden is in the outputs' dtypes too.
bool is_finite(const ConcreteCall& call, const Answer& answer) {
  if (!answer.faults.empty()) return false;
  for (size_t i = 0; i < call.outputs.size(); ++i) {
    if (!call.outputs[i].present || !answer.outputs[i].exact.empty()) continue;
    const double largest = largest_of(call.outputs[i].dtype);
    const auto fits = [largest](double value) { return std::fabs(value) <= largest; };
    if (!std::all_of(answer.outputs[i].value.begin(), answer.outputs[i].value.end(), fits)) return false;
  }
  return true;
}

// Whether the inputs of the forward are all here, and not one of its outputs instead (ref_logp of ref_logits).
bool has_forward(const ConcreteCall& call, const OpDecl& forward) {
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    const ArgDecl& input = call.decl->inputs[i];
    if (!call.inputs[i].present || input.domain.kind == Domain::forward) continue;
    for (const ArgDecl& output : forward.outputs) {
      if (std::string_view(output.name) == input.name) return false;
    }
  }
  return std::all_of(forward.inputs.begin(), forward.inputs.end(),
                     [&](const ArgDecl& input) { return input.optional || input_index(*call.decl, input.name) >= 0; });
}

class Edges : public ::testing::TestWithParam<const OpDecl*> {
protected:
  Edges()
      : plugin_(rlk_cpu_entry_v1(loader::host_services(), nullptr)),
        open_(plugin_, serial_host()),
        harness_(open_.target()) {}

  void try_case(const Case& c);
  Outcome run(const ConcreteCall& call);

  const rlk_plugin* plugin_;
  simple::OpenTarget open_;
  Harness harness_;
  int judged_ = 0;
};

Outcome Edges::run(const ConcreteCall& call) {
  constexpr uint32_t kNumerics = RLK_NUMERICS_TOLERANCE;
  Outcome outcome;
  for (uint32_t i = 0; i < plugin_->n_implementations; ++i) {
    const rlk_implementation& implementation = *plugin_->implementations[i];
    if (std::strcmp(implementation.op, call.decl->name) != 0) continue;
    const Claim claim = harness_.query(implementation, call, kNumerics);
    OwnedPlan plan;
    outcome.failure = claim.kind != Claim::Kind::accepted
                          ? Failure{claim.reason_code, claim.reason}
                          : harness_.make_plan(implementation, call, kNumerics, claim, plan);
    return outcome.failure ? outcome : harness_.run(plan, call, {});
  }
  outcome.failure = Failure{"MISSING", "no implementation"};
  return outcome;
}

void Edges::try_case(const Case& c) {
  const OpDecl& forward = *forward_of(*c.decl);
  ConcreteCall call;
  if (!resolve(c, call) || !shows_variations(call) || !has_forward(call, forward)) return;
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    std::mt19937_64 engine(seed);
    fill_inputs(c, seed, call);
    for (size_t i = 0; i < call.inputs.size(); ++i) {
      if (!call.inputs[i].present || !takes_edges(*c.decl, c.decl->inputs[i])) continue;
      const uint64_t every = uint64_t{1} << (engine() % 6);  // one number in so many
      for (int64_t k = 0; k < call.inputs[i].count(); ++k) {
        if (engine() % every != 0 || std::isnan(get(call.inputs[i], k))) continue;
        set(call.inputs[i], k, edge_of(*c.decl, c.decl->inputs[i].domain, call.inputs[i].dtype, engine));
      }
    }
    for (const auto& [input, values] : forward_inputs(call)) {
      for (size_t k = 0; k < values.size(); ++k) set(call.inputs[input], static_cast<int64_t>(k), values[k]);
    }
    const ConcreteCall of_forward = forward_call(call, forward);
    if (!is_finite(of_forward, golden_answer(of_forward))) continue;
    ++judged_;
    const std::string words = std::string(c.decl->name) + " " + describe(c, call) + " seed " + std::to_string(seed);
    const Answer answer = golden_answer(call);
    for (size_t i = 0; i < call.outputs.size(); ++i) {
      for (const double value : answer.outputs[i].value) ASSERT_FALSE(std::isnan(value)) << words << ": golden";
    }
    const Outcome outcome = run(call);
    Quality quality;
    ASSERT_FALSE(outcome.failure) << words << ": " << outcome.failure->text;
    // Rounded products say nothing of the power of large scores: there the gradient has to be finite alone.
    const auto failure =
        has_products(*c.decl) ? std::nullopt : check(call, answer, outcome, RunSettings().poison, quality);
    ASSERT_FALSE(failure) << words << ": " << failure->text;
    for (size_t i = 0; i < call.outputs.size(); ++i) {
      if (!call.outputs[i].present) continue;
      const golden::View got = flat_view(outcome.outputs[i], call.outputs[i].dtype);
      for (int64_t k = 0; k < call.outputs[i].count(); ++k) {
        // What is beyond the dtype is infinite; what golden knows no digit of is a number all the same.
        const bool fits =
            std::fabs(answer.outputs[i].value[static_cast<size_t>(k)]) < largest_of(call.outputs[i].dtype);
        ASSERT_TRUE(!fits || std::isfinite(got.load_at(k))) << words << ": " << element_name(call, i, k);
      }
    }
  }
}

TEST_P(Edges, OfAFiniteForwardTheGradientIsFiniteAndRight) {
  const OpDecl& decl = *GetParam();
  ASSERT_FALSE(harness_.start());
  for (size_t form = 0; form < decl.forms.size(); ++form) {
    for (size_t dtype = 0; dtype < decl.dtypes[0].choices.size(); ++dtype) {
      const Dtype of_case = decl.dtypes[0].choices[dtype].dtype;
      // Where products are vague a weight may be anything up to 1, and its product with a factor beyond 16 bits.
      if (of_case != Dtype::f32 && (of_case != Dtype::f16 || has_products(decl))) continue;
      for (const Case& base : variation_bases(decl, static_cast<int>(dtype), static_cast<int>(form), true)) {
        try_case(base);
        for (const Variation& variation : options_of(decl)) {
          Case c = base;
          c.variations.push_back(variation);
          try_case(c);
          if (HasFatalFailure()) return;
        }
        break;  // the ordinary sizes
      }
    }
  }
  std::printf("%s: %d calls with a finite forward\n", decl.name, judged_);
  EXPECT_GT(judged_, 0);
}

std::vector<const OpDecl*> losses() {
  std::vector<const OpDecl*> list;
  for (const OpDecl& decl : declarations()) {
    const std::string_view family = decl.family, name = decl.name;
    const bool of_states = name == "linear_logp_backward" || name == "linear_cross_entropy_backward";
    // In linear_jsd the logarithm of a quotient of probabilities is a score, and its product with a factor beyond fp32.
    const bool is_one =
        name != "linear_jsd_backward" && (family == "loss" || family == "policy" || family == "distillation" ||
                                          family == "log_probability" || family == "attention" || of_states);
    if (is_one && forward_of(decl) != nullptr) list.push_back(&decl);
  }
  return list;
}
INSTANTIATE_TEST_SUITE_P(Losses, Edges, ::testing::ValuesIn(losses()),
                         [](const auto& op) { return std::string(op.param->name); });

}  // namespace
}  // namespace rlk::test
