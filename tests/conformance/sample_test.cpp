// Is the part of a call that is compared in a running process a call of its own? The reference's answer to the part
// must be what its answer to the whole call has there, for every operator and every option that cases try: else what is
// right would be switched off.
#include "core/conformance/sample.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <set>
#include <string>

#include "core/conformance/data.hpp"
#include "core/conformance/golden_bridge.hpp"
#include "core/conformance/schedule.hpp"
#include "core/conformance/sizes.hpp"
#include "framework/sample.hpp"

namespace rlk::core::conformance {
namespace {

// Where the kept elements of a tensor lie, in their order.
std::vector<int64_t> places_of(const Kept& kept, const std::vector<int64_t>& shape) {
  std::vector<int64_t> places = {0};
  for (size_t axis = 0; axis < shape.size(); ++axis) {
    std::vector<int64_t> next;
    for (const int64_t place : places) {
      const int64_t count = kept[axis] ? static_cast<int64_t>(kept[axis]->size()) : shape[axis];
      for (int64_t i = 0; i < count; ++i) {
        next.push_back(place * shape[axis] + (kept[axis] ? (*kept[axis])[static_cast<size_t>(i)] : i));
      }
    }
    places = std::move(next);
  }
  return places;
}

void take_values(const ConcreteCall& whole, Sample& sample) {
  for (size_t i = 0; i < whole.inputs.size(); ++i) {
    const Argument& from = whole.inputs[i];
    Argument& to = sample.call.inputs[i];
    to.bytes.clear();
    if (!from.present) continue;
    const auto size = static_cast<size_t>(size_of(from.dtype));
    for (const int64_t place : places_of(sample.inputs[i], from.shape)) {
      const auto begin = from.bytes.begin() + static_cast<std::ptrdiff_t>(place * static_cast<int64_t>(size));
      to.bytes.insert(to.bytes.end(), begin, begin + static_cast<std::ptrdiff_t>(size));
    }
  }
}

bool is_whole(const ConcreteCall& whole, const Sample& sample) {
  return std::equal(whole.symbols.begin(), whole.symbols.end(), sample.call.symbols.begin());
}

// Rounded at another place of a sum, at most.
bool is_same(double part, double whole, double condition) {
  if (std::isnan(part) || std::isnan(whole)) return std::isnan(part) == std::isnan(whole);
  if (std::isinf(condition)) return true;
  return part == whole || std::fabs(part - whole) <= 1e-12 * (std::fabs(whole) + condition);
}

constexpr int64_t kSmall = 4096;  // elements

struct Counts {
  int cases = 0, parts = 0;
};

void expect_part_is_its_own_call(const Case& c, Counts& counts) {
  ConcreteCall whole;
  if (!resolve(c, whole)) return;
  fill_inputs(c, 1, whole);
  const Answer right = golden_answer(whole);
  if (!right.faults.empty()) return;
  ++counts.cases;
  int parts = 0;
  for (uint64_t seed = 1; seed <= 16 && parts < 2; ++seed) {  // of three rows, some draws are all
    std::string why_not;
    std::optional<Sample> sample = sample_of(whole, seed, {}, &why_not);
    if (!sample) return;
    for (size_t i = 0; i < whole.inputs.size(); ++i) {
      if (!whole.inputs[i].present) continue;
      ASSERT_TRUE(lies_within(sample->inputs[i], whole.inputs[i].shape));
    }
    EXPECT_NE(std::find(sample->judged.begin(), sample->judged.end(), true), sample->judged.end());
    if (is_whole(whole, *sample)) continue;
    ++counts.parts, ++parts;
    take_values(whole, *sample);
    const Answer got = golden_answer(sample->call);
    const std::string words = std::string(c.decl->name) + " " + describe(c, whole);
    ASSERT_TRUE(got.faults.empty()) << words;
    for (size_t i = 0; i < whole.outputs.size(); ++i) {
      if (!sample->judged[i] || right.outputs[i].value.empty()) continue;
      const std::vector<int64_t> places = places_of(sample->outputs[i], whole.outputs[i].shape);
      ASSERT_EQ(got.outputs[i].value.size(), places.size()) << words;
      for (size_t k = 0; k < places.size(); ++k) {
        const auto place = static_cast<size_t>(places[k]);
        ASSERT_TRUE(is_same(got.outputs[i].value[k], right.outputs[i].value[place], right.outputs[i].cond[place]))
            << words << ": output " << c.decl->outputs[i].name << " element " << k << " of the part is "
            << got.outputs[i].value[k] << ", in the whole call " << right.outputs[i].value[place];
      }
    }
  }
}

TEST(Sample, OfEveryCaseHasTheAnswerOfTheWholeCall) {
  std::set<std::string> seen;
  for (const OpDecl& decl : declarations()) {
    Counts counts;
    for (size_t form = 0; form < decl.forms.size(); ++form) {
      schedule(decl, 0, static_cast<int>(form), Extent::smoke, {}, 1, [&](const Case& c, Stage) {
        ConcreteCall call;
        if (!resolve(c, call)) return std::vector<std::string>{""};
        const std::string words = std::string(decl.name) + " " + describe(c, call);
        // Whether a part of rows is a call of its own does not depend on sizes of which golden takes long.
        const bool is_tried = elements_of(call) <= kSmall || test::is_in_sample(words, 8);
        const bool is_new = seen.insert(words).second && is_tried;
        if (is_new && !::testing::Test::HasFatalFailure()) expect_part_is_its_own_call(c, counts);
        return std::vector<std::string>{""};
      });
    }
    if (::testing::Test::HasFatalFailure()) return;
    if (counts.parts > 0) std::printf("%-28s %4d cases, %4d parts\n", decl.name, counts.cases, counts.parts);
  }
}

TEST(Sample, OfRowsThatATensorLacksIsNotWithinIt) {
  const std::vector<int64_t> shape = {8, 3};
  EXPECT_TRUE(lies_within({std::vector<int64_t>{0, 7}, std::nullopt}, shape));
  EXPECT_TRUE(lies_within({std::vector<int64_t>{}, std::vector<int64_t>{2}}, shape));
  EXPECT_FALSE(lies_within({std::vector<int64_t>{0, 8}, std::nullopt}, shape));
  EXPECT_FALSE(lies_within({std::vector<int64_t>{-1, 2}, std::nullopt}, shape));
  EXPECT_FALSE(lies_within({std::nullopt}, shape));
}

// A list of its indices alone would be eight terabytes.
TEST(Sample, OfATensorThatNoMemoryHoldsThereIsNone) {
  Case c;
  c.decl = find_declaration("add");
  ConcreteCall whole;
  ASSERT_TRUE(resolve(c, whole));
  for (std::vector<Argument>* arguments : {&whole.inputs, &whole.outputs}) {
    for (Argument& argument : *arguments) argument.shape = {int64_t{1} << 40};
  }
  std::string why_not;
  EXPECT_FALSE(sample_of(whole, 1, {}, &why_not));
  EXPECT_NE(why_not.find("the limit is"), std::string::npos) << why_not;
}

}  // namespace
}  // namespace rlk::core::conformance
