// What the tests of generated liars share: the CPU's implementation of an operator, a plugin of other rows over the
// CPU's device, and which of the rows the smoke test refuses.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "conformance/shared_answers.hpp"
#include "conformance/simple/target.hpp"
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

// In which cases would each liar lie? In every other case it is honest, and need not be run to know what becomes of it.
class Occasions {
public:
  Occasions(const OpDecl& decl, std::vector<const rlk_implementation*> liars)
      : decl_(decl), prefix_(std::string(decl.name) + " "), liars_(std::move(liars)) {}

  // Of the liar at this place of the list, called by `watcher` in the midst of a case. [thread-safe]
  void would_lie(size_t liar) {
    const std::lock_guard lock(mutex_);
    std::set<std::string>& cases = cases_[liars_[liar]->name];
    if (cases.size() < kEnough) cases.insert(current_);
  }

  // The liars that the smoke test refuses. `watcher` is the honest implementation, which tells which ones would lie.
  // `small_first` where nearly all are caught in small calls: any other costs both.
  Refused caught_with(const rlk_implementation& watcher, bool small_first = false) {
    Refused refused;
    if (small_first && !test::is_long()) refused = caught_among(liars_, watcher, kSmall);
    if (const auto rest = others(liars_, refused); !rest.empty()) refused.merge(caught_among(rest, watcher, 0));
    return refused;
  }

private:
  // In calls of so many elements; 0: of any number.
  Refused caught_among(const std::vector<const rlk_implementation*>& liars, const rlk_implementation& watcher,
                       int64_t most_elements) {
    cases_.clear();
    ConformanceOptions whole;
    whole.most_elements = most_elements;
    whole.progress = [&](const std::string& title) {
      const std::lock_guard lock(mutex_);
      current_ = words(title, watcher);
    };
    EXPECT_EQ(refused_by_the_smoke_test(decl_, {&watcher}, Dtype::f32, whole), Refused())
        << "an honest implementation fails: the liars prove nothing";
    ConformanceOptions part;
    part.most_elements = most_elements;
    part.picks = [this](const rlk_implementation& liar, const std::string& title) {
      const auto known = cases_.find(liar.name);
      return known != cases_.end() && known->second.contains(words(title, liar));
    };
    Refused refused = refused_by_the_smoke_test(decl_, liars, Dtype::f32, part);
    if (most_elements > 0) return refused;
    // A liar that was believed there has the whole smoke test before it.
    const std::vector<const rlk_implementation*> believed = others(liars, refused);
    if (!believed.empty()) refused.merge(refused_by_the_smoke_test(decl_, believed));
    return refused;
  }

  static constexpr size_t kEnough = 8;

  // "add honest f32 N=5" -> "f32 N=5"
  std::string words(const std::string& title, const rlk_implementation& implementation) const {
    const size_t names = prefix_.size() + std::strlen(implementation.name) + 1;
    return title.size() > names ? title.substr(names) : "";
  }

  const OpDecl& decl_;
  const std::string prefix_;
  const std::vector<const rlk_implementation*> liars_;
  std::mutex mutex_;
  std::string current_;
  std::map<std::string, std::set<std::string>> cases_;  // by the liar's name, the first of them
};

// The honest implementation, which notes which ones would lie: row() with a plan_create that asks them.
template <class Liar>
struct Watcher {
  const rlk_implementation* honest;
  const std::deque<Liar>* liars;
  Occasions* occasions;

  static const Watcher& of(const rlk_implementation* self) { return *static_cast<const Watcher*>(self->user); }
  static rlk_status query(const rlk_implementation* self, rlk_plugin_device* device, const rlk_call_desc* call,
                          rlk_support* out, rlk_error* error) {
    return of(self).honest->query(of(self).honest, device, call, out, error);
  }
  rlk_implementation row() {
    rlk_implementation watched = *honest;
    watched.user = this;
    watched.query = query;
    return watched;
  }
};

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
