// Does the smoke test notice an implementation that ignores something? For every parameter, every value of an
// enumeration and every optional input of every declared operator, there is one that is the CPU's but never sees that
// one thing. All of them must be caught, and the table of what was tried is printed.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "conformance/liars.hpp"

namespace rlk::core {
namespace {

// An implementation that never sees a parameter (it is always at its default), one value of an enumeration (it is taken
// for the default), or an optional input (it is absent).
struct Liar {
  const OpDecl* decl = nullptr;
  const rlk_implementation* honest = nullptr;
  int param = -1;
  int64_t value = -1;  // of the enumeration
  int input = -1;
  rlk_implementation row{};
  std::string name{};
};

// What the liar sees of a call: some parameters at their defaults, some inputs absent. A liar blind to one thing
// is blind to what goes with it too: where a rule of the declaration would be broken, a parameter or input that
// mends it is hidden too.
class View {
public:
  View(const Liar& liar, const rlk_call_desc& call) : decl_(*liar.decl), call_(call) {
    params_.resize(decl_.params_size / sizeof(uint64_t));
    std::memcpy(params_.data(), call.params, decl_.params_size);
    if (liar.input >= 0 && call.inputs[liar.input] != nullptr) hidden_ = uint64_t{1} << liar.input;
    if (liar.param >= 0 && (liar.value < 0 || number_at(liar.param) == liar.value)) reset(liar.param);
    if (!hides()) return;
    for (size_t i = 0; i < decl_.params.size() && broken() > 0; ++i) {
      if (static_cast<int>(i) == decl_.form_param) continue;
      const std::vector<uint64_t> before = params_;
      const int64_t rules = broken();
      reset(static_cast<int>(i));
      if (broken() >= rules) params_ = before;
    }
    for (size_t i = 0; i < decl_.inputs.size() && broken() > 0; ++i) {
      const uint64_t before = hidden_;
      const int64_t rules = broken();
      if (decl_.inputs[i].optional) hidden_ |= uint64_t{1} << i;
      if (broken() >= rules) hidden_ = before;
    }
  }
  const void* params() const { return params_.data(); }
  uint64_t hidden() const { return hidden_; }
  bool hides() const { return hidden_ != 0 || std::memcmp(params_.data(), call_.params, decl_.params_size) != 0; }

private:
  std::byte* at(int param) {
    return reinterpret_cast<std::byte*>(params_.data()) + decl_.params[static_cast<size_t>(param)].offset;
  }
  int64_t number_at(int param) {
    int64_t number = 0;
    std::memcpy(&number, at(param), sizeof(number));
    return number;
  }
  void reset(int param) {
    const uint32_t offset = decl_.params[static_cast<size_t>(param)].offset;
    std::memcpy(at(param), static_cast<const std::byte*>(decl_.defaults) + offset, sizeof(int64_t));
  }
  int64_t broken() const {
    uint64_t present = 0;
    for (uint32_t i = 0; i < call_.n_inputs; ++i) present |= uint64_t{call_.inputs[i] != nullptr} << i;
    for (uint32_t i = 0; i < call_.n_outputs; ++i) present |= uint64_t{call_.outputs[i] != nullptr} << (32 + i);
    const Values values{call_.symbols, params_.data(), present & ~hidden_};
    return std::count_if(decl_.rules.begin(), decl_.rules.end(),
                         [&](const RuleDecl& rule) { return rule.holds.eval(values) == 0; });
  }

  const OpDecl& decl_;
  const rlk_call_desc& call_;
  std::vector<uint64_t> params_;
  uint64_t hidden_ = 0;
};

// A call, or an execution of a plan, with some inputs absent.
template <class What>
class Without {
public:
  Without(uint64_t hidden, const What& what) : what_(what), inputs_(what.inputs, what.inputs + what.n_inputs) {
    for (size_t i = 0; i < inputs_.size(); ++i) {
      if ((hidden >> i & 1) != 0) inputs_[i] = nullptr;
    }
    what_.inputs = inputs_.data();
  }
  What* operator->() { return &what_; }
  const What* get() const { return &what_; }

private:
  What what_;
  std::vector<const rlk_tensor*> inputs_;
};

struct Plan {
  const rlk_implementation* honest;
  uint64_t hidden;
  rlk_plugin_plan* plan;
};
Plan& plan_of(rlk_plugin_plan* handle) {
  return *reinterpret_cast<Plan*>(handle);
}
const Liar& liar_of(const rlk_implementation* row) {
  return *static_cast<const Liar*>(row->user);
}

rlk_status query(const rlk_implementation* self, rlk_plugin_device* device, const rlk_call_desc* call, rlk_support* out,
                 rlk_error* error) {
  const Liar& liar = liar_of(self);
  const View view(liar, *call);
  Without<rlk_call_desc> seen(view.hidden(), *call);
  seen->params = view.params();
  return liar.honest->query(liar.honest, device, seen.get(), out, error);
}

rlk_status plan_create(const rlk_implementation* self, rlk_plugin_device* device, const rlk_call_desc* call,
                       rlk_plugin_plan** out, rlk_plan_info* info, rlk_error* error) {
  const Liar& liar = liar_of(self);
  const View view(liar, *call);
  Without<rlk_call_desc> seen(view.hidden(), *call);
  seen->params = view.params();
  auto plan = std::make_unique<Plan>(Plan{liar.honest, view.hidden(), nullptr});
  const rlk_status status = liar.honest->plan_create(liar.honest, device, seen.get(), &plan->plan, info, error);
  if (status == RLK_OK) *out = reinterpret_cast<rlk_plugin_plan*>(plan.release());
  return status;
}

rlk_status plan_prepare(rlk_plugin_plan* handle, const rlk_run* run, uint64_t* bytes, rlk_error* error) {
  const Plan& plan = plan_of(handle);
  return plan.honest->plan_prepare(plan.plan, Without<rlk_run>(plan.hidden, *run).get(), bytes, error);
}

rlk_status plan_enqueue(rlk_plugin_plan* handle, rlk_plugin_stream* stream, const rlk_run* run, rlk_error* error) {
  const Plan& plan = plan_of(handle);
  return plan.honest->plan_enqueue(plan.plan, stream, Without<rlk_run>(plan.hidden, *run).get(), error);
}

rlk_status plan_destroy(rlk_plugin_plan* handle, rlk_error* error) {
  const std::unique_ptr<Plan> plan(&plan_of(handle));
  return plan->honest->plan_destroy(plan->plan, error);
}

std::deque<Liar> liars_about(const OpDecl& decl, const rlk_implementation& honest) {
  std::deque<Liar> list;
  const auto add = [&](int param, int64_t value, int input, const std::string& name) {
    Liar& liar = list.emplace_back(Liar{&decl, &honest, param, value, input, honest, name});
    liar.row.user = &liar;
    liar.row.name = liar.name.c_str();
    liar.row.query = query;
    liar.row.plan_create = plan_create;
    liar.row.plan_prepare = honest.plan_prepare != nullptr ? plan_prepare : nullptr;
    liar.row.plan_enqueue = plan_enqueue;
    liar.row.plan_destroy = plan_destroy;
  };
  for (int i = 0; i < static_cast<int>(decl.params.size()); ++i) {
    const ParamDecl& param = decl.params[static_cast<size_t>(i)];
    if (i == decl.form_param) continue;  // the form is in the shapes: a plugin cannot mistake it
    if (param.type != ParamType::enumeration) add(i, -1, -1, param.name);
    for (size_t value = 0; value < param.values.size(); ++value) {
      const auto number = static_cast<int64_t>(value);
      if (number != param.default_i64) add(i, number, -1, std::string(param.name) + "=" + param.values[value]);
    }
  }
  for (size_t i = 0; i < decl.inputs.size(); ++i) {
    if (decl.inputs[i].optional) add(-1, -1, static_cast<int>(i), decl.inputs[i].name);
  }
  return list;
}

// A straight-through estimator has another gradient and the same value. Ignoring it in the forward operator changes
// nothing, and the liar of the backward operator is caught. No generated ratio of
// grpo_loss, and no generated difference of ratio_kl or log-probability of topk_kl, lies exactly at a bound; no
// generated rollout_logp is missing (their unit tests make some that do).
bool is_no_lie(std::string_view op, std::string_view name) {
  return (op == "policy_loss" && name.substr(0, 11) == "kl_gradient") ||
         (op.substr(0, 11) == "policy_loss" && name == "rollout_missing=one") ||
         ((op == "grpo_loss_backward" || op == "ratio_kl_backward" || op == "logits_ratio_kl_backward" ||
           op == "topk_kl_backward") &&
          name.substr(0, 14) == "clamp_gradient");
}

using Liars = liars::OfOperator;

TEST_P(Liars, AreAllCaughtByTheSmokeTest) {
  const OpDecl& decl = *GetParam();
  const rlk_implementation& honest = liars::honest_implementation(decl);
  const std::deque<Liar> list = liars_about(decl, honest);
  std::vector<const rlk_implementation*> rows;
  for (const Liar& liar : list) rows.push_back(&liar.row);
  const auto lies = [&](size_t i, const conformance::Work&, const rlk_call_desc& call) {
    return View(list[i], call).hides();
  };
  const liars::Refused refused =
      liars::caught_where_they_lie(decl, rows, lies, [&](const char* name) { return is_no_lie(decl.name, name); });
  int caught = 0, no_lies = 0;
  for (const Liar& liar : list) {
    const bool is_caught = refused.count(liar.name) != 0;
    if (is_no_lie(decl.name, liar.name)) {
      EXPECT_FALSE(is_caught) << decl.name << " " << liar.name << " does change a value: it is a lie after all";
      ++no_lies;
      continue;
    }
    caught += is_caught ? 1 : 0;
    EXPECT_TRUE(is_caught) << decl.name << ": the smoke test misses a plugin that ignores " << liar.name;
  }
  std::printf("%-24s %3zu liars tried, %3d caught, %d change nothing\n", decl.name, list.size(), caught, no_lies);
}

INSTANTIATE_TEST_SUITE_P(Operators, Liars, ::testing::ValuesIn(liars::operators_against("Liars")),
                         liars::name_of_operator);

}  // namespace
}  // namespace rlk::core
