// Does the smoke test notice an implementation that ignores something? For every parameter, every value of an
// enumeration and every optional input of every declared operator, a plugin that is the CPU's but never sees that one
// thing. All of them must be caught, and the table of what was tried is printed.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "conformance/simple/target.hpp"
#include "core/declaration/declaration.hpp"
#include "core/dispatch/host.hpp"

extern "C" const rlk_plugin* rlk_cpu_entry_v1(const rlk_host*, rlk_error*);

namespace rlk::core {
namespace {

// What the plugin never sees: a parameter (it is always at its default), one value of an enumeration (it is taken for
// the default), or an optional input (it is absent).
struct Lie {
  const OpDecl* decl = nullptr;
  int param = -1;
  int64_t value = -1;  // of the enumeration
  int input = -1;

  std::string name() const {
    if (input >= 0) return decl->inputs[static_cast<size_t>(input)].name;
    const ParamDecl& p = decl->params[static_cast<size_t>(param)];
    return value < 0 ? p.name : std::string(p.name) + "=" + p.values[static_cast<size_t>(value)];
  }
};
Lie lie;  // the tables of a plugin have no room for it, and there is one at a time

// The call as the liar sees it, although a rule of the declaration may forbid that.
class Seen {
public:
  explicit Seen(const rlk_call_desc& call) : call_(call) {
    const OpDecl& decl = *lie.decl;
    params_.resize(decl.params_size / sizeof(uint64_t));
    std::memcpy(params_.data(), call.params, decl.params_size);
    if (lie.input >= 0) {
      inputs_.assign(call.inputs, call.inputs + call.n_inputs);
      inputs_[static_cast<size_t>(lie.input)] = nullptr;
      call_.inputs = inputs_.data();
    } else {
      const ParamDecl& param = decl.params[static_cast<size_t>(lie.param)];
      auto* bytes = reinterpret_cast<std::byte*>(params_.data());
      int64_t now = 0;
      std::memcpy(&now, bytes + param.offset, sizeof(now));
      if (lie.value < 0 || now == lie.value) {
        std::memcpy(bytes + param.offset, static_cast<const std::byte*>(decl.defaults) + param.offset, sizeof(now));
      }
      call_.params = params_.data();
    }
  }
  const rlk_call_desc* get() const { return &call_; }

private:
  rlk_call_desc call_;
  std::vector<uint64_t> params_;
  std::vector<const rlk_tensor*> inputs_;
};

const rlk_implementation& truth(const rlk_implementation* liar) {
  return *static_cast<const rlk_implementation*>(liar->user);
}
const rlk_implementation* honest = nullptr;  // for the functions that are given only a plan

rlk_status query(const rlk_implementation* self, rlk_plugin_device* device, const rlk_call_desc* call, rlk_support* out,
                 rlk_error* error) {
  return truth(self).query(&truth(self), device, Seen(*call).get(), out, error);
}

rlk_status plan_create(const rlk_implementation* self, rlk_plugin_device* device, const rlk_call_desc* call,
                       rlk_plugin_plan** out, rlk_plan_info* info, rlk_error* error) {
  return truth(self).plan_create(&truth(self), device, Seen(*call).get(), out, info, error);
}

// The same for an execution.
class SeenRun {
public:
  explicit SeenRun(const rlk_run& run) : run_(run) {
    if (lie.input < 0) return;
    inputs_.assign(run.inputs, run.inputs + run.n_inputs);
    inputs_[static_cast<size_t>(lie.input)] = nullptr;
    run_.inputs = inputs_.data();
  }
  const rlk_run* get() const { return &run_; }

private:
  rlk_run run_;
  std::vector<const rlk_tensor*> inputs_;
};

rlk_status plan_prepare(rlk_plugin_plan* plan, const rlk_run* run, uint64_t* bytes, rlk_error* error) {
  return honest->plan_prepare(plan, SeenRun(*run).get(), bytes, error);
}

rlk_status plan_enqueue(rlk_plugin_plan* plan, rlk_plugin_stream* stream, const rlk_run* run, rlk_error* error) {
  return honest->plan_enqueue(plan, stream, SeenRun(*run).get(), error);
}

std::vector<Lie> lies_about(const OpDecl& decl) {
  std::vector<Lie> list;
  for (size_t i = 0; i < decl.params.size(); ++i) {
    const ParamDecl& param = decl.params[i];
    // The form is in the shapes: nobody can mistake it.
    if (static_cast<int>(i) == decl.form_param) continue;
    Lie one{&decl, static_cast<int>(i)};
    if (param.type != ParamType::enumeration) list.push_back(one);
    for (size_t value = 0; value < param.values.size(); ++value) {
      one.value = static_cast<int64_t>(value);
      if (one.value != param.default_i64) list.push_back(one);
    }
  }
  for (size_t i = 0; i < decl.inputs.size(); ++i) {
    if (decl.inputs[i].optional) list.push_back({&decl, -1, -1, static_cast<int>(i)});
  }
  return list;
}

class Liars : public ::testing::TestWithParam<const OpDecl*> {};

TEST_P(Liars, AreAllCaughtByTheSmokeTest) {
  const OpDecl& decl = *GetParam();
  static const rlk_plugin* cpu = rlk_cpu_entry_v1(host_services(), nullptr);
  const rlk_implementation* const* end = cpu->implementations + cpu->n_implementations;
  const auto* const found = std::find_if(
      cpu->implementations, end, [&](const rlk_implementation* row) { return std::strcmp(row->op, decl.name) == 0; });
  ASSERT_NE(found, end);
  honest = *found;

  rlk_implementation row = *honest;
  row.user = const_cast<rlk_implementation*>(honest);
  row.query = query;
  row.plan_create = plan_create;
  row.plan_prepare = honest->plan_prepare != nullptr ? plan_prepare : nullptr;
  row.plan_enqueue = plan_enqueue;
  const rlk_implementation* const rows[] = {&row};
  rlk_plugin plugin = *cpu;
  plugin.implementations = rows;
  plugin.n_implementations = 1;
  const simple::OpenTarget target(&plugin, host_services());

  ConformanceOptions options;
  options.op = decl.name;
  options.dtype = "f32";
  int tried = 0, caught = 0;
  for (const Lie& each : lies_about(decl)) {
    lie = each;
    ++tried;
    const std::vector<UnitResult> results = run_conformance(target.target(), options);
    const auto failed = std::find_if(results.begin(), results.end(), [](const UnitResult& unit) {
      return unit.verdict == UnitResult::Verdict::failed;
    });
    ASSERT_FALSE(results.empty()) << "nothing was tried";
    caught += failed != results.end() ? 1 : 0;
    EXPECT_NE(failed, results.end()) << decl.name << ": the smoke test misses a plugin that ignores " << each.name();
  }
  std::printf("%-24s %3d liars tried, %3d caught\n", decl.name, tried, caught);
}

std::vector<const OpDecl*> all_operators() {
  std::vector<const OpDecl*> list;
  for (const OpDecl& decl : declarations()) list.push_back(&decl);
  return list;
}

INSTANTIATE_TEST_SUITE_P(Operators, Liars, ::testing::ValuesIn(all_operators()),
                         [](const auto& test) { return std::string(test.param->name); });

}  // namespace
}  // namespace rlk::core
