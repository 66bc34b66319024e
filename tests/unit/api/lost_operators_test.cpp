// What a reload took away, from the records before and after it.
#include "loader/api/lost_operators.hpp"

#include <gtest/gtest.h>

namespace rlk::loader {
namespace {

using Names = std::vector<std::string>;
using Verdict = core::UnitResult::Verdict;

PluginRecord record_of(const char* id, State state, const std::vector<std::pair<const char*, Verdict>>& units) {
  PluginRecord record;
  record.id = id;
  record.state = state;
  for (const auto& [op, verdict] : units) {
    core::UnitResult& unit = record.units.emplace_back();
    unit.op = op;
    unit.verdict = verdict;
  }
  return record;
}

TEST(LostOperators, AreThoseOfWhichNothingIsVerifiedAnyMore) {
  const std::vector<PluginRecord> before = {record_of("acme", State::registered,
                                                      {{"logp", Verdict::verified},
                                                       {"add", Verdict::verified},
                                                       {"max", Verdict::verified},
                                                       {"sort", Verdict::failed}}),
                                            record_of("other", State::registered, {{"gemm", Verdict::verified}})};
  const std::vector<PluginRecord> now = {record_of("acme", State::partial,
                                                   {{"logp", Verdict::failed},
                                                    {"logp", Verdict::verified},
                                                    {"add", Verdict::failed},
                                                    {"max", Verdict::declined},
                                                    {"sum", Verdict::verified}}),
                                         record_of("other", State::registered, {{"gemm", Verdict::verified}})};
  EXPECT_EQ(lost_operators(before, now, "acme"), (Names{"add", "max"}));
  EXPECT_EQ(lost_operators(before, now, "other"), Names{});
  EXPECT_EQ(lost_operators(before, before, "acme"), Names{});
}

TEST(LostOperators, OfAPluginThatIsRetiredAreAll) {
  const std::vector<PluginRecord> before = {record_of("acme", State::registered, {{"logp", Verdict::verified}})};
  EXPECT_EQ(lost_operators(before, {}, "acme"), Names{"logp"});
  EXPECT_EQ(lost_operators(before, {record_of("acme", State::retired, {{"logp", Verdict::verified}})}, "acme"),
            Names{"logp"});
}

}  // namespace
}  // namespace rlk::loader
