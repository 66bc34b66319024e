// Decoding and prefill: a class that says that a query's bits depend on nothing beside it must hold between a call of
// many queries and steps of one, for every attention; and sizes that need lengths of queries are reached.
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "conformance/liars.hpp"
#include "conformance/spoiler.hpp"
#include "core/conformance/cases.hpp"
#include "core/conformance/elements.hpp"

namespace rlk::core {
namespace {

constexpr size_t kQueries = 0, kQueryLengths = 5;  // inputs of paged_attention

std::vector<UnitResult> tried(const OpDecl& decl, const rlk_implementation& row) {
  rlk_plugin plugin = liars::cpu_plugin();
  const rlk_implementation* const rows[] = {&row};
  plugin.implementations = rows;
  plugin.n_implementations = 1;
  const simple::OpenTarget target(&plugin, loader::host_services());
  ConformanceOptions options;
  options.ops = {decl.name};
  options.dtype = "f32";
  options.smoke = true;
  return run_conformance(target.target(), options);
}

// The last bit of every number but 0: within every bound, the same in all calls of one kind.
void change_last_bits(const rlk_tensor& output) {
  std::vector<int64_t> index(static_cast<size_t>(output.ndim), 0);
  for (int64_t i = 0; i < liars::elements(output); ++i) {
    int64_t rest = i;
    for (size_t axis = index.size(); axis-- > 0; rest /= output.shape[axis]) index[axis] = rest % output.shape[axis];
    std::byte* const element = liars::element_at(output, index);
    float value = 0;
    std::memcpy(&value, element, sizeof(value));
    if (value != 0) element[0] ^= std::byte{1};
  }
}

struct Attention {
  const char* op;
  bool (*is_step)(const liars::Execution& e);  // of decoding
};
// q is [sequence, query, ..], with samples before the queries, or [token, ..] beside cumulative lengths.
constexpr Attention kAttentions[] = {
    {"attention",
     [](const liars::Execution& e) {
       const rlk_tensor& q = *e.run.inputs[kQueries];
       if (q.ndim == 4) return q.shape[1] == 1;
       constexpr size_t kLengths = 3;
       return q.shape[0] <= e.run.inputs[kLengths]->shape[0] - 1;
     }},
    {"prefix_shared_attention", [](const liars::Execution& e) { return e.run.inputs[kQueries]->shape[2] == 1; }},
    {"paged_attention", [](const liars::Execution& e) { return e.run.inputs[kQueryLengths] == nullptr; }},
};

class Decoding : public testing::TestWithParam<Attention> {};

TEST_P(Decoding, OfALastBitThatDiffersInAStepIsNotBatchInvariant) {
  const OpDecl& decl = *find_declaration(GetParam().op);
  const rlk_implementation& honest = liars::honest_implementation(decl);
  for (const UnitResult& unit : tried(decl, honest)) {
    EXPECT_NE(unit.verdict, UnitResult::Verdict::failed) << unit.feature << ": " << unit.reason;
    if (unit.verdict != UnitResult::Verdict::verified) continue;
    EXPECT_NE(unit.numerics & RLK_NUMERICS_BATCH_INVARIANT, 0u) << unit.feature;
  }
  liars::Spoiler liar(honest, "decoding", "liar");
  liar.lies = [](liars::PlanMemory&, const liars::Execution& e) { return GetParam().is_step(e); };
  liar.spoils = change_last_bits;
  int refused = 0;
  for (const UnitResult& unit : tried(decl, liar.row())) {
    if (unit.verdict != UnitResult::Verdict::failed) continue;
    EXPECT_EQ(unit.reason_code, "NOT_BATCH_INVARIANT") << unit.reason;
    EXPECT_NE(unit.reason.find(" query of each sequence as a decoding step"), std::string::npos) << unit.reason;
    ++refused;
  }
  EXPECT_GT(refused, 0);
}
INSTANTIATE_TEST_SUITE_P(Attentions, Decoding, testing::ValuesIn(kAttentions),
                         [](const auto& instance) { return std::string(instance.param.op); });

TEST(PagedAttention, IsTriedBesideASwitchOfQueriesThatNeedsTheirLengths) {
  const OpDecl& decl = *find_declaration("paged_attention");
  const rlk_switch change = {sizeof(rlk_switch), 0, "Tq", 129};
  EXPECT_TRUE(conformance::is_tested(decl, 0, change));
  const rlk_switch* const switches[] = {&change};
  std::vector<int64_t> queries;
  for (const conformance::Case& c : conformance::sizes_of_switches(decl, 0, 0, true, switches)) {
    conformance::ConcreteCall call;
    ASSERT_TRUE(conformance::resolve(c, call));
    EXPECT_NE(conformance::find_domain(call, Domain::cu_seqlens), nullptr);
    queries.push_back(call.inputs[kQueries].shape[0]);
  }
  EXPECT_EQ(queries, (std::vector<int64_t>{128, 129, 130}));
}

}  // namespace
}  // namespace rlk::core
