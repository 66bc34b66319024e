// Times of calls are kept for the very plugin, libraries and devices that they are of.
#include "loader/store/costs.hpp"

#include <gtest/gtest.h>

#include "framework/fs.hpp"
#include "loader/store/seed.hpp"

namespace rlk::loader {
namespace {

using rlk::testing::TempFolder;

PluginRecord record_of(const std::string& version, const std::string& device) {
  PluginRecord record;
  record.id = "acme";
  record.version = version;
  record.devices.emplace_back();
  record.devices.back().name = device;
  return record;
}

core::MeasuredCost cost(const std::string& implementation, int64_t rows, double measured_us) {
  return {"logp", implementation, "X100", "bf16 softcap", {rows, 32000, -1}, 12.5, measured_us};
}

TEST(MeasuredCosts, AreReadByTheNextProcessAndANewTimeOfACallReplacesTheOld) {
  const TempFolder folder;
  Store store(folder.folder("cache", 0700));
  const PluginRecord record = record_of("1.0", "X100");
  EXPECT_TRUE(read_costs(&store, record).empty());
  ASSERT_TRUE(remember_costs(&store, record, {cost("fused", 64, 10), cost("plain", 64, 30)}));
  ASSERT_TRUE(remember_costs(&store, record, {cost("fused", 64, 11), cost("fused", 128, 20)}));
  Store next(store.folder());
  EXPECT_EQ(read_costs(&next, record),
            (std::vector{cost("plain", 64, 30), cost("fused", 64, 11), cost("fused", 128, 20)}));
}

TEST(MeasuredCosts, AreForgottenWhenThePluginOrItsDeviceChanges) {
  const TempFolder folder;
  Store store(folder.folder("cache", 0700));
  ASSERT_TRUE(remember_costs(&store, record_of("1.0", "X100"), {cost("fused", 64, 10)}));
  EXPECT_EQ(read_costs(&store, record_of("1.0", "X100")).size(), 1u);
  EXPECT_TRUE(read_costs(&store, record_of("1.1", "X100")).empty());
  EXPECT_TRUE(read_costs(&store, record_of("1.0", "X200")).empty());
}

TEST(MeasuredCosts, ThatAreNoneAreLeftOutAndTravelInASeed) {
  const TempFolder folder;
  Store store(folder.folder("cache", 0700));
  const PluginRecord record = record_of("1.0", "X100");
  ASSERT_TRUE(remember_costs(&store, record, {cost("fused", 64, 10)}));
  const auto entries = store.list(kCostPrefix);
  ASSERT_EQ(entries.size(), 1u);
  const std::string text = store.get(entries[0].name).value_or("");
  EXPECT_TRUE(may_travel(entries[0].name, text));
  for (const std::string& damaged :
       {std::string("{}"), std::string("[1, {\"op\": 3}]"), std::string("["), std::string()}) {
    ASSERT_TRUE(store.put(entries[0].name, damaged));
    EXPECT_TRUE(read_costs(&store, record).empty()) << damaged;
  }
  ASSERT_TRUE(store.put(entries[0].name, "[{}, " + text.substr(1)));
  EXPECT_EQ(read_costs(&store, record).size(), 1u);
}

}  // namespace
}  // namespace rlk::loader
