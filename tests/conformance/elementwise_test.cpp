// The elements, rows and columns that stand for a call of any size: where indices and grids run out, however large the
// call, and the part is a call of its own.
#include "core/conformance/elementwise.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "conformance/parts.hpp"
#include "core/conformance/data.hpp"
#include "core/conformance/narrower.hpp"

namespace rlk::core::conformance {
namespace {

// A call of the operator's first case, with these shapes.
ConcreteCall call_of(const char* op, std::vector<std::vector<int64_t>> inputs, const std::vector<int64_t>& output) {
  Case c;
  c.decl = find_declaration(op);
  ConcreteCall call;
  EXPECT_TRUE(resolve(c, call));
  for (size_t i = 0; i < inputs.size(); ++i) call.inputs[i].shape = inputs[i];
  for (Argument& argument : call.outputs) argument.shape = output;
  return call;
}

TEST(Elementwise, PartsOfCallsOfAnySizeHaveTheirEndsAndTheElementsAtWhichSomethingRunsOut) {
  constexpr int64_t k1 = 1;
  for (const std::vector<int64_t>& shape : std::vector<std::vector<int64_t>>{{(k1 << 33) + 5},
                                                                             {(k1 << 20) + 1, 5000},
                                                                             {70000, 70001},
                                                                             {3, k1 << 32},
                                                                             {k1 << 32, 3},
                                                                             {100, 1, 1000, 100, 1001},
                                                                             {2000, 2000, 2000}}) {
    int64_t total = 1;
    for (const int64_t size : shape) total *= size;
    const ConcreteCall whole = call_of("add", {shape, shape}, shape);
    for (const int64_t most : {k1 << 18, k1 << 14, k1 << 11}) {
      const std::optional<Sample> part = some_elements(whole, most, 7);
      ASSERT_TRUE(part);
      const Argument& output = part->call.outputs[0];
      EXPECT_LE(output.count(), most);
      EXPECT_GE(output.count(), most / 256);
      EXPECT_EQ(part->call.inputs[1].shape, output.shape);
      EXPECT_TRUE(part->judged[0]);
      std::vector<int64_t> places = {0, total - 1};
      if (most == k1 << 18)
        places.insert(places.end(), {k1 << 31, k1 << 32, k1 << 24, k1 << 30, 65535 * 256, 65535 * 1024});
      for (const int64_t place : places) {
        EXPECT_TRUE(keeps(part->outputs[0], shape, place)) << total << " elements, at most " << most << ": " << place;
      }
      for (const auto& kept : part->outputs[0]) {
        EXPECT_TRUE(!kept || std::is_sorted(kept->begin(), kept->end(), std::less_equal<>()));
      }
    }
  }
}

TEST(Elementwise, OtherDrawsHaveOtherElements) {
  const std::vector<int64_t> shape = {int64_t{1} << 33};
  const ConcreteCall whole = call_of("add", {shape, shape}, shape);
  EXPECT_NE(some_elements(whole, 1 << 14, 1)->outputs[0], some_elements(whole, 1 << 14, 2)->outputs[0]);
}

TEST(Elementwise, WhatIsRepeatedIsCutWhereItIsNot) {
  const ConcreteCall whole = call_of("add", {{int64_t{1} << 30, 1}, {100}}, {int64_t{1} << 30, 100});
  const std::optional<Sample> part = some_elements(whole, 1 << 16, 1);
  ASSERT_TRUE(part);
  const std::vector<int64_t> output = part->call.outputs[0].shape;
  EXPECT_EQ(part->call.inputs[0].shape, (std::vector<int64_t>{output[0], 1}));
  EXPECT_EQ(part->call.inputs[1].shape, (std::vector<int64_t>{output[1]}));
}

TEST(Elementwise, RowsThatAreTakenTogetherHaveNoSuchPart) {
  Case c;
  c.decl = find_declaration("softmax");
  ConcreteCall whole;
  ASSERT_TRUE(resolve(c, whole));
  EXPECT_FALSE(some_elements(whole, 1 << 16, 1));
}

TEST(Elementwise, APartHasTheAnswerOfTheWholeCall) {
  for (const OpDecl& decl : declarations()) {
    if (!is_elementwise(decl)) continue;
    int parts = 0;
    for (size_t shape_case = 0; shape_case < decl.shape_cases.size(); ++shape_case) {
      Case c;
      c.decl = &decl;
      c.shape_case = static_cast<int>(shape_case);
      ConcreteCall whole;
      if (!resolve(c, whole) || whole.outputs[0].count() == 0) continue;
      fill_inputs(c, 1, whole);
      for (const int64_t most : {1, 6, 40}) {
        const std::optional<Sample> part = some_elements(whole, most, 3);
        ASSERT_TRUE(part) << decl.name;
        expect_answer_of_whole(whole, *part, decl.name);
        ++parts;
      }
    }
    EXPECT_GT(parts, 0) << decl.name;
  }
}

// ---- of rows and columns

TEST(Narrower, PartsHaveTheAnswerOfTheWholeCall) {
  for (const OpDecl& decl : declarations()) {
    for (size_t form = 0; form < decl.forms.size(); ++form) {
      std::vector<Case> cases = plain_cases(decl, 0, static_cast<int>(form), true, {});
      if (cases.empty()) continue;
      for (Case& single : single_cases(cases[0], true)) cases.push_back(std::move(single));
      for (const Case& c : cases) {
        ConcreteCall whole;
        if (!resolve(c, whole)) continue;
        std::optional<Answer> right;
        for (int step = 0; step < kNarrowerSteps; ++step) {
          const std::optional<Sample> part = narrower_part(whole, 5, step, {});
          if (!part) continue;
          if (!right) {
            fill_inputs(c, 1, whole);
            right = golden_answer(whole);
          }
          if (right->faults.empty())
            expect_answer_of_whole(whole, *part, std::string(decl.name) + " " + describe(c, whole));
          if (::testing::Test::HasFailure()) return;
        }
      }
    }
  }
}

// A call of sizes that no machine has memory for.
ConcreteCall sized(const char* op, const std::vector<std::pair<const char*, int64_t>>& sizes) {
  Case c;
  c.decl = find_declaration(op);
  for (const auto& [name, size] : sizes) c.size_given[static_cast<size_t>(symbol_index(*c.decl, name))] = size;
  ConcreteCall call;
  EXPECT_TRUE(resolve(c, call));
  return call;
}

TEST(Narrower, ALargeWeightIsJudgedByColumns) {
  for (const int64_t rows : {int64_t{1}, int64_t{4096}}) {
    const ConcreteCall whole = sized("linear", {{"N", rows}, {"K", 8192}, {"M", 151936}});
    std::string why_not;
    EXPECT_FALSE(sample_of(whole, 1, {}, &why_not)) << "5 GB of weights";
    std::optional<Sample> part;
    for (int step = 0; step < kNarrowerSteps && !part; ++step) part = narrower_part(whole, 1, step, {});
    ASSERT_TRUE(part);
    const Kept& weight = part->inputs[static_cast<size_t>(input_index(*whole.decl, "weight"))];
    ASSERT_TRUE(weight[0]);
    EXPECT_EQ(weight[0]->back(), 151935);
    EXPECT_FALSE(weight[1]) << "every product of a sum";
    EXPECT_EQ(part->call.outputs[0].shape[1], static_cast<int64_t>(weight[0]->size()));
  }
}

TEST(Narrower, RowsAtBoundariesAreThere) {
  const ConcreteCall whole = sized("softmax", {{"N", 2'000'000}, {"D", 4000}});
  std::string why_not;
  const std::optional<Sample> few = sample_of(whole, 1, {}, &why_not);
  ASSERT_TRUE(few) << why_not;
  const Sample part = with_boundary_rows(whole, *few, {});
  const Kept& rows = part.outputs[0];
  ASSERT_TRUE(rows[0]);
  for (const int64_t element : {int64_t{1} << 32, int64_t{1} << 31}) {
    EXPECT_TRUE(std::binary_search(rows[0]->begin(), rows[0]->end(), element / 4000)) << element;
  }
  EXPECT_EQ(part.call.symbols[0], static_cast<int64_t>(rows[0]->size()));
}

}  // namespace
}  // namespace rlk::core::conformance
