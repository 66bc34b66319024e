// What do the results of units on several devices say together, and what of the plugin?
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "loader/probe/examine.hpp"

namespace rlk::loader {
namespace {

using core::UnitResult;

UnitResult unit(const char* dtype, UnitResult::Verdict verdict, uint32_t numerics, const char* code = "") {
  UnitResult out;
  out.op = "add";
  out.implementation = "simple";
  out.dtype = dtype;
  out.verdict = verdict;
  out.numerics = numerics;
  out.reason_code = code;
  out.cases = 3;
  return out;
}

TEST(MergeUnits, VerifiedIsWhatEveryDeviceVerified) {
  using V = UnitResult::Verdict;
  const auto merged =
      merge_units({{unit("f32", V::verified, 7), unit("f64", V::verified, 3), unit("f16", V::declined, 0)},
                   {unit("f64", V::failed, 0), unit("f32", V::verified, 5), unit("f16", V::verified, 1)}});
  ASSERT_EQ(merged.size(), 3u);
  EXPECT_EQ(merged[0].verdict, V::verified);
  EXPECT_EQ(merged[0].numerics, 5u);
  EXPECT_EQ(merged[0].cases, 6);
  EXPECT_EQ(merged[1].verdict, V::failed);
  EXPECT_EQ(merged[2].verdict, V::declined);
}

TEST(MergeUnits, ASizeIsTriedWhereEveryDeviceTriedIt) {
  using V = UnitResult::Verdict;
  const auto tried = [](V verdict, std::vector<uint32_t> size_classes) {
    UnitResult out = unit("f32", verdict, 1);
    out.size_classes = std::move(size_classes);
    return std::vector<UnitResult>{out};
  };
  using Classes = std::vector<uint32_t>;
  EXPECT_EQ(merge_units({tried(V::verified, {1, 2, 9}), tried(V::verified, {2, 3, 9})})[0].size_classes,
            (Classes{2, 9}));
  EXPECT_EQ(merge_units({tried(V::verified, {1}), tried(V::verified, {})})[0].size_classes, Classes{});
  EXPECT_EQ(
      merge_units({tried(V::verified, {1, 2}), tried(V::verified, {1, 2}), tried(V::verified, {2})})[0].size_classes,
      Classes{2});
  EXPECT_EQ(merge_units({tried(V::verified, {1}), tried(V::failed, {5})})[0].size_classes, Classes{5})
      << "of the one that is told";
}

TEST(Conclude, TheStateFollowsFromTheUnits) {
  using V = UnitResult::Verdict;
  const auto state = [](std::vector<UnitResult> units) {
    PluginRecord record;
    record.units = std::move(units);
    conclude(&record, Place::child);
    return std::string(to_string(record.state)) + " " + record.reason_code;
  };
  EXPECT_EQ(state({}), "smoke_tested ");
  EXPECT_EQ(state({unit("f32", V::verified, 1)}), "smoke_tested ");
  EXPECT_EQ(state({unit("f32", V::verified, 1), unit("f64", V::declined, 0, "DTYPE")}), "smoke_tested ");
  EXPECT_EQ(state({unit("f32", V::verified, 1), unit("f64", V::failed, 0)}), "partial SOME_FAILED");
  EXPECT_EQ(state({unit("f32", V::failed, 0)}), "rejected NOTHING_VERIFIED");
  EXPECT_EQ(state({unit("f32", V::declined, 0, "KERNELS_NOT_BUILT")}), "rejected NOTHING_VERIFIED");
  EXPECT_EQ(state({unit("f32", V::verified, 1), unit("f64", V::declined, 0, "BUDGET")}), "partial TIMED_OUT");
  EXPECT_EQ(state({unit("f32", V::declined, 0, "BUDGET")}), "deferred TIMED_OUT");
  EXPECT_EQ(state({unit("f32", V::failed, 0), unit("f64", V::declined, 0, "BUDGET")}), "rejected NOTHING_VERIFIED");
}

TEST(Conclude, OnlyWhereSomethingFailedTheHintIsAgainstThePlugin) {
  PluginRecord failed, declined;
  failed.units = {unit("f32", UnitResult::Verdict::failed, 0)};
  declined.units = {unit("f32", UnitResult::Verdict::declined, 0, "LIBRARY_MISSING")};
  for (PluginRecord* record : {&failed, &declined}) conclude(record, Place::child);
  EXPECT_NE(failed.hint.find("do not use this build"), std::string::npos);
  EXPECT_NE(declined.hint.find("declined every call"), std::string::npos) << declined.hint;
}

}  // namespace
}  // namespace rlk::loader
