// Is the built-in CPU plugin right? What the load tries, in every dtype, and on every instruction set in the dtypes of
// training; and everything that the conformance engine can try, in f32, with RLK_TEST_LONG=1 in every dtype: that takes
// half an hour.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <string_view>

#include "conformance/simple/combines_rows.hpp"
#include "conformance/simple/target.hpp"
#include "core/declaration/declaration.hpp"
#include "core/dispatch/host.hpp"
#include "framework/targets.hpp"

extern "C" const rlk_plugin* rlk_cpu_entry_v1(const rlk_host*, rlk_error*);

namespace rlk::core {
namespace {

Target cpu() {
  static simple::OpenTarget target(rlk_cpu_entry_v1(host_services(), nullptr), host_services());
  return target.target();
}

std::string name_of(const UnitResult& r) {
  return r.op + " " + r.implementation + " " + r.dtype + " \"" + r.feature + "\" (" + r.variant + ")";
}

// At a first start a canary stands for the smoke test: its units and their classes must be those that were tried here.
void expect_canary_of(const std::vector<UnitResult>& smoke, const std::string& dtype = {}) {
  ConformanceOptions options;
  options.canary = true;
  options.dtype = dtype;
  const auto start = std::chrono::steady_clock::now();
  const std::vector<UnitResult> canary = run_conformance(cpu(), options);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  ASSERT_EQ(canary.size(), smoke.size());
  int calls = 0;
  for (size_t i = 0; i < smoke.size(); ++i) {
    ASSERT_EQ(name_of(canary[i]), name_of(smoke[i]));
    EXPECT_EQ(canary[i].verdict, UnitResult::Verdict::verified) << name_of(smoke[i]) << ": " << canary[i].reason;
    EXPECT_EQ(canary[i].numerics, smoke[i].numerics) << name_of(smoke[i]);
    EXPECT_EQ(canary[i].size_classes, smoke[i].size_classes) << name_of(smoke[i]);
    EXPECT_EQ(canary[i].reason_code, kCanary) << name_of(smoke[i]);
    if (!smoke[i].feature.empty()) continue;
    EXPECT_GT(canary[i].cases, 0) << name_of(smoke[i]);
    calls += canary[i].cases;
  }
  std::printf("canary: %d calls in %.2f s\n", calls, took.count());
}

size_t operators_in(const std::string& dtype) {
  const auto has = [&](const OpDecl& decl) {
    const std::span<const DtypeExpr> choices = decl.dtypes[0].choices;
    return std::any_of(choices.begin(), choices.end(), [&](const DtypeExpr& d) { return name_of(d.dtype) == dtype; });
  };
  return static_cast<size_t>(std::count_if(declarations().begin(), declarations().end(), has));
}

std::vector<UnitResult> expect_all_verified(bool smoke, const std::string& dtype = {}) {
  ConformanceOptions options;
  options.smoke = smoke;
  options.dtype = dtype;
  const auto start = std::chrono::steady_clock::now();
  std::vector<UnitResult> results = run_conformance(cpu(), options);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  struct Row {
    int units = 0;
    double worst = 0, shrinkage = 0;
  };
  std::map<std::string, Row> table;
  for (const UnitResult& r : results) {
    const std::string unit = name_of(r);
    EXPECT_EQ(r.verdict, UnitResult::Verdict::verified) << unit << ": " << r.reason_code << ": " << r.reason;
    const bool rows_alone = find_declaration(r.op)->batch_invariant && !simple::combines_rows(r);
    const uint32_t batch_invariant = rows_alone ? RLK_NUMERICS_BATCH_INVARIANT : 0;
    EXPECT_EQ(r.numerics & (RLK_NUMERICS_ACCURATE | RLK_NUMERICS_DETERMINISTIC | RLK_NUMERICS_BATCH_INVARIANT),
              RLK_NUMERICS_ACCURATE | RLK_NUMERICS_DETERMINISTIC | batch_invariant)
        << unit;
    if (find_declaration(r.op)->portable && r.feature.empty()) {
      EXPECT_NE(r.numerics & RLK_NUMERICS_PORTABLE, 0u) << unit;
    }
    auto& [units, worst, shrinkage] = table[r.op + " " + r.implementation + " " + r.dtype];
    ++units;
    worst = std::max(worst, r.worst_error_ratio);
    shrinkage = std::max(shrinkage, r.worst_shrinkage);
  }
  // Each operator in the dtype, where it has that, or in at least two.
  EXPECT_GE(table.size(), dtype.empty() ? 2 * declarations().size() : operators_in(dtype));
  for (const auto& [name, row] : table) {
    std::printf("%-34s %2d units, largest error / allowed %.3f, shrinkage %.3f\n", name.c_str(), row.units, row.worst,
                row.shrinkage);
  }
  std::printf("%s: %zu units in %.1f s\n", smoke ? "smoke" : "full", results.size(), took.count());
  return results;
}

TEST(CpuPlugin, PassesTheSmokeTest) {
  expect_canary_of(expect_all_verified(true));
}

// Each result within its bound; sample, which is specified to the bit, with golden's bits. The best one is
// PassesTheSmokeTest.
TEST(CpuPlugin, PassesTheSmokeTestOnEveryInstructionSet) {
  const std::string best = cpu::variant_name();
  test::for_each_instruction_set([&](int64_t) {
    if (cpu::variant_name() == best) return;
    for (const char* dtype : {"f32", "bf16"}) expect_canary_of(expect_all_verified(true, dtype), dtype);
  });
}

TEST(CpuPlugin, PassesFullConformanceDeterministicAndBatchInvariant) {
  const char* wanted = std::getenv("RLK_TEST_LONG");
  const bool is_long = wanted != nullptr && std::string_view(wanted) == "1";
  expect_all_verified(false, is_long ? "" : "f32");
}

}  // namespace
}  // namespace rlk::core
