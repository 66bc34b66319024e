// Is the right unit blamed? Events as cases leave them, and the verdicts that must follow.
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "core/conformance/units.hpp"

namespace rlk::core::conformance {
namespace {

using Verdict = UnitResult::Verdict;
using Kind = Event::Kind;

Event event(Kind kind, Words words, const std::string& variant = "v", uint32_t numerics = RLK_NUMERICS_TOLERANCE) {
  Event e;
  e.kind = kind;
  e.words = std::move(words);
  e.variant = kind == Kind::declined ? "" : variant;
  e.code = kind == Kind::passed ? "" : "CODE";
  e.reason = kind == Kind::passed ? "" : "reason";
  e.numerics = kind == Kind::passed ? numerics : 0;
  return e;
}

std::map<std::string, UnitResult> verdicts(const std::vector<Event>& events, const std::string& variant = "v") {
  Units units;
  for (const Event& e : events) units.add(e);
  std::map<std::string, UnitResult> map;
  for (const UnitResult& r : units.results()) {
    if (r.variant == variant) map.emplace(r.feature, r);
  }
  return map;
}

TEST(Units, PlainFailureTurnsOffThePlainUnit) {
  auto v = verdicts({event(Kind::passed, {}), event(Kind::failed, {})});
  EXPECT_EQ(v[""].verdict, Verdict::failed);
}

TEST(Units, SingleFailureTurnsOffThatFeatureOnly) {
  auto v = verdicts({event(Kind::passed, {}), event(Kind::failed, {"a"}), event(Kind::passed, {"b"})});
  EXPECT_EQ(v[""].verdict, Verdict::verified);
  EXPECT_EQ(v["a"].verdict, Verdict::failed);
  EXPECT_EQ(v["b"].verdict, Verdict::verified);
}

TEST(Units, PairThatFailsWithoutAFailedMemberTurnsBothOffAndIsNamed) {
  auto v = verdicts({event(Kind::passed, {}), event(Kind::passed, {"a"}), event(Kind::passed, {"b"}),
                     event(Kind::passed, {"c"}), event(Kind::failed, {"a", "b"})});
  EXPECT_EQ(v["a"].verdict, Verdict::failed);
  EXPECT_EQ(v["b"].verdict, Verdict::failed);
  EXPECT_EQ(v["c"].verdict, Verdict::verified);
  EXPECT_EQ(v["a"].reason, "a + b fail only together: reason");
}

TEST(Units, FeatureThatPassedWithoutTheOtherIsInnocent) {
  auto v = verdicts({event(Kind::passed, {}), event(Kind::passed, {"a"}), event(Kind::failed, {"a", "b"})});
  EXPECT_EQ(v["a"].verdict, Verdict::verified);
  EXPECT_EQ(v["b"].verdict, Verdict::failed);
}

TEST(Units, FailureThatASmallerOneExplainsBlamesNobodyElse) {
  auto v = verdicts({event(Kind::passed, {}), event(Kind::passed, {"a"}), event(Kind::failed, {"b"}),
                     event(Kind::failed, {"a", "b"})});
  EXPECT_EQ(v["a"].verdict, Verdict::verified);
  EXPECT_EQ(v["b"].verdict, Verdict::failed);
}

TEST(Units, VariantThatOnlyServesOneFeatureHasThatAsItsPlainCall) {
  auto v = verdicts({event(Kind::passed, {"packed"}), event(Kind::failed, {"packed", "a"})});
  EXPECT_EQ(v[""].verdict, Verdict::verified);
  EXPECT_EQ(v["packed"].verdict, Verdict::verified);
  EXPECT_EQ(v["a"].verdict, Verdict::failed);
}

TEST(Units, VariantsAreJudgedApart) {
  const std::vector<Event> events = {event(Kind::passed, {}, "v"), event(Kind::failed, {}, "w")};
  EXPECT_EQ(verdicts(events, "v")[""].verdict, Verdict::verified);
  EXPECT_EQ(verdicts(events, "w")[""].verdict, Verdict::failed);
}

TEST(Units, UnrunCaseLeavesItsFeatureUnverified) {
  auto v = verdicts({event(Kind::passed, {}), event(Kind::passed, {"a"}), event(Kind::unrun, {"a"})});
  EXPECT_EQ(v[""].verdict, Verdict::verified);
  EXPECT_EQ(v["a"].verdict, Verdict::declined);
}

TEST(Units, FeatureThatWasOnlyDeclinedKeepsItsReason) {
  auto v = verdicts({event(Kind::passed, {}), event(Kind::declined, {"a"})}, "");
  EXPECT_EQ(v["a"].verdict, Verdict::declined);
  EXPECT_EQ(v["a"].reason, "reason");
}

TEST(Units, FeatureThatWasTakenOnceIsNotReportedAsDeclined) {
  auto v = verdicts({event(Kind::passed, {}), event(Kind::declined, {"a"}), event(Kind::passed, {"a"})}, "");
  EXPECT_EQ(v.count("a"), 0u);
}

TEST(Units, ClassesAreThoseThatWereHeldAndAFailedUnitHasNone) {
  auto v = verdicts({event(Kind::passed, {}, "v", RLK_NUMERICS_TOLERANCE | RLK_NUMERICS_DETERMINISTIC),
                     event(Kind::passed, {"a"}), event(Kind::failed, {"b"})});
  EXPECT_EQ(v[""].numerics, RLK_NUMERICS_TOLERANCE | RLK_NUMERICS_DETERMINISTIC);
  EXPECT_EQ(v["a"].numerics, RLK_NUMERICS_TOLERANCE);
  EXPECT_EQ(v["b"].numerics, 0u);
}

}  // namespace
}  // namespace rlk::core::conformance
