// What the tests of generated liars share: the CPU's implementation of an operator, a plugin of other rows over the
// CPU's device, and which of the rows the smoke test refuses.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "conformance/shared_answers.hpp"
#include "conformance/simple/target.hpp"
#include "conformance/spoiler.hpp"
#include "core/conformance/accepted_cases.hpp"
#include "core/conformance/sizes.hpp"
#include "core/declaration/declaration.hpp"
#include "framework/sample.hpp"
#include "loader/host/services.hpp"

extern "C" const rlk_plugin* rlk_cpu_entry_v1(const rlk_host*, rlk_error*);

namespace rlk::core::liars {

inline const rlk_plugin& cpu_plugin() {
  static const rlk_plugin* const cpu = rlk_cpu_entry_v1(loader::host_services(), nullptr);
  return *cpu;
}

inline const rlk_implementation& honest_implementation(const OpDecl& decl) {
  const rlk_plugin& cpu = cpu_plugin();
  for (uint32_t i = 0; i < cpu.n_implementations; ++i) {
    if (std::string_view(cpu.implementations[i]->op) == decl.name) return *cpu.implementations[i];
  }
  throw std::logic_error(std::string("the CPU has no implementation of ") + decl.name);
}

inline bool has_dtype(const OpDecl& decl, Dtype dtype) {
  const auto& dtypes = decl.dtypes[0].choices;
  return std::any_of(dtypes.begin(), dtypes.end(), [dtype](const auto& choice) { return choice.dtype == dtype; });
}

using Refused = std::map<std::string, std::string>;  // implementations of which a unit failed, with its reason code

// In this dtype, or in every one of an operator without it.
inline Refused refused_by_the_smoke_test(const OpDecl& decl, const std::vector<const rlk_implementation*>& rows,
                                         Dtype dtype = Dtype::f32, ConformanceOptions options = {}) {
  rlk_plugin plugin = cpu_plugin();
  plugin.implementations = rows.data();
  plugin.n_implementations = static_cast<uint32_t>(rows.size());
  const simple::OpenTarget target(&plugin, loader::host_services());
  options.ops = {decl.name};
  if (has_dtype(decl, dtype)) options.dtype = name_of(dtype);
  options.one_failure = true;
  options.answers = test::shared_answers();
  Refused refused;
  for (const UnitResult& unit : run_conformance(target.target(), options)) {
    if (unit.verdict == UnitResult::Verdict::failed) refused.emplace(unit.implementation, unit.reason_code);
  }
  return refused;
}

// Golden takes longest for the largest calls. A part of the smoke test that refuses a liar is in all of it, and
// so the ordinary run tries liars in calls of so many elements first; a liar that these believe has all of it to pass.
constexpr int64_t kSmall = 4096;

inline std::vector<const rlk_implementation*> others(std::vector<const rlk_implementation*> rows, const Refused& than) {
  std::erase_if(rows, [&](const rlk_implementation* row) { return than.contains(row->name); });
  return rows;
}

// Liars that the smoke test refuses, and `honest`, which has a name of its own, if it does.
inline Refused caught_by_the_smoke_test(const OpDecl& decl, const rlk_implementation& honest,
                                        const std::vector<const rlk_implementation*>& liars, Dtype dtype = Dtype::f32) {
  const auto tried = [&](std::vector<const rlk_implementation*> rows, const ConformanceOptions& options) {
    rows.insert(rows.begin(), &honest);
    return refused_by_the_smoke_test(decl, rows, dtype, options);
  };
  Refused refused;
  ConformanceOptions small;
  small.most_elements = kSmall;
  if (!test::is_long()) refused = tried(liars, small);
  if (const auto rest = others(liars, refused); !rest.empty()) refused.merge(tried(rest, {}));
  return refused;
}

// Whether the liar at this place of the list would lie in the case, by what it is asked: `call` has no memory behind
// its tensors, which begin at multiples of 256 bytes but for their offset.
using Foresees = std::function<bool(size_t liar, const conformance::Work& work, const rlk_call_desc& call)>;

// For each liar some cases of the smoke test in which it would lie: small ones first, in the order in which they are
// tried. Nothing is run for it. In every other case a liar is honest, and need not be run to know what becomes of it.
class Occasions {
public:
  Occasions(const OpDecl& decl, const rlk_implementation& honest, size_t liars, const Foresees& lies)
      : prefix_(std::string(decl.name) + " "), cases_(liars) {
    rlk_plugin plugin = cpu_plugin();
    const std::vector<const rlk_implementation*> rows = {&honest};
    plugin.implementations = rows.data();
    plugin.n_implementations = 1;
    const simple::OpenTarget target(&plugin, loader::host_services());
    conformance::Harness harness(target.target());
    EXPECT_FALSE(harness.start());
    for (size_t d = 0; d < unit_dtype_count(decl); ++d) {
      if (has_dtype(decl, Dtype::f32) && unit_dtype_name(decl, d) != std::string_view("f32")) continue;
      conformance::AcceptedCases accepted(decl, static_cast<int>(d), rows, harness, conformance::Extent::smoke,
                                          ConformanceOptions().seed, [](size_t, const auto&, const auto&) {});
      accepted.walk();
      add(accepted.work(), lies);
    }
  }

  // Whether the case is one of the first `most` of the liar.
  bool has(size_t liar, const std::string& title, const rlk_implementation& row, size_t most) const {
    const std::vector<std::string>& own = cases_[liar];
    const auto end = own.begin() + static_cast<std::ptrdiff_t>(std::min(most, own.size()));
    return std::find(own.begin(), end, words(title, row)) != end;
  }

  static constexpr size_t kEnough = 64;

private:
  void add(const std::vector<conformance::Work>& list, const Foresees& lies) {
    std::vector<std::pair<int64_t, const conformance::Work*>> order;
    for (const conformance::Work& work : list) {
      if (!work.jobs.empty()) order.emplace_back(std::max(kSmall, conformance::elements_of(work.call)), &work);
    }
    std::stable_sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
      return std::pair(a.first, a.second->stage) < std::pair(b.first, b.second->stage);
    });
    for (const auto& [elements, work] : order) {
      const conformance::Question question(work->call);
      const rlk_call_desc call = question.demanding(work->jobs[0].numerics);
      for (size_t i = 0; i < cases_.size(); ++i) {
        if (cases_[i].size() < kEnough && lies(i, *work, call)) cases_[i].push_back(work->words);
      }
    }
  }

  // "add honest f32 N=5" -> "f32 N=5"
  std::string words(const std::string& title, const rlk_implementation& row) const {
    const size_t names = prefix_.size() + std::strlen(row.name) + 1;
    return title.size() > names ? title.substr(names) : "";
  }

  const std::string prefix_;
  std::vector<std::vector<std::string>> cases_;  // by liar
};

// The liars that the smoke test refuses: tried in some cases in which they would lie, which the honest implementation
// has to pass as well; a liar that these believe has the whole smoke test before it. What is no lie is refused in no
// case: only the long run tries it in more than those.
inline Refused caught_where_they_lie(const OpDecl& decl, const std::vector<const rlk_implementation*>& liars,
                                     const Foresees& lies, const std::function<bool(const char* name)>& is_no_lie) {
  Spoiler honest(honest_implementation(decl), "", "honest");
  honest.lies = [](PlanMemory&, const Execution&) { return false; };
  const Occasions occasions(decl, honest.row(), liars.size(), lies);
  const auto place_of = [&](const rlk_implementation& row) {
    return static_cast<size_t>(std::find(liars.begin(), liars.end(), &row) - liars.begin());
  };
  Refused refused;
  const auto run = [&](std::vector<const rlk_implementation*> rows, const ConformanceOptions& options) {
    if (rows.empty()) return;
    rows.push_back(&honest.row());
    refused.merge(refused_by_the_smoke_test(decl, rows, Dtype::f32, options));
    EXPECT_FALSE(refused.contains(honest.name)) << "an honest implementation fails: the liars prove nothing";
  };
  // Step by step, because most are caught at once, and golden answers ahead what nobody asks then.
  for (const size_t most : {size_t{1}, size_t{8}, Occasions::kEnough}) {
    const std::vector<const rlk_implementation*> rest = others(liars, refused);
    ConformanceOptions part;
    part.picks = [&](const rlk_implementation& row, const std::string& title) {
      if (&row != &honest.row()) return occasions.has(place_of(row), title, row, most);
      return std::any_of(rest.begin(), rest.end(), [&](const rlk_implementation* liar) {
        return occasions.has(place_of(*liar), title, row, most);
      });
    };
    run(rest, part);
  }
  std::vector<const rlk_implementation*> believed = others(liars, refused);
  if (!test::is_long()) std::erase_if(believed, [&](const rlk_implementation* row) { return is_no_lie(row->name); });
  for (const rlk_implementation* row : believed) std::printf("%s %s: tried in all cases\n", decl.name, row->name);
  run(believed, {});
  return refused;
}

inline std::vector<const OpDecl*> all_operators() {
  std::vector<const OpDecl*> list;
  for (const OpDecl& decl : declarations()) list.push_back(&decl);
  return list;
}

// Every operator in the long run; else half of them, another half for another kind of liars.
inline std::vector<const OpDecl*> operators_against(const std::string& liars) {
  std::vector<const OpDecl*> list = all_operators();
  if (test::is_long()) return list;
  std::erase_if(list, [&](const OpDecl* decl) { return std::hash<std::string>{}(liars + decl->name) % 2 != 0; });
  return list;
}

class OfOperator : public ::testing::TestWithParam<const OpDecl*> {};

inline std::string name_of_operator(const ::testing::TestParamInfo<const OpDecl*>& test) {
  return test.param->name;
}

}  // namespace rlk::core::liars
