// Does the smoke test notice results that are close, and still cannot be? For every output with a declared limit there
// is an implementation that passes it by less than any bound allows (a log-probability above 0), and for every backward
// of scores one that takes an lse that is off by its last bit, as one does that rounds products before it subtracts (a
// p above 1).
#include <cmath>
#include <cstring>
#include <deque>
#include <limits>
#include <memory>

#include "conformance/liars.hpp"
#include "core/declaration/extremes.hpp"

namespace rlk::core {
namespace {

struct Liar {
  const OpDecl* decl = nullptr;
  const rlk_implementation* honest = nullptr;
  int output = -1;  // whose limit it passes
  int lse = -1;     // the input that it has a bit below
  rlk_implementation row{};
  std::string name{};
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

// Row n of a tensor [N].
template <typename T>
T& at(const rlk_tensor& tensor, int64_t n) {
  return reinterpret_cast<T*>(static_cast<char*>(tensor.data) + tensor.byte_offset)[n * tensor.strides[0]];
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
    if (kind == Domain::mask && integer_at(*run.inputs[i], n) == 0) return true;
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

rlk_status enqueue_with_lower_lse(const Plan& plan, rlk_plugin_stream* stream, const rlk_run& run, rlk_error* error) {
  std::vector<const rlk_tensor*> inputs(run.inputs, run.inputs + run.n_inputs);
  const rlk_tensor*& input = inputs[static_cast<size_t>(plan.liar->lse)];
  rlk_tensor lse = *input;
  std::vector<float> lower;
  for (int64_t n = 0; n < lse.shape[0]; ++n) lower.push_back(std::nextafter(at<float>(lse, n), -HUGE_VALF));
  const int64_t stride = 1;
  lse.data = lower.data();
  lse.byte_offset = 0;
  lse.alignment = alignof(float);
  lse.strides = &stride;
  input = &lse;
  rlk_run seen = run;
  seen.inputs = inputs.data();
  return plan.liar->honest->plan_enqueue(plan.plan, stream, &seen, error);
}

rlk_status plan_enqueue(rlk_plugin_plan* handle, rlk_plugin_stream* stream, const rlk_run* run, rlk_error* error) {
  const Plan& plan = plan_of(handle);
  const Liar& liar = *plan.liar;
  if (liar.lse >= 0) return enqueue_with_lower_lse(plan, stream, *run, error);
  const rlk_status status = liar.honest->plan_enqueue(plan.plan, stream, run, error);
  const rlk_tensor* out = run->outputs[liar.output];
  if (status != RLK_OK || out == nullptr || sdk::dtype_of(*out) != sdk::Dtype::f32) return status;
  const Limits declared = limits_of(liar.decl->name, liar.decl->outputs[static_cast<size_t>(liar.output)].name);
  constexpr float kLittle = 1e-7F;  // an ulp of 1: what rounding does to a sum
  const bool is_most = std::isfinite(declared.at_most);
  const auto limit = static_cast<float>(is_most ? declared.at_most : declared.at_least);
  for (int64_t n = 0; n < out->shape[0]; ++n) {
    float& number = at<float>(*out, n);
    if (std::fabs(number - limit) <= kLittle && !is_ignored(plan, *run, n))
      number = limit + (is_most ? kLittle : -kLittle);
  }
  return status;
}

rlk_status plan_destroy(rlk_plugin_plan* handle, rlk_error* error) {
  const std::unique_ptr<Plan> plan(&plan_of(handle));
  return plan->liar->honest->plan_destroy(plan->plan, error);
}

std::deque<Liar> liars_about(const OpDecl& decl, const rlk_implementation& honest) {
  std::deque<Liar> list;
  const auto add = [&](int output, int lse, const std::string& name) {
    Liar& liar = list.emplace_back(Liar{&decl, &honest, output, lse, honest, name});
    liar.row.user = &liar;
    liar.row.name = liar.name.c_str();
    liar.row.query = query;
    liar.row.plan_create = plan_create;
    liar.row.plan_prepare = honest.plan_prepare != nullptr ? plan_prepare : nullptr;
    liar.row.plan_enqueue = plan_enqueue;
    liar.row.plan_destroy = plan_destroy;
  };
  for (size_t i = 0; i < decl.outputs.size(); ++i) {
    const std::string output = decl.outputs[i].name;
    const Limits limits = limits_of(decl.name, output);
    if (std::isfinite(limits.at_most)) add(static_cast<int>(i), -1, output + " above its limit");
    if (std::isfinite(limits.at_least)) add(static_cast<int>(i), -1, output + " below its limit");
  }
  const bool of_scores = std::any_of(decl.inputs.begin(), decl.inputs.end(),
                                     [&](const ArgDecl& input) { return is_extreme(decl.name, input.name); });
  for (size_t i = 0; of_scores && i < decl.inputs.size(); ++i) {
    if (std::string_view(decl.inputs[i].name) == "lse") add(-1, static_cast<int>(i), "p above 1");
  }
  return list;
}

using LimitLiars = liars::OfOperator;

TEST_P(LimitLiars, AreAllCaughtByTheSmokeTest) {
  const OpDecl& decl = *GetParam();
  const rlk_implementation& honest = liars::honest_implementation(decl);
  const std::deque<Liar> list = liars_about(decl, honest);
  if (list.empty()) GTEST_SKIP() << decl.name << " has no declared limit";
  std::vector<const rlk_implementation*> rows = {&honest};
  for (const Liar& liar : list) rows.push_back(&liar.row);
  const std::map<std::string, std::string> refused = liars::refused_by_the_smoke_test(decl, rows);
  EXPECT_EQ(refused.count(honest.name), 0u) << "an honest implementation fails: the liars prove nothing";
  for (const Liar& liar : list) {
    const auto found = refused.find(liar.name);
    ASSERT_NE(found, refused.end()) << decl.name << ": the smoke test misses a plugin with " << liar.name;
    EXPECT_EQ(found->second, liar.lse >= 0 ? "WRONG_RESULT" : "BEYOND_LIMIT") << decl.name << ": " << liar.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Operators, LimitLiars, ::testing::ValuesIn(liars::all_operators()), liars::name_of_operator);

}  // namespace
}  // namespace rlk::core
