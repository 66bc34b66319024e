// Is a running process safe from its own check? The check of calls against the reference runs over every operator, with
// sizes in every order, and nothing readable about any tensor: it may not read beyond one, and what is right stays on.
#include "conformance/shadowed.hpp"

#include <algorithm>
#include <cmath>
#include <set>

#include "conformance/misreading.hpp"
#include "core/conformance/data.hpp"
#include "core/conformance/data_errors.hpp"
#include "core/conformance/elements.hpp"
#include "core/conformance/orders.hpp"
#include "core/conformance/schedule.hpp"
#include "framework/sample.hpp"

namespace rlk::core {
namespace {

using namespace conformance;

class ShadowCheckOf : public liars::OfOperator {};

// The calls of one operator.
class Calls {
public:
  explicit Calls(const OpDecl& decl) : decl_(decl), runtime_(liars::cpu_plugin()) {}

  void try_both_places(const Case& c) {
    ConcreteCall call;
    if (::testing::Test::HasFatalFailure() || !resolve(c, call)) return;
    const std::string words = std::string(decl_.name) + " " + describe(c, call);
    if (!seen_.insert(words).second) return;
    fill_inputs(c, 1, call);
    for (const bool at_end : {true, false}) {
      if (!memory_.place(call, at_end)) return;
      ASSERT_EQ(runtime_.run(call, memory_.inputs(), memory_.outputs()), RLK_OK) << words << ": " << runtime_.last.text;
      ASSERT_EQ(runtime_.statistics().wrong, 0u) << words << " was right: " << text_of_what_is_off();
    }
    ++calls_;
  }
  int calls() const { return calls_; }
  ShadowStatistics statistics() const { return runtime_.statistics(); }

private:
  std::string text_of_what_is_off() {
    rlk_error error = {sizeof(rlk_error), 0, 0, {}, {}};
    static_cast<void>(runtime_.dispatcher->synchronize(*runtime_.stream, UINT64_MAX, &error));
    return error.text;
  }

  const OpDecl& decl_;
  ShadowedRuntime runtime_;
  GuardedCall memory_;
  std::set<std::string> seen_;
  int calls_ = 0;
};

TEST_P(ShadowCheckOf, ReadsNothingBesideTheTensorsAndLeavesOnWhatIsRight) {
  const OpDecl& decl = *GetParam();
  Calls calls(decl);
  for (size_t dtype = 0; dtype < unit_dtype_count(decl); ++dtype) {
    for (size_t form = 0; form < decl.forms.size(); ++form) {
      const int d = static_cast<int>(dtype), f = static_cast<int>(form);
      for (const Case& c : plain_cases(decl, d, f, true, {})) calls.try_both_places(c);
      for (const Case& c : order_cases(decl, d, f, {})) calls.try_both_places(c);
      for (const Case& base : variation_bases(decl, d, f, true)) {
        for (const Case& c : single_cases(base, true)) {
          ConcreteCall call;
          if (resolve(c, call) && test::is_in_sample(describe(c, call))) calls.try_both_places(c);
        }
      }
    }
  }
  const ShadowStatistics statistics = calls.statistics();
  std::printf("%-28s %4d calls, %llu compared, %llu passed over\n", decl.name, calls.calls(),
              static_cast<unsigned long long>(statistics.compared),
              static_cast<unsigned long long>(statistics.passed_over));
  EXPECT_GT(statistics.compared, 0u);
}

// Of unpaired sequences there may be fewer rejected than chosen ones.
TEST(ShadowCheckKto, WithFewerRejectedThanChosenSequencesStaysOn) {
  Calls calls(*find_declaration("preference_loss"));
  const OpDecl& decl = *find_declaration("preference_loss");
  Case c;
  c.decl = &decl;
  Variation& kto = c.variations.emplace_back();
  kto.try_param = param_index(decl, "kind");
  const auto& kinds = decl.params[static_cast<size_t>(kto.try_param)].values;
  kto.try_value = static_cast<double>(
      std::find_if(kinds.begin(), kinds.end(), [](std::string_view kind) { return kind == "kto"; }) - kinds.begin());
  kto.present = uint64_t{0b11111} << 32;
  for (const auto& [chosen, rejected] : {std::pair{64, 8}, {8, 64}, {64, 1}, {5000, 7}, {7, 5000}, {64, 64}}) {
    c.size_given[0] = chosen;
    c.size_given[1] = rejected;
    calls.try_both_places(c);
  }
  EXPECT_EQ(calls.statistics().compared, 12u);
}

// ---- what the stream should have told

// Takes ids that are not there for the first one, and reports nothing.
void clamp_ids(const liars::Misreading& liar, const Values& values, const rlk_run& run, liars::Edits& edits) {
  for (uint32_t i = 0; i < run.n_inputs; ++i) {
    const DomainDecl& domain = liar.decl->inputs[i].domain;
    if (domain.kind != Domain::id) continue;
    const int64_t low = domain.low.eval(values), high = domain.high.eval(values);
    for (const liars::Element& element : liars::elements_of(run.inputs[i])) {
      if (element.get() < low || element.get() >= high) edits.set(element, low);
    }
  }
}

// A runtime of one liar, or of the honest implementation, and calls of embedding with a data error.
class Silence : public ::testing::Test {
protected:
  void start(bool honest) {
    liar_.misread = clamp_ids;
    liars::complete(liar_);
    rows_ = {honest ? &liars::honest_implementation(decl_) : &liar_.row};
    plugin_ = liars::plugin_of(rows_);
    runtime_ = std::make_unique<ShadowedRuntime>(plugin_);
  }
  ConcreteCall filled(Content content) {
    Case c = plain_cases(decl_, 0, 0, true, {})[0];
    c.content = content;
    ConcreteCall call;
    EXPECT_TRUE(resolve(c, call));
    c.fault = faults_of(call, /*every=*/true)[1];  // in the first row, which every sample has
    fill_inputs(c, 1, call);
    return call;
  }
  // Without asking the stream.
  rlk_status call(const ConcreteCall& call) {
    EXPECT_TRUE(memory_.place(call, true));
    return runtime_->dispatcher->call(*runtime_->stream, decl_, call.params.data(), memory_.inputs(), memory_.outputs(),
                                      {}, &error_);
  }
  rlk_status synchronize() {
    error_ = {sizeof(rlk_error), 0, 0, {}, {}};
    return runtime_->dispatcher->synchronize(*runtime_->stream, UINT64_MAX, &error_);
  }
  uint64_t wrong() {
    runtime_->dispatcher->shadow_check().settle();
    return runtime_->statistics().wrong;
  }
  std::string text() const { return error_.text; }

private:
  const OpDecl& decl_ = *find_declaration("embedding");
  liars::Misreading liar_{&decl_, &liars::honest_implementation(decl_), "clamps"};
  std::vector<const rlk_implementation*> rows_;
  rlk_plugin plugin_{};
  std::unique_ptr<ShadowedRuntime> runtime_;
  GuardedCall memory_;
  rlk_error error_ = {sizeof(rlk_error), 0, 0, {}, {}};
};

TEST_F(Silence, AboutADataErrorIsAWrongResultWhetherTheStreamIsAskedFirstOrTheCallIsJudgedFirst) {
  for (const bool asked_first : {true, false}) {
    start(/*honest=*/false);
    ASSERT_EQ(call(filled(Content::fault)), RLK_OK) << text();
    if (asked_first) {
      // Whichever question finds the comparison done tells it.
      const rlk_status first = synchronize();
      EXPECT_EQ(wrong(), 1u);
      EXPECT_EQ(first == RLK_OK ? synchronize() : first, RLK_WRONG_RESULT);
    } else {
      EXPECT_EQ(wrong(), 0u) << "the stream was not asked yet";
      EXPECT_EQ(synchronize(), RLK_WRONG_RESULT);
    }
    EXPECT_EQ(wrong(), 1u);
    EXPECT_NE(text().find("the stream told of none: embedding: row"), std::string::npos) << text();
    EXPECT_EQ(synchronize(), RLK_OK) << "told once";
  }
}

TEST_F(Silence, OfAnHonestPluginIsNone) {
  start(/*honest=*/true);
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(call(filled(Content::fault)), RLK_OK) << text();
    if (i == 1) {
      EXPECT_EQ(wrong(), 0u);
    }
    EXPECT_EQ(synchronize(), RLK_DATA_ERROR);
    EXPECT_EQ(wrong(), 0u);
    ASSERT_EQ(call(filled(Content::ordinary)), RLK_OK) << text();
    EXPECT_EQ(synchronize(), RLK_OK) << text();
  }
  // Of several errors the stream tells the first one alone.
  for (int i = 0; i < 3; ++i) ASSERT_EQ(call(filled(Content::fault)), RLK_OK) << text();
  EXPECT_EQ(synchronize(), RLK_DATA_ERROR);
  EXPECT_EQ(synchronize(), RLK_OK) << text();
  EXPECT_EQ(wrong(), 0u);
}

// The test never asks the stream, so nothing waits for it.
TEST_F(Silence, OfAStreamThatIsNotAskedIsNoVerdict) {
  start(/*honest=*/false);
  for (int i = 0; i < 100; ++i) ASSERT_EQ(call(filled(Content::fault)), RLK_OK) << text();
  EXPECT_EQ(wrong(), 0u);
}

// ---- what explains a wrong result

TEST(ShadowCheckHint, NamesAMaskOfWhichOnesAloneCount) {
  const OpDecl& decl = *find_declaration("value_loss");
  liars::Misreading liar{&decl, &liars::honest_implementation(decl), "ones", liars::count_ones_alone};
  liars::complete(liar);
  const std::vector<const rlk_implementation*> rows = {&liar.row};
  const rlk_plugin plugin = liars::plugin_of(rows);
  ShadowedRuntime runtime(plugin);
  GuardedCall memory;
  Case c = plain_cases(decl, 0, 0, true, {})[0];
  const int mask = input_index(decl, "mask");
  ASSERT_GE(mask, 0);
  if (decl.inputs[static_cast<size_t>(mask)].optional) c.variations.emplace_back().present = uint64_t{1} << mask;
  ConcreteCall call;
  ASSERT_TRUE(resolve(c, call));
  fill_inputs(c, 1, call);
  for (Argument& input : call.inputs) {  // what a mask hides is no number in cases, and no verdict is given over such
    for (int64_t k = 0; input.present && is_floating(input.dtype) && k < input.count(); ++k)
      set(input, k, std::isfinite(get(input, k)) ? get(input, k) : 0.5);
  }
  ASSERT_TRUE(memory.place(call, true));
  // Where the comparison is quicker than this thread, the first question already tells what it found.
  rlk_status told = runtime.run(call, memory.inputs(), memory.outputs());
  ASSERT_EQ(runtime.statistics().wrong, 1u);
  if (told == RLK_OK) told = runtime.dispatcher->synchronize(*runtime.stream, UINT64_MAX, &runtime.last);
  EXPECT_EQ(told, RLK_WRONG_RESULT) << runtime.last.text;
  EXPECT_NE(std::string(runtime.last.text).find("is the mask compared with 1"), std::string::npos) << runtime.last.text;
}

INSTANTIATE_TEST_SUITE_P(Operators, ShadowCheckOf, ::testing::ValuesIn(liars::all_operators()),
                         liars::name_of_operator);

}  // namespace
}  // namespace rlk::core
