// Do the properties hold for every operator of the built-in plugin, on the best instruction set in every dtype? And on
// the others in the first: of a sample of the operators, of all in the long run.
#include <gtest/gtest.h>

#include <cstdio>
#include <utility>

#include "conformance/properties.hpp"
#include "framework/sample.hpp"
#include "framework/targets.hpp"

namespace rlk::test {
namespace {

class Properties : public ::testing::TestWithParam<const core::OpDecl*> {};

TEST_P(Properties, HoldOnEveryInstructionSet) {
  const core::OpDecl& decl = *GetParam();
  Dtypes dtypes = Dtypes::every;  // the best instruction set comes first
  for_each_instruction_set([&](int64_t) {
    if (dtypes == Dtypes::first && !is_in_sample(decl.name)) return;
    Tried tried;
    for (const std::string& text : broken_properties(decl, 5, tried, std::exchange(dtypes, Dtypes::first))) {
      ADD_FAILURE() << text;
    }
    std::printf("%s, %s: threads %d, strides %d, empties %d\n", decl.name, cpu::target_name(), tried.threads,
                tried.strides, tried.empties);
    EXPECT_GT(tried.threads, 0);
    EXPECT_GT(tried.strides, 0);
    EXPECT_GT(tried.empties, 0);
  });
}

std::vector<const core::OpDecl*> operators() {
  std::vector<const core::OpDecl*> list;
  for (const core::OpDecl& decl : core::declarations()) list.push_back(&decl);
  return list;
}
INSTANTIATE_TEST_SUITE_P(Operators, Properties, ::testing::ValuesIn(operators()),
                         [](const auto& op) { return std::string(op.param->name); });

}  // namespace
}  // namespace rlk::test
