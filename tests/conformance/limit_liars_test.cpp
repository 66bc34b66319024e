// Does the smoke test notice results that are close, and still cannot be? For every output with a declared limit there
// is an implementation that passes it by less than any bound allows (a log-probability above 0), and one that takes it
// from an lse with a bit of its own. For every backward of scores there are two with an lse that is off by its last
// bit, as in one that rounds products before it subtracts (a p above 1, and one below).
#include <atomic>
#include <cmath>
#include <cstring>
#include <deque>
#include <limits>
#include <memory>
#include <set>

#include "conformance/liars.hpp"
#include "core/declaration/extremes.hpp"

namespace rlk::core {
namespace {

struct Liar {
  const OpDecl* decl = nullptr;
  const rlk_implementation* honest = nullptr;
  int output = -1;     // whose limit it passes
  int lse = -1;        // the input that it has a bit beside, or the output that it takes its own from
  float towards = 0;   // which side of lse, or 0: only the limit is passed
  bool below = false;  // the lower limit
  rlk_implementation row{};
  std::string name{};
  mutable bool lied = false;  // of those that pass a limit: some number was near enough
};

struct Plan {
  const Liar* liar;
  rlk_plugin_plan* plan;
  int64_t ignored_id;
};
Plan& plan_of(rlk_plugin_plan* handle) {
  return *reinterpret_cast<Plan*>(handle);
}
const Liar& liar_of(const rlk_implementation* row) {
  return *static_cast<const Liar*>(row->user);
}

// The n-th number of a tensor of rows, whatever its shape.
template <typename T>
T& at(const rlk_tensor& tensor, int64_t n) {
  int64_t offset = 0;
  for (int32_t axis = tensor.ndim - 1; axis >= 0; --axis) {
    offset += n % tensor.shape[axis] * tensor.strides[axis];
    n /= tensor.shape[axis];
  }
  return reinterpret_cast<T*>(static_cast<char*>(tensor.data) + tensor.byte_offset)[offset];
}
int64_t rows_of(const rlk_tensor& tensor) {
  int64_t rows = 1;
  for (int32_t axis = 0; axis < tensor.ndim; ++axis) rows *= tensor.shape[axis];
  return rows;
}
std::vector<int64_t> contiguous(const rlk_tensor& tensor) {
  std::vector<int64_t> strides(static_cast<size_t>(tensor.ndim), 1);
  for (int32_t axis = tensor.ndim - 2; axis >= 0; --axis) {
    strides[static_cast<size_t>(axis)] = strides[static_cast<size_t>(axis) + 1] * tensor.shape[axis + 1];
  }
  return strides;
}
int64_t integer_at(const rlk_tensor& tensor, int64_t n) {
  if (sdk::dtype_of(tensor) == sdk::Dtype::u8) return at<uint8_t>(tensor, n);
  return sdk::dtype_of(tensor) == sdk::Dtype::i32 ? at<int32_t>(tensor, n) : at<int64_t>(tensor, n);
}

// A row that is ignored is 0 by definition, and any other number is wrong there.
bool is_ignored(const Plan& plan, const rlk_run& run, int64_t n) {
  for (uint32_t i = 0; i < run.n_inputs; ++i) {
    if (run.inputs[i] == nullptr) continue;
    const Domain kind = plan.liar->decl->inputs[i].domain.kind;
    if (kind == Domain::id && integer_at(*run.inputs[i], n) == plan.ignored_id) return true;
    const bool of_rows = run.inputs[i]->ndim == run.outputs[plan.liar->output]->ndim;  // and not of scores
    if (kind == Domain::mask && of_rows && integer_at(*run.inputs[i], n) == 0) return true;
  }
  return false;
}

rlk_status query(const rlk_implementation* self, rlk_plugin_device* device, const rlk_call_desc* call, rlk_support* out,
                 rlk_error* error) {
  const Liar& liar = liar_of(self);
  return liar.honest->query(liar.honest, device, call, out, error);
}

rlk_status plan_create(const rlk_implementation* self, rlk_plugin_device* device, const rlk_call_desc* call,
                       rlk_plugin_plan** out, rlk_plan_info* info, rlk_error* error) {
  const Liar& liar = liar_of(self);
  auto plan = std::make_unique<Plan>(Plan{&liar, nullptr, 0});
  for (const ParamDecl& param : liar.decl->params) {
    if (std::string_view(param.name) != "ignore_index") continue;
    std::memcpy(&plan->ignored_id, static_cast<const char*>(call->params) + param.offset, sizeof(plan->ignored_id));
  }
  const rlk_status status = liar.honest->plan_create(liar.honest, device, call, &plan->plan, info, error);
  if (status == RLK_OK) *out = reinterpret_cast<rlk_plugin_plan*>(plan.release());
  return status;
}

rlk_status plan_prepare(rlk_plugin_plan* handle, const rlk_run* run, uint64_t* bytes, rlk_error* error) {
  const Plan& plan = plan_of(handle);
  return plan.liar->honest->plan_prepare(plan.plan, run, bytes, error);
}

rlk_status enqueue_with_another_lse(const Plan& plan, rlk_plugin_stream* stream, const rlk_run& run, rlk_error* error) {
  std::vector<const rlk_tensor*> inputs(run.inputs, run.inputs + run.n_inputs);
  const rlk_tensor*& input = inputs[static_cast<size_t>(plan.liar->lse)];
  rlk_tensor lse = *input;
  std::vector<float> others;
  for (int64_t n = 0; n < rows_of(lse); ++n) others.push_back(std::nextafter(at<float>(lse, n), plan.liar->towards));
  const std::vector<int64_t> strides = contiguous(lse);
  lse.data = others.data();
  lse.byte_offset = 0;
  lse.alignment = alignof(float);
  lse.strides = strides.data();
  input = &lse;
  rlk_run seen = run;
  seen.inputs = inputs.data();
  return plan.liar->honest->plan_enqueue(plan.plan, stream, &seen, error);
}

// What its answer would be as a score minus a rounded lse, on the side that no limit forbids. Where lse is not asked
// for it has one of its own.
rlk_status enqueue_from_lse(const Plan& plan, rlk_plugin_stream* stream, const rlk_run& run, rlk_error* error) {
  const Liar& liar = *plan.liar;
  const rlk_tensor* out = run.outputs[liar.output];
  std::vector<const rlk_tensor*> outputs(run.outputs, run.outputs + run.n_outputs);
  const rlk_tensor*& lse = outputs[static_cast<size_t>(liar.lse)];
  if (out == nullptr || sdk::dtype_of(*out) != sdk::Dtype::f32) {
    return liar.honest->plan_enqueue(plan.plan, stream, &run, error);
  }
  rlk_tensor own = *out;
  std::vector<float> numbers(static_cast<size_t>(rows_of(own)));
  const std::vector<int64_t> strides = contiguous(own);
  own.data = numbers.data();
  own.byte_offset = 0;
  own.alignment = alignof(float);
  own.strides = strides.data();
  if (lse == nullptr) lse = &own;
  rlk_run seen = run;
  seen.outputs = outputs.data();
  const rlk_status status = liar.honest->plan_enqueue(plan.plan, stream, &seen, error);
  for (int64_t n = 0; status == RLK_OK && n < rows_of(*out); ++n) {
    float& number = at<float>(*out, n);
    if (!std::isfinite(number) || is_ignored(plan, run, n)) continue;
    number += std::copysign(std::fabs(at<float>(*lse, n)) * 0x1p-24F, liar.towards);
  }
  return status;
}

rlk_status plan_enqueue(rlk_plugin_plan* handle, rlk_plugin_stream* stream, const rlk_run* run, rlk_error* error) {
  const Plan& plan = plan_of(handle);
  const Liar& liar = *plan.liar;
  if (liar.output < 0) return enqueue_with_another_lse(plan, stream, *run, error);
  if (liar.lse >= 0) return enqueue_from_lse(plan, stream, *run, error);
  const rlk_status status = liar.honest->plan_enqueue(plan.plan, stream, run, error);
  const rlk_tensor* out = run->outputs[liar.output];
  if (status != RLK_OK || out == nullptr || sdk::dtype_of(*out) != sdk::Dtype::f32) return status;
  const Limits declared = limits_of(liar.decl->name, liar.decl->outputs[static_cast<size_t>(liar.output)].name);
  constexpr float kLittle = 1e-7F;  // an ulp of 1: what rounding does to a sum
  const auto limit = static_cast<float>(liar.below ? declared.at_least : declared.at_most);
  for (int64_t n = 0; n < rows_of(*out); ++n) {
    float& number = at<float>(*out, n);
    const bool is_near = std::fabs(number - limit) <= kLittle;  // a NaN is not
    if (!is_near || is_ignored(plan, *run, n)) continue;
    number = limit + (liar.below ? -kLittle : kLittle);
    std::atomic_ref<bool>(liar.lied).store(true, std::memory_order_relaxed);
  }
  return status;
}

rlk_status plan_destroy(rlk_plugin_plan* handle, rlk_error* error) {
  const std::unique_ptr<Plan> plan(&plan_of(handle));
  return plan->liar->honest->plan_destroy(plan->plan, error);
}

std::deque<Liar> liars_about(const OpDecl& decl, const rlk_implementation& honest) {
  std::deque<Liar> list;
  const auto add = [&](int output, int lse, float towards, const std::string& name, bool below = false) {
    Liar& liar = list.emplace_back(Liar{&decl, &honest, output, lse, towards, below, honest, name});
    liar.row.user = &liar;
    liar.row.name = liar.name.c_str();
    liar.row.query = query;
    liar.row.plan_create = plan_create;
    liar.row.plan_prepare = honest.plan_prepare != nullptr ? plan_prepare : nullptr;
    liar.row.plan_enqueue = plan_enqueue;
    liar.row.plan_destroy = plan_destroy;
  };
  const auto index_of = [](const auto& arguments, std::string_view name) {
    for (size_t i = 0; i < arguments.size(); ++i) {
      if (arguments[i].name == name) return static_cast<int>(i);
    }
    return -1;
  };
  const int lse_output = index_of(decl.outputs, "lse"), lse_input = index_of(decl.inputs, "lse");
  // A divergence of two models has an lse of each, whose roundings are no part of it.
  const bool compares_inputs = std::any_of(decl.inputs.begin(), decl.inputs.end(), [&](const ArgDecl& input) {
    return !close_to(decl.name, input.name).empty();
  });
  for (size_t i = 0; i < decl.outputs.size(); ++i) {
    const std::string output = decl.outputs[i].name;
    const Limits limits = limits_of(decl.name, output);
    const bool has_most = std::isfinite(limits.at_most), has_least = std::isfinite(limits.at_least);
    if (has_most) add(static_cast<int>(i), -1, 0, output + " above its limit");
    if (has_least) add(static_cast<int>(i), -1, 0, output + " below its limit", true);
    if (!has_most && !has_least) continue;
    const float towards = has_most ? -HUGE_VALF : HUGE_VALF;
    if (lse_output >= 0 && (has_most || !compares_inputs))
      add(static_cast<int>(i), lse_output, towards, output + " from the rounded lse");
  }
  const bool of_scores = std::any_of(decl.inputs.begin(), decl.inputs.end(), [&](const ArgDecl& input) {
    return extreme_of(decl.name, input.name) != Extreme::none;
  });
  if (of_scores && lse_input >= 0) {
    add(-1, lse_input, -HUGE_VALF, "p above 1");
    add(-1, lse_input, HUGE_VALF, "p below what it is");
  }
  return list;
}

using LimitLiars = liars::OfOperator;

TEST_P(LimitLiars, AreAllCaughtByTheSmokeTest) {
  const OpDecl& decl = *GetParam();
  const rlk_implementation& honest = liars::honest_implementation(decl);
  const std::deque<Liar> list = liars_about(decl, honest);
  if (list.empty()) GTEST_SKIP() << decl.name << " has no declared limit";
  std::vector<const rlk_implementation*> rows;
  for (const Liar& liar : list) rows.push_back(&liar.row);
  const liars::Refused refused = liars::caught_by_the_smoke_test(decl, honest, rows);
  EXPECT_EQ(refused.count(honest.name), 0u) << "an honest implementation fails: the liars prove nothing";
  std::set<int> passed, near;  // outputs that have a limit, and those that come near one
  for (const Liar& liar : list) {
    std::printf("%-26s %-34s ", decl.name, liar.name.c_str());
    if (liar.output >= 0 && liar.towards == 0) {
      passed.insert(liar.output);
      if (!liar.lied) {
        std::puts("nothing comes near it");
        continue;
      }
      near.insert(liar.output);
    }
    const auto found = refused.find(liar.name);
    ASSERT_NE(found, refused.end()) << decl.name << ": the smoke test misses a plugin with " << liar.name;
    std::puts(found->second.c_str());
    // What is 0 by definition somewhere is wrong there before it is beyond a limit.
    const bool by_limit = liar.towards == 0 && found->second == "BEYOND_LIMIT";
    EXPECT_TRUE(by_limit || found->second == "WRONG_RESULT") << decl.name << ": " << liar.name;
  }
  EXPECT_EQ(near, passed) << decl.name
                          << ": an output with limits comes near none: nothing shows that it is held to them";
}

INSTANTIATE_TEST_SUITE_P(Operators, LimitLiars, ::testing::ValuesIn(liars::all_operators()), liars::name_of_operator);

}  // namespace
}  // namespace rlk::core
