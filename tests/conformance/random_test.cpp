// Is the CPU backend right where no generated case looks? Calls drawn at random, every operator against golden, with
// the case run of the conformance engine: bounds, data errors, red zones, run to run, other data through the plan, rows
// alone. Beside it: with another number of threads the bits are the same, what the declaration forbids is refused with
// a text, and shape inference agrees.
//
// RLK_RANDOM_CALLS calls of each operator (default 120) follow from RLK_RANDOM_SEED (default 1); RLK_RANDOM_FIRST is
// the number of the first one, to repeat what failed.
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "conformance/hosts.hpp"
#include "conformance/simple/target.hpp"
#include "core/conformance/case_run.hpp"
#include "core/conformance/data.hpp"
#include "core/conformance/random_calls.hpp"
#include "framework/targets.hpp"
#include "loader/host/services.hpp"

extern "C" const rlk_plugin* rlk_cpu_entry_v1(const rlk_host*, rlk_error*);

namespace rlk::test {

using namespace core;
using namespace core::conformance;

namespace {

int64_t setting(const char* name, int64_t otherwise) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::atoll(text) : otherwise;
}

// Of a call's tensors.
constexpr int64_t kMostBytes = int64_t{64} << 20;
int64_t bytes_of(const ConcreteCall& call) {
  int64_t bytes = 0;
  for (const auto* arguments : {&call.inputs, &call.outputs}) {
    for (const Argument& argument : *arguments) bytes += argument.byte_count();
  }
  return bytes;
}

// ---- what is running, for a crash

char current[400];
void tell_and_die(int signal) {
  const auto ignored = write(STDERR_FILENO, current, std::strlen(current));
  static_cast<void>(ignored);
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

rlk_status validated(const ConcreteCall& call, BoundCall& bound, std::string& text) {
  const Descriptors tensors(call);
  rlk_error error{};
  error.struct_size = sizeof(error);
  const rlk_status status =
      validate(*call.decl, call.params.data(), tensors.inputs(), tensors.outputs(), false, {}, bound, &error);
  text = error.text;
  return status;
}

class RandomCalls : public ::testing::TestWithParam<const OpDecl*> {
protected:
  RandomCalls()
      : plugin_(rlk_cpu_entry_v1(loader::host_services(), nullptr)),
        target_(plugin_, loader::host_services()),
        backwards_target_(plugin_, backwards_host()),
        harness_(target_.target()),
        backwards_(backwards_target_.target()) {
    EXPECT_FALSE(harness_.start());
    EXPECT_FALSE(backwards_.start());
    for (uint32_t i = 0; i < plugin_->n_implementations; ++i) {
      if (std::strcmp(plugin_->implementations[i]->op, GetParam()->name) == 0) {
        implementations_.push_back(plugin_->implementations[i]);
      }
    }
  }

  void try_call(int64_t number, uint64_t seed);
  void expect_refused(const ConcreteCall& call, const std::string& what);
  void try_bad_parameter(Draws& draws, const ConcreteCall& call);
  void expect_inferred(const ConcreteCall& call);
  std::optional<Failure> judge(const Example& example, uint32_t numerics, const rlk_implementation& implementation,
                               uint64_t seed);

  const rlk_plugin* plugin_;
  simple::OpenTarget target_, backwards_target_;
  Harness harness_, backwards_;
  std::vector<const rlk_implementation*> implementations_;
  int64_t tried_ = 0, refused_ = 0;
  double worst_ = 0;
};

void RandomCalls::expect_refused(const ConcreteCall& call, const std::string& what) {
  ++refused_;
  BoundCall bound;
  std::string text;
  EXPECT_EQ(validated(call, bound, text), RLK_INVALID_ARGUMENT) << what;
  EXPECT_NE(text.find(call.decl->name), std::string::npos) << what << ": " << text;
}

void RandomCalls::try_bad_parameter(Draws& draws, const ConcreteCall& call) {
  if (call.decl->params.empty()) return;
  const ParamDecl& param = draws.of(call.decl->params);
  ConcreteCall bad = call;
  const auto write = [&](auto value) { std::memcpy(bad.params.data() + param.offset, &value, sizeof(value)); };
  if (param.type == core::ParamType::enumeration) {
    write(draws.chance(0.5) ? int64_t{-1} : static_cast<int64_t>(std::ssize(param.values)));
  } else if (param.type == core::ParamType::f64 && param.finite && draws.chance(0.5)) {
    write(draws.chance(0.5) ? std::numeric_limits<double>::quiet_NaN() : -std::numeric_limits<double>::infinity());
  } else if (param.has_min && param.type == core::ParamType::f64) {
    write(param.min_exclusive && draws.chance(0.5) ? param.min : param.min - 1);
  } else if (param.has_min) {
    write(static_cast<int64_t>(param.min) - 1);
  } else {
    return;
  }
  expect_refused(bad, std::string("a bad ") + param.name);
}

void RandomCalls::expect_inferred(const ConcreteCall& call) {
  const Descriptors tensors(call);
  std::vector<InferredTensor> inferred;
  const uint64_t wanted = call.present >> 32;
  ASSERT_EQ(infer_outputs(*call.decl, call.params.data(), tensors.inputs(), wanted, inferred, nullptr), RLK_OK);
  ASSERT_EQ(inferred.size(), call.outputs.size());
  for (size_t i = 0; i < inferred.size(); ++i) {
    if (!call.outputs[i].present) continue;
    EXPECT_EQ(inferred[i].shape, call.outputs[i].shape) << call.decl->outputs[i].name;
  }
}

std::optional<Failure> RandomCalls::judge(const Example& example, uint32_t numerics,
                                          const rlk_implementation& implementation, uint64_t seed) {
  const Claim claim = harness_.query(implementation, example.call, numerics);
  if (claim.kind != Claim::Kind::accepted) return Failure{claim.reason_code, claim.reason};
  Examples examples(seed);
  const Verdict verdict = try_case(harness_, examples, implementation, example, numerics, claim);
  worst_ = std::max(worst_, verdict.quality.ratio);
  if (verdict.failure) return verdict.failure;

  const Claim other_claim = backwards_.query(implementation, example.call, numerics);
  OwnedPlan plan, other_plan;
  if (auto failure = harness_.make_plan(implementation, example.call, numerics, claim, plan)) return failure;
  if (auto failure = backwards_.make_plan(implementation, example.call, numerics, other_claim, other_plan))
    return failure;
  const Outcome a = harness_.run(plan, example.call, {}), b = backwards_.run(other_plan, example.call, {});
  if (b.failure) return b.failure;
  for (size_t i = 0; i < example.call.outputs.size(); ++i) {
    if (!example.call.outputs[i].present) continue;
    const std::string difference = first_difference(example.call, i, a.outputs[i], b.outputs[i]);
    if (!difference.empty()) return Failure{"THREADS", difference + " with other threads"};
  }
  return std::nullopt;
}

void RandomCalls::try_call(int64_t number, uint64_t seed) {
  const OpDecl& decl = *GetParam();
  Draws draws(seed_of_call(decl, seed, number));
  RandomCase draft(decl, std::nullopt, draws);
  Example example;
  if (draft.broken_rules(example.call) > 0) expect_refused(example.call, "a broken rule");
  if (!draft.repair()) return;
  example.spec = draft.result();
  ASSERT_TRUE(resolve(example.spec, example.call));

  draw_content(draws, example.spec);
  example.words = describe(example.spec, example.call);
  const std::string text = std::string(decl.name) + " call " + std::to_string(number) + ": " + example.words;
  std::snprintf(current, sizeof(current), "%s\n", text.c_str());
  SCOPED_TRACE(text);
  BoundCall bound;
  std::string refusal;
  ASSERT_EQ(validated(example.call, bound, refusal), RLK_OK) << refusal;
  EXPECT_EQ(bound.symbols, example.call.symbols);
  ASSERT_LE(bytes_of(example.call), kMostBytes);  // many such tests share a machine
  expect_inferred(example.call);
  if (draws.chance(0.3)) try_bad_parameter(draws, example.call);

  fill_inputs(example.spec, static_cast<uint64_t>(draws.below(1 << 30)), example.call);
  example.answer = std::make_shared<const Answer>(golden_answer(example.call));
  const uint32_t numerics = RLK_NUMERICS_TOLERANCE | RLK_NUMERICS_DETERMINISTIC;
  ++tried_;
  for (const rlk_implementation* implementation : implementations_) {
    const auto failure = judge(example, numerics, *implementation, seed);
    if (failure) ADD_FAILURE() << failure->code << ": " << failure->text;
  }
}

TEST_P(RandomCalls, AgreeWithGolden) {
  const auto seed = static_cast<uint64_t>(setting("RLK_RANDOM_SEED", 1));
  const int64_t first = setting("RLK_RANDOM_FIRST", 0), calls = setting("RLK_RANDOM_CALLS", 120);
  for (const int signal : {SIGSEGV, SIGFPE, SIGABRT, SIGBUS, SIGILL}) std::signal(signal, tell_and_die);
  for (int64_t i = first; i < first + calls && !HasFatalFailure(); ++i) try_call(i, seed);
  std::printf("%s: %lld calls, %lld refusals, largest error / allowed %.3f\n", GetParam()->name,
              static_cast<long long>(tried_), static_cast<long long>(refused_), worst_);
  EXPECT_GE(2 * tried_, calls);
}

std::vector<const OpDecl*> operators() {
  std::vector<const OpDecl*> list;
  for (const OpDecl& decl : declarations()) list.push_back(&decl);
  return list;
}
INSTANTIATE_TEST_SUITE_P(Operators, RandomCalls, ::testing::ValuesIn(operators()),
                         [](const auto& op) { return std::string(op.param->name); });

}  // namespace
}  // namespace rlk::test
