// Does the looser of the two error bounds let well-made kernels pass and nothing else? Operators whose declarations
// permit intermediates to be rounded, computed as fused kernels do, with one coarseness at a time.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <set>
#include <string>
#include <vector>

#include "conformance/rounding/arithmetic.hpp"
#include "conformance/rounding/implementations.hpp"
#include "conformance/shared_answers.hpp"
#include "conformance/simple/target.hpp"

namespace rlk::core {
namespace {

using Verdict = UnitResult::Verdict;

std::vector<UnitResult> run(const rlk_plugin* plugin, const std::string& op, const std::string& dtype,
                            const char* mutant, bool claims_accurate = false) {
  const simple::OpenTarget target(plugin, simple::bare_host());
  simple::set_mutant(mutant);
  rounding::set_claims_accurate(claims_accurate);
  ConformanceOptions options;
  if (!op.empty()) options.ops = {op};
  options.dtype = dtype;
  options.answers = test::shared_answers();
  std::vector<UnitResult> results = run_conformance(target.target(), options);
  simple::set_mutant("");
  std::erase_if(results, [](const UnitResult& unit) { return unit.verdict == Verdict::declined; });
  return results;
}

std::vector<UnitResult> run(const std::string& op, const std::string& dtype, const char* mutant,
                            bool claims_accurate = false) {
  return run(rlk_rounding_entry(simple::bare_host(), nullptr), op, dtype, mutant, claims_accurate);
}

const UnitResult* failed(const std::vector<UnitResult>& units) {
  const auto found =
      std::find_if(units.begin(), units.end(), [](const UnitResult& unit) { return unit.verdict == Verdict::failed; });
  return found != units.end() ? &*found : nullptr;
}

double worst_ratio(const std::vector<UnitResult>& units) {
  double worst = 0;
  for (const UnitResult& unit : units) worst = std::max(worst, unit.worst_error_ratio);
  return worst;
}

double worst_shrinkage(const std::vector<UnitResult>& units) {
  double worst = 0;
  for (const UnitResult& unit : units) worst = std::max(worst, unit.worst_shrinkage);
  return worst;
}

constexpr const char* kOperators[] = {"attention", "attention_backward", "linear_logp", "linear_logp_backward"};
constexpr const char* kRounding[] = {"attention", "attention_backward", "linear_logp_backward"};
constexpr const char* kDtypes[] = {"f32", "bf16", "f16", "f64"};

TEST(Bounds, IntermediatesInFullPrecisionAreAccurateAtEveryDtype) {
  for (const char* op : kOperators) {
    for (const char* dtype : kDtypes) {
      const std::vector<UnitResult> units = run(op, dtype, "", true);
      ASSERT_FALSE(units.empty()) << op << " " << dtype;
      for (const UnitResult& unit : units) {
        EXPECT_EQ(unit.verdict, Verdict::verified) << op << " " << dtype << ": " << unit.reason;
        EXPECT_EQ(unit.numerics, RLK_NUMERICS_TOLERANCE | RLK_NUMERICS_ACCURATE) << op << " " << dtype;
      }
      EXPECT_LT(worst_shrinkage(units), 0.2) << op << " " << dtype;
      std::printf("%-22s %-5s accurate, error / allowed %.3f, shrinkage %.3f\n", op, dtype, worst_ratio(units),
                  worst_shrinkage(units));
    }
  }
}

TEST(Bounds, OperandsRoundedToTheTensorsDtypeAreWithinToleranceAndNotAccurate) {
  for (const char* op : kRounding) {
    for (const char* dtype : {"bf16", "f16"}) {
      const std::vector<UnitResult> units = run(op, dtype, "operands_rounded");
      ASSERT_FALSE(units.empty()) << op << " " << dtype;
      double ulp = 0;
      for (const UnitResult& unit : units) {
        EXPECT_EQ(unit.verdict, Verdict::verified) << op << " " << dtype << ": " << unit.reason;
        EXPECT_EQ(unit.numerics, RLK_NUMERICS_TOLERANCE) << op << " " << dtype;
        ulp = std::max(ulp, unit.worst_error_ulp);
      }
      const std::vector<UnitResult> claimed = run(op, dtype, "operands_rounded", true);
      const UnitResult* refused = failed(claimed);
      ASSERT_NE(refused, nullptr) << op << " " << dtype << " is taken for accurate";
      EXPECT_EQ(refused->reason_code, "NOT_ACCURATE") << refused->reason;
      EXPECT_LT(worst_shrinkage(units), 0.2) << op << " " << dtype;
      std::printf("%-22s %-5s tolerance, error / allowed %.3f, %.3g ulp, shrinkage %.3f; as accurate: %s\n", op, dtype,
                  worst_ratio(units), ulp, worst_shrinkage(units), refused->reason.c_str());
    }
  }
}

TEST(Bounds, WhatIsNotRoundedForADtypeIsAccurateWithoutAClaim) {
  for (const char* dtype : {"f32", "f64"}) {
    for (const UnitResult& unit : run("attention", dtype, "operands_rounded")) {
      EXPECT_EQ(unit.numerics, RLK_NUMERICS_TOLERANCE | RLK_NUMERICS_ACCURATE) << unit.reason;
    }
  }
  for (const UnitResult& unit : run("linear_logp", "bf16", "")) {
    EXPECT_EQ(unit.numerics, RLK_NUMERICS_TOLERANCE | RLK_NUMERICS_ACCURATE) << unit.reason;
  }
}

struct Coarse {
  const char* mutant;
  std::set<std::string> ops;
  std::set<std::string> dtypes;
};
const std::set<std::string> kBoth = {"bf16", "f16"};
const std::set<std::string> kAll = {"f32", "bf16", "f16", "f64"};
const std::vector<Coarse> kCoarse = {
    {"operands_truncated", {"attention", "attention_backward", "linear_logp_backward"}, kBoth},
    {"outputs_truncated", {"attention", "attention_backward", "linear_logp", "linear_logp_backward"}, kBoth},
    {"sums_in_16_bits", {"attention", "attention_backward", "linear_logp", "linear_logp_backward"}, kAll},
    {"term_511_dropped", {"attention", "attention_backward", "linear_logp_backward"}, kAll},
    {"scores_in_16_bits", {"linear_logp", "linear_logp_backward"}, kAll},
    {"operands_in_bf16", {"attention", "attention_backward", "linear_logp_backward"}, {"f32", "f16", "f64"}},
    {"inputs_in_tf32", {"attention", "attention_backward", "linear_logp", "linear_logp_backward"}, {"f32"}},
};

TEST(Bounds, CoarserArithmeticFailsAtEveryDtype) {
  int tried = 0, caught = 0;
  for (const Coarse& coarse : kCoarse) {
    for (const std::string& op : coarse.ops) {
      for (const std::string& dtype : coarse.dtypes) {
        const std::vector<UnitResult> units = run(op, dtype, coarse.mutant);
        const UnitResult* caught_by = failed(units);
        ++tried;
        caught += caught_by != nullptr ? 1 : 0;
        std::printf("%-20s %-22s %-5s %s\n", coarse.mutant, op.c_str(), dtype.c_str(),
                    caught_by != nullptr ? (caught_by->reason_code + ": " + caught_by->reason).c_str() : "MISSED");
        EXPECT_NE(caught_by, nullptr) << coarse.mutant << " in " << op << " " << dtype << ": error / allowed "
                                      << worst_ratio(units);
      }
    }
  }
  std::printf("tried %d, caught %d\n", tried, caught);
}

// Where nothing may be rounded, truncated results are within an ulp all the same.
TEST(Bounds, TruncatedResultsFailInEveryKindOfOperator) {
  const rlk_plugin* plugin = rlk_simple_entry(simple::bare_host(), nullptr);
  for (const char* op : {"add", "attention", "logp", "logp_backward"}) {
    for (const char* dtype : {"bf16", "f16"}) {
      const std::vector<UnitResult> units = run(plugin, op, dtype, "outputs_truncated");
      const UnitResult* caught_by = failed(units);
      ASSERT_NE(caught_by, nullptr) << op << " " << dtype;
      EXPECT_EQ(caught_by->reason_code, "BIASED") << op << " " << dtype << ": " << caught_by->reason;
      std::printf("%-14s %-5s %s\n", op, dtype, caught_by->reason.c_str());
    }
  }
}

}  // namespace
}  // namespace rlk::core
