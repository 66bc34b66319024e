// Does the smoke test notice an implementation that loses a NaN? For every real input of every operator there are two
// that do: one takes a NaN in it for 0, one for a very low number, which is what fmax and fmin make of it in a clamp or
// a running maximum. For every real parameter there is one that loses NaN, in whatever input, as soon as the parameter
// is not at its default: a clamp that drops them. All of them must be caught, and the table is printed.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <deque>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "conformance/liars.hpp"
#include "core/declaration/validate.hpp"

namespace rlk::core {
namespace {

struct Liar {
  const OpDecl* decl = nullptr;
  const rlk_implementation* honest = nullptr;
  int input = -1;  // or all of them
  int param = -1;  // or always
  float instead = 0;
  rlk_implementation row{};
  std::string name{};
};

struct Plan {
  const Liar* liar;
  bool lies;
  rlk_plugin_plan* plan;
};
Plan& plan_of(rlk_plugin_plan* handle) {
  return *reinterpret_cast<Plan*>(handle);
}
const Liar& liar_of(const rlk_implementation* row) {
  return *static_cast<const Liar*>(row->user);
}

bool lies_in(const Liar& liar, const rlk_call_desc& call) {
  if (liar.param < 0) return true;
  const ParamDecl& param = liar.decl->params[static_cast<size_t>(liar.param)];
  return Values{nullptr, call.params, 0}.f64(param.offset) != param.default_f64;
}

char* start_of(const rlk_tensor& tensor) {
  return static_cast<char*>(tensor.data) + tensor.byte_offset;
}

// Each NaN of a tensor of fp32 numbers.
template <class Visit>
void for_each_nan(const rlk_tensor& tensor, int axis, char* at, Visit&& visit) {
  if (axis < tensor.ndim) {
    for (int64_t i = 0; i < tensor.shape[axis]; ++i) {
      for_each_nan(tensor, axis + 1, at + i * tensor.strides[axis] * static_cast<int64_t>(sizeof(float)), visit);
    }
    return;
  }
  auto* number = reinterpret_cast<float*>(at);
  if (std::isnan(*number)) visit(*number);
}
template <class Visit>
void for_each_nan(const rlk_tensor* tensor, Visit&& visit) {
  const rlk_dtype f32 = abi_of(Dtype::f32);
  if (tensor == nullptr || tensor->data == nullptr || std::memcmp(&tensor->dtype, &f32, sizeof(f32)) != 0) return;
  for_each_nan(*tensor, 0, start_of(*tensor), visit);
}

// The NaN of some inputs are other numbers as long as this lives.
class WithoutNan {
public:
  WithoutNan(const Plan& plan, const rlk_run& run) {
    for (uint32_t i = 0; i < run.n_inputs && plan.lies; ++i) {
      const rlk_tensor* tensor = run.inputs[i];
      if (plan.liar->input >= 0 && plan.liar->input != static_cast<int>(i)) continue;
      const auto kept = places_;
      for_each_nan(tensor, [&](float& number) {
        places_.emplace_back(&number, number);
        number = plan.liar->instead;
      });
      if (places_.size() > kept.size() && is_written(run, *tensor)) places_ = kept;  // in place: the results are there
    }
  }
  ~WithoutNan() {
    for (const auto& [place, number] : places_) *place = number;
  }
  WithoutNan(const WithoutNan&) = delete;
  WithoutNan& operator=(const WithoutNan&) = delete;

private:
  static bool is_written(const rlk_run& run, const rlk_tensor& tensor) {
    return std::any_of(run.outputs, run.outputs + run.n_outputs, [&](const rlk_tensor* output) {
      return output != nullptr && output->data != nullptr && start_of(*output) == start_of(tensor);
    });
  }
  std::vector<std::pair<float*, float>> places_;  // and what was there: a NaN has a sign
};

rlk_status query(const rlk_implementation* self, rlk_plugin_device* device, const rlk_call_desc* call, rlk_support* out,
                 rlk_error* error) {
  const Liar& liar = liar_of(self);
  return liar.honest->query(liar.honest, device, call, out, error);
}

rlk_status plan_create(const rlk_implementation* self, rlk_plugin_device* device, const rlk_call_desc* call,
                       rlk_plugin_plan** out, rlk_plan_info* info, rlk_error* error) {
  const Liar& liar = liar_of(self);
  auto plan = std::make_unique<Plan>(Plan{&liar, lies_in(liar, *call), nullptr});
  const rlk_status status = liar.honest->plan_create(liar.honest, device, call, &plan->plan, info, error);
  if (status == RLK_OK) *out = reinterpret_cast<rlk_plugin_plan*>(plan.release());
  return status;
}

rlk_status plan_prepare(rlk_plugin_plan* handle, const rlk_run* run, uint64_t* bytes, rlk_error* error) {
  const Plan& plan = plan_of(handle);
  return plan.liar->honest->plan_prepare(plan.plan, run, bytes, error);
}

rlk_status plan_enqueue(rlk_plugin_plan* handle, rlk_plugin_stream* stream, const rlk_run* run, rlk_error* error) {
  const Plan& plan = plan_of(handle);
  const WithoutNan changed(plan, *run);
  return plan.liar->honest->plan_enqueue(plan.plan, stream, run, error);  // of the CPU, which has computed on return
}

rlk_status plan_destroy(rlk_plugin_plan* handle, rlk_error* error) {
  const std::unique_ptr<Plan> plan(&plan_of(handle));
  return plan->liar->honest->plan_destroy(plan->plan, error);
}

std::deque<Liar> liars_about(const OpDecl& decl, const rlk_implementation& honest) {
  std::deque<Liar> list;
  const auto add = [&](int input, int param, float instead, const std::string& name) {
    Liar& liar = list.emplace_back(Liar{&decl, &honest, input, param, instead, honest, name});
    liar.row.user = &liar;
    liar.row.name = liar.name.c_str();
    liar.row.query = query;
    liar.row.plan_create = plan_create;
    liar.row.plan_prepare = honest.plan_prepare != nullptr ? plan_prepare : nullptr;
    liar.row.plan_enqueue = plan_enqueue;
    liar.row.plan_destroy = plan_destroy;
  };
  for (size_t i = 0; i < decl.inputs.size(); ++i) {
    const std::span<const NanRule> rules = decl.inputs[i].nan;
    if (std::all_of(rules.begin(), rules.end(), [](const NanRule& r) { return r.reach == NanReach::none; })) continue;
    add(static_cast<int>(i), -1, 0, std::string(decl.inputs[i].name) + ": 0");
    add(static_cast<int>(i), -1, -1e4f, std::string(decl.inputs[i].name) + ": low");
  }
  for (size_t i = 0; i < decl.params.size(); ++i) {
    if (decl.params[i].type != ParamType::f64) continue;
    add(-1, static_cast<int>(i), 0, std::string("where ") + decl.params[i].name);
  }
  return list;
}

// Where the number does what a NaN does. A min_p that is NaN or at most 0 is no limit; a uniform number outside of
// [0, 1) is a failed round; a logit divided by a penalty of 0 is +inf, which gives its row the status that NaN does.
// The square root of a variance far below 0 is NaN. `fill` reads no number of its input.
bool is_no_lie(const std::string& op, const std::string& name) {
  static const std::set<std::string> kNone = {
      "sample min_ps: 0",     "sample min_ps: low", "sample uniform_samples: low", "sample repetition_penalties: 0",
      "whiten variance: low",

      "fill where value"};
  return kNone.count(op + " " + name) != 0;
}

using NanLiars = liars::OfOperator;

TEST_P(NanLiars, AreAllCaughtByTheSmokeTest) {
  const OpDecl& decl = *GetParam();
  const rlk_implementation& honest = liars::honest_implementation(decl);
  const std::deque<Liar> list = liars_about(decl, honest);
  std::vector<const rlk_implementation*> rows;
  for (const Liar& liar : list) rows.push_back(&liar.row);
  const auto lies = [&](size_t i, const conformance::Work& work, const rlk_call_desc& call) {
    using conformance::Content;
    const bool is_one = work.spec.content == Content::one_nan;
    if (!is_one && work.spec.content != Content::nan) return false;
    return lies_in(list[i], call) && (!is_one || list[i].input < 0 || list[i].input == work.spec.nan_input);
  };
  const liars::Refused refused =
      liars::caught_where_they_lie(decl, rows, lies, [&](const char* name) { return is_no_lie(decl.name, name); });
  int caught = 0, no_lies = 0;
  for (const Liar& liar : list) {
    const bool is_caught = refused.count(liar.name) != 0;
    if (is_no_lie(decl.name, liar.name)) {
      EXPECT_FALSE(is_caught) << decl.name << " " << liar.name << " is a lie after all";
      ++no_lies;
      continue;
    }
    caught += is_caught ? 1 : 0;
    EXPECT_TRUE(is_caught) << decl.name << ": the smoke test misses a plugin that loses NaN, " << liar.name;
  }
  std::printf("%-26s %3zu liars tried, %3d caught, %d change nothing\n", decl.name, list.size(), caught, no_lies);
  for (size_t i = 0; i < decl.inputs.size(); ++i) {
    if (decl.inputs[i].nan.empty()) continue;
    const auto verdict = [&](const char* what) {
      const std::string name = std::string(decl.inputs[i].name) + what;
      return refused.count(name) != 0 ? "caught" : is_no_lie(decl.name, name) ? "no lie" : "MISSED";
    };
    std::printf("    %-22s as 0: %-7s as a low number: %s\n", decl.inputs[i].name, verdict(": 0"), verdict(": low"));
  }
}

INSTANTIATE_TEST_SUITE_P(Operators, NanLiars, ::testing::ValuesIn(liars::operators_against("NanLiars")),
                         liars::name_of_operator);

}  // namespace
}  // namespace rlk::core
