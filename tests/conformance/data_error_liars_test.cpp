// Does the smoke test notice an implementation that leaves out one kind of data error? For every input of every
// operator that may have one there are those that look at one end of the range alone, or with one bound too many, or at
// numbers narrowed to 32 bits, each of them in the first rows alone, in those of the middle, or in the last ones. They
// take the number for a good one and tell nothing. All of them must be caught, and the table is printed.
#include <gtest/gtest.h>

#include <cstdio>
#include <deque>
#include <limits>
#include <optional>
#include <set>

#include "conformance/misreading.hpp"
#include "conformance/shared_answers.hpp"
#include "core/conformance/data_errors.hpp"

namespace rlk::core {
namespace {

using liars::Edits;
using liars::Element;
using liars::Misreading;

constexpr int64_t kNear = 8;  // from the end of the range

enum class Blind { just_above, just_below, far_above, far_below, narrowed };
constexpr const char* kBlind[] = {"just above", "just below", "far above", "far below", "of more than 32 bits"};
constexpr const char* kThird[] = {"first", "middle", "last"};

// The range that an element must lie in, ends included.
struct Range {
  int64_t low, high;
};
std::optional<Range> range_of(const DomainDecl& domain, const Values& values, const std::vector<Element>& elements,
                              size_t i) {
  const auto high = [&] { return domain.high.eval(values); };
  const size_t last = elements.size() - 1;
  switch (domain.kind) {
    case Domain::id:
      return Range{domain.low.eval(values), high() - 1};
    case Domain::row_index:
    case Domain::block_table:
      return Range{0, high() - 1};
    case Domain::length:
      return Range{0, high()};
    case Domain::cu_seqlens:
      if (i == 0) return Range{0, 0};
      if (i == last) return Range{high(), high()};
      // Beside a bad number every number looks bad.
      if (elements[i - 1].get() > elements[i + 1].get() || elements[i - 1].get() < 0) return std::nullopt;
      return Range{elements[i - 1].get(), elements[i + 1].get()};
    default:
      return std::nullopt;
  }
}

bool is_blind_to(Blind blind, const Range& range, int64_t value) {
  switch (blind) {
    case Blind::just_above:
      return value > range.high && value - range.high <= kNear;
    case Blind::just_below:
      return value < range.low && range.low - value <= kNear;
    case Blind::far_above:
      return value > range.high && value - range.high > kNear;
    case Blind::far_below:
      return value < range.low && value < range.low - kNear;
    case Blind::narrowed:
      break;
  }
  const auto narrow = static_cast<int32_t>(static_cast<uint32_t>(static_cast<uint64_t>(value)));
  return narrow != value && narrow >= range.low && narrow <= range.high;
}

Misreading blind_to(const OpDecl& decl, size_t input, Blind blind, size_t third) {
  Misreading liar{&decl, &liars::honest_implementation(decl)};
  liar.name = std::string(decl.inputs[input].name) + ": " + kBlind[static_cast<size_t>(blind)] + ", " + kThird[third];
  // In every other case it is honest, as the CPU is.
  for (const int beyond : blind == Blind::narrowed ? std::vector{2, 3} : std::vector{static_cast<int>(blind)}) {
    constexpr int kSpot[] = {1, 0, 2};
    const int fault = static_cast<int>(input) * conformance::kFaultsPerInput + beyond * 3 + kSpot[third];
    liar.occasions.push_back(" data error " + std::to_string(fault + 1) + " ");
  }
  liar.misread = [=](const Misreading& self, const Values& values, const rlk_run& run, Edits& edits) {
    const DomainDecl& domain = self.decl->inputs[input].domain;
    const std::vector<Element> elements = liars::elements_of(run.inputs[input]);
    for (size_t i = 0; i < elements.size(); ++i) {
      // Entries of a block table are read of some rows alone, wherever these are.
      if (domain.kind != Domain::block_table && 3 * i / elements.size() != third) continue;
      const int64_t value = elements[i].get();
      if (domain.ignore_param >= 0 &&
          value == values.i64(self.decl->params[static_cast<size_t>(domain.ignore_param)].offset))
        continue;
      const std::optional<Range> range = range_of(domain, values, elements, i);
      if (range && range->low <= range->high && is_blind_to(blind, *range, value)) edits.set(elements[i], range->low);
    }
  };
  return liar;
}

bool may_be_i64(const OpDecl& decl, const DtypeExpr& dtype) {
  if (dtype.kind == DtypeExpr::Kind::fixed) return dtype.dtype == Dtype::i64;
  const auto& choices = decl.dtypes[static_cast<size_t>(dtype.variable)].choices;
  return std::any_of(choices.begin(), choices.end(), [&](const DtypeExpr& choice) { return may_be_i64(decl, choice); });
}

bool may_be_wrong(const ArgDecl& input) {
  const Domain kind = input.domain.kind;
  return kind == Domain::id || kind == Domain::row_index || kind == Domain::block_table || kind == Domain::length ||
         kind == Domain::cu_seqlens;
}

using DataErrorLiars = liars::OfOperator;

TEST_P(DataErrorLiars, AreAllCaughtByTheSmokeTest) {
  const OpDecl& decl = *GetParam();
  std::deque<Misreading> list;
  for (size_t i = 0; i < decl.inputs.size(); ++i) {
    if (!may_be_wrong(decl.inputs[i])) continue;
    for (const Blind blind :
         {Blind::just_above, Blind::just_below, Blind::far_above, Blind::far_below, Blind::narrowed}) {
      for (size_t third = 0; third < std::size(kThird); ++third) {
        if (blind == Blind::narrowed && !may_be_i64(decl, decl.inputs[i].dtype)) continue;
        // What is too large among increasing numbers makes the next one look too small: it is only tried at the end.
        const bool is_above = blind == Blind::just_above || blind == Blind::far_above || blind == Blind::narrowed;
        if (decl.inputs[i].domain.increasing && is_above && third + 1 < std::size(kThird)) continue;
        list.push_back(blind_to(decl, i, blind, third));
        liars::complete(list.back());
      }
    }
  }
  if (list.empty()) GTEST_SKIP() << decl.name << " has no data errors";
  std::vector<const rlk_implementation*> rows;
  for (const Misreading& liar : list) rows.push_back(&liar.row);
  ConformanceOptions options;
  options.picks = [](const rlk_implementation& row, const std::string& title) {
    const auto& words = static_cast<const Misreading*>(row.user)->occasions;
    return std::any_of(words.begin(), words.end(),
                       [&](const std::string& word) { return title.find(word) != std::string::npos; });
  };
  const liars::Refused refused = liars::refused_by_the_smoke_test(decl, rows, Dtype::f32, options);
  for (const Misreading& liar : list) {
    const auto found = refused.find(liar.name);
    std::printf("%-24s %-48s %s\n", decl.name, liar.name.c_str(),
                found != refused.end() ? found->second.c_str() : "MISSED");
    EXPECT_NE(found, refused.end()) << decl.name << ": the smoke test misses a plugin that is blind to " << liar.name;
  }
}

// The one mistake that a wrong loss alone does not tell of.
using MaskLiars = liars::OfOperator;

TEST_P(MaskLiars, ThatCountOnesAloneAreToldSo) {
  const OpDecl& decl = *GetParam();
  const auto is_mask = [](const ArgDecl& input) { return input.domain.kind == Domain::mask; };
  if (std::none_of(decl.inputs.begin(), decl.inputs.end(), is_mask)) GTEST_SKIP() << decl.name << " has no mask";
  Misreading liar{&decl, &liars::honest_implementation(decl), "ones", liars::count_ones_alone};
  liars::complete(liar);
  const std::vector<const rlk_implementation*> rows = {&liar.row};
  const rlk_plugin plugin = liars::plugin_of(rows);
  const simple::OpenTarget target(&plugin, loader::host_services());
  ConformanceOptions options;
  options.ops = {decl.name};
  if (liars::has_dtype(decl, Dtype::f32)) options.dtype = "f32";
  options.one_failure = true;
  options.answers = test::shared_answers();
  int failed = 0;
  for (const UnitResult& unit : run_conformance(target.target(), options)) {
    if (unit.verdict != UnitResult::Verdict::failed) continue;
    ++failed;
    EXPECT_NE(unit.reason.find("is the mask compared with 1"), std::string::npos) << decl.name << ": " << unit.reason;
  }
  EXPECT_GT(failed, 0) << decl.name;
}

INSTANTIATE_TEST_SUITE_P(Operators, DataErrorLiars, ::testing::ValuesIn(liars::all_operators()),
                         liars::name_of_operator);
std::vector<const OpDecl*> some_with_masks() {
  std::vector<const OpDecl*> list;
  for (const char* name : {"attention", "group_advantages", "kl_div", "logp", "value_loss", "whiten"})
    list.push_back(find_declaration(name));
  return list;
}
INSTANTIATE_TEST_SUITE_P(Operators, MaskLiars, ::testing::ValuesIn(some_with_masks()), liars::name_of_operator);

}  // namespace
}  // namespace rlk::core
