// Is the built-in CPU plugin right? What the load tries, on the best instruction set in every dtype, and a sample on
// the others in the dtypes of training; and of everything that the conformance engine can try a sample, in f32, without
// the largest calls; with RLK_TEST_LONG=1 all of it in every dtype: that takes half an hour.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <deque>
#include <iterator>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "conformance/simple/combines_rows.hpp"
#include "conformance/simple/target.hpp"
#include "conformance/spoiler.hpp"
#include "core/cpu/simd/scratch.hpp"
#include "core/declaration/declaration.hpp"
#include "core/declaration/validate.hpp"
#include "framework/sample.hpp"
#include "framework/targets.hpp"
#include "loader/host/services.hpp"

extern "C" const rlk_plugin* rlk_cpu_entry_v1(const rlk_host*, rlk_error*);

namespace rlk::core {
namespace {

[[maybe_unused]] const bool watched = [] {
  cpu::check_scratch_use();
  return true;
}();

const rlk_plugin& cpu_plugin() {
  static const rlk_plugin* const cpu = rlk_cpu_entry_v1(loader::host_services(), nullptr);
  return *cpu;
}

// The CPU's implementations on an instruction set, which has a part in their names. Several sets are tried in one run,
// because cases and their right answers are the same for all. A set is chosen when its implementation is asked or makes
// a plan; should a plan run under another one, its result is spoiled.
struct InstructionSet {
  explicit InstructionSet(int64_t target) : name(cpu::variant_name()) {
    const auto choose = [target, with_tiles = cpu::has_amx(), this] {
      if (name == cpu::variant_name()) return;
      hwy::SetSupportedTargetsForTest(target);
      cpu::allow_amx(with_tiles);
    };
    const auto is_another = [this](liars::PlanMemory&, const liars::Execution&) { return name != cpu::variant_name(); };
    for (uint32_t i = 0; i < cpu_plugin().n_implementations; ++i) {
      const rlk_implementation& honest = *cpu_plugin().implementations[i];
      liars::Spoiler& one = implementations.emplace_back(honest, "", std::string(honest.name) + "@" + name);
      one.prepares = choose;
      one.lies = is_another;
    }
  }
  bool has(std::string_view implementation) const { return implementation.ends_with("@" + name); }

  std::string name;
  std::deque<liars::Spoiler> implementations;
};
using InstructionSets = std::vector<std::unique_ptr<InstructionSet>>;

// The best one first.
InstructionSets instruction_sets() {
  InstructionSets sets;
  test::for_each_instruction_set([&](int64_t target) { sets.push_back(std::make_unique<InstructionSet>(target)); });
  return sets;
}

// Without sets: as this machine's callers have it.
std::vector<UnitResult> run(std::span<const std::unique_ptr<InstructionSet>> sets, const ConformanceOptions& options) {
  rlk_plugin plugin = cpu_plugin();
  std::vector<const rlk_implementation*> rows;
  for (const auto& set : sets) {
    for (const liars::Spoiler& implementation : set->implementations) rows.push_back(&implementation.row());
  }
  if (!sets.empty()) {
    plugin.implementations = rows.data();
    plugin.n_implementations = static_cast<uint32_t>(rows.size());
  }
  const simple::OpenTarget target(&plugin, loader::host_services());
  std::vector<UnitResult> results = run_conformance(target.target(), options);
  hwy::SetSupportedTargetsForTest(0);
  cpu::allow_amx(true);
  return results;
}

std::string name_of(const UnitResult& r) {
  return r.op + " " + r.implementation + " " + r.dtype + " \"" + r.feature + "\" (" + r.variant + ")";
}

// At a first start a canary stands for the smoke test: its units and their classes must be those that were tried here.
void expect_canary_of(const std::vector<UnitResult>& smoke, std::span<const std::unique_ptr<InstructionSet>> set,
                      const std::string& dtype) {
  ConformanceOptions options;
  options.canary = true;
  options.dtype = dtype;
  const auto start = std::chrono::steady_clock::now();
  const std::vector<UnitResult> canary = run(set, options);
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
    for (size_t d = 0; d < unit_dtype_count(decl); ++d) {
      if (unit_dtype_name(decl, d) == dtype) return true;
    }
    return false;
  };
  return static_cast<size_t>(std::count_if(declarations().begin(), declarations().end(), has));
}

std::vector<UnitResult> expect_all_verified(bool smoke, std::span<const std::unique_ptr<InstructionSet>> sets,
                                            const std::string& dtype) {
  ConformanceOptions options;
  options.smoke = smoke;
  options.dtype = dtype;
  // Whole on the best set, which a caller of this machine has; the other sets run the same code.
  const auto is_whole = [&](std::string_view implementation) {
    return test::is_long() || (smoke && (sets.empty() || sets[0]->has(implementation)));
  };
  // Golden takes longest for the largest of the full suite, and the smoke test has every symbol at its largest.
  if (!smoke && !test::is_long()) options.most_elements = int64_t{1} << 17;
  options.picks = [&](const rlk_implementation& implementation, const std::string& title) {
    return is_whole(implementation.name) || test::is_in_sample(title, smoke ? 18 : 36);
  };
  const auto start = std::chrono::steady_clock::now();
  std::vector<UnitResult> results = run(sets, options);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  struct Row {
    int units = 0;
    double worst = 0, shrinkage = 0;
  };
  std::map<std::string, Row> table;
  for (const UnitResult& r : results) {
    const std::string unit = name_of(r);
    EXPECT_EQ(r.verdict, UnitResult::Verdict::verified) << unit << ": " << r.reason_code << ": " << r.reason;
    // A class that a case contradicts fails the case. That each unit earns its classes is for the smoke test to show: a
    // unit's cases in the sample may be none that repeat calls.
    const bool rows_alone = find_declaration(r.op)->batch_invariant && !simple::combines_rows(r);
    const uint32_t batch_invariant = rows_alone ? RLK_NUMERICS_BATCH_INVARIANT : 0;
    if (is_whole(r.implementation)) {
      EXPECT_EQ(r.numerics & (RLK_NUMERICS_ACCURATE | RLK_NUMERICS_DETERMINISTIC | RLK_NUMERICS_BATCH_INVARIANT),
                RLK_NUMERICS_ACCURATE | RLK_NUMERICS_DETERMINISTIC | batch_invariant)
          << unit;
    }
    EXPECT_NE(r.numerics & RLK_NUMERICS_ACCURATE, 0u) << unit;
    if (find_declaration(r.op)->portable && r.feature.empty()) {
      EXPECT_NE(r.numerics & RLK_NUMERICS_PORTABLE, 0u) << unit;
    }
    auto& [units, worst, shrinkage] = table[r.op + " " + r.implementation + " " + r.dtype];
    ++units;
    worst = std::max(worst, r.worst_error_ratio);
    shrinkage = std::max(shrinkage, r.worst_shrinkage);
  }
  // Each operator that has the dtype, on each instruction set.
  EXPECT_GE(table.size(), operators_in(dtype) * std::max<size_t>(sets.size(), 1));
  for (const auto& [name, row] : table) {
    std::printf("%-40s %2d units, largest error / allowed %.3f, shrinkage %.3f\n", name.c_str(), row.units, row.worst,
                row.shrinkage);
  }
  std::printf("%s: %zu units in %.1f s\n", smoke ? "smoke" : "full", results.size(), took.count());
  return results;
}

std::set<std::string> all_dtypes() {
  std::set<std::string> names;
  for (const OpDecl& decl : declarations()) {
    for (size_t d = 0; d < unit_dtype_count(decl); ++d) names.insert(unit_dtype_name(decl, d));
  }
  return names;
}

const char* const kOfTraining[] = {"f32", "bf16"};

// Each result within its bound; sample, which is specified to the bit, with golden's bits.
TEST(CpuPlugin, PassesTheSmokeTestOnEveryInstructionSet) {
  const InstructionSets sets = instruction_sets();
  for (const char* dtype : kOfTraining) {
    const std::vector<UnitResult> results = expect_all_verified(true, sets, dtype);
    const size_t whole = test::is_long() ? sets.size() : std::min<size_t>(sets.size(), 1);
    for (size_t i = 0; i < whole; ++i) {
      SCOPED_TRACE(sets[i]->name);
      std::vector<UnitResult> own;
      std::copy_if(results.begin(), results.end(), std::back_inserter(own),
                   [&](const UnitResult& unit) { return sets[i]->has(unit.implementation); });
      expect_canary_of(own, std::span(sets).subspan(i, 1), dtype);
    }
  }
}

TEST(CpuPlugin, PassesTheSmokeTestInOtherDtypes) {
  std::set<std::string> others = all_dtypes();
  for (const char* dtype : kOfTraining) EXPECT_EQ(others.erase(dtype), 1u);
  for (const std::string& dtype : others) expect_canary_of(expect_all_verified(true, {}, dtype), {}, dtype);
}

TEST(CpuPlugin, PassesFullConformanceDeterministicAndBatchInvariant) {
  const std::set<std::string> dtypes = test::is_long() ? all_dtypes() : std::set<std::string>{"f32"};
  for (const std::string& dtype : dtypes) expect_all_verified(false, {}, dtype);
}

}  // namespace
}  // namespace rlk::core
