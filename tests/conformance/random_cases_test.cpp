// Calls drawn at random: what the declaration allows, and the same ones each time.
#include "core/conformance/random_calls.hpp"

#include <gtest/gtest.h>

#include "core/conformance/data.hpp"

namespace rlk::core::conformance {
namespace {

TEST(Cases, NameNoRowsWhereThereAreNone) {
  const OpDecl& decl = *find_declaration("logp");
  Case c = plain_cases(decl, 0, 0, true, {})[0];
  c.variations.emplace_back().present = uint64_t{1} << input_index(decl, "row_indices");
  ConcreteCall call;
  EXPECT_TRUE(resolve(c, call));
  c.size_given[static_cast<size_t>(symbol_index(decl, "R"))] = 0;
  EXPECT_FALSE(resolve(c, call));
}

TEST(RandomCases, AreLegalAndFollowFromTheirNumber) {
  size_t of_f32 = 0;
  for (const OpDecl& decl : declarations()) {
    const std::vector<Case> few = random_cases(decl, 0, 5, 7), more = random_cases(decl, 0, 9, 7);
    ASSERT_GE(more.size(), few.size()) << decl.name;
    for (size_t i = 0; i < few.size(); ++i) {
      ConcreteCall a, b;
      ASSERT_TRUE(resolve(few[i], a) && resolve(more[i], b)) << decl.name;
      EXPECT_EQ(describe(few[i], a), describe(more[i], b)) << decl.name;
      if (!decl.dtypes.empty() && decl.dtypes[0].choices[0].dtype == Dtype::f32) {
        EXPECT_EQ(a.dtypes[0], Dtype::f32) << decl.name;
        ++of_f32;
      }
      fill_inputs(few[i], 1, a);
      fill_inputs(more[i], 1, b);
      for (size_t k = 0; k < a.inputs.size(); ++k) EXPECT_EQ(a.inputs[k].bytes, b.inputs[k].bytes) << decl.name;
    }
  }
  EXPECT_GT(of_f32, 300u);
}

}  // namespace
}  // namespace rlk::core::conformance
