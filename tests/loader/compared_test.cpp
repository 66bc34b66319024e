// What running calls proved is believed by later processes, for the very plugin that proved it and for no other.
#include "loader/store/compared.hpp"

#include <gtest/gtest.h>

#include "framework/fs.hpp"

namespace rlk::loader {
namespace {

using rlk::testing::TempFolder;
using Classes = std::vector<uint32_t>;

PluginRecord record_of(const std::string& version, const std::string& device) {
  PluginRecord record;
  record.id = "acme";
  record.version = version;
  record.devices.emplace_back();
  record.devices.back().name = device;
  for (const char* dtype : {"f32", "bf16"}) {
    core::UnitResult& unit = record.units.emplace_back();
    unit.op = "logp";
    unit.implementation = "fused";
    unit.dtype = dtype;
    unit.variant = "wide";
  }
  return record;
}

const rlk_plugin kAcme{}, kNobody{};

core::ComparedClass compared(uint32_t size_class, const rlk_plugin& api = kAcme) {
  core::ComparedClass one;
  one.api = &api;
  one.plugin = "acme";
  one.op = "logp";
  one.implementation = "fused";
  one.dtype = "f32";
  one.variant = "wide";
  one.size_class = size_class;
  return one;
}

// Of each unit, what a new process believes.
std::vector<Classes> believed(Store* store, PluginRecord record) {
  ComparedClasses(store).add_to(&record);
  std::vector<Classes> classes;
  for (const core::UnitResult& unit : record.units) classes.push_back(unit.size_classes);
  return classes;
}

TEST(ComparedClasses, AreBelievedByTheNextProcessForTheirUnitAlone) {
  const TempFolder folder;
  Store store(folder.folder("cache", 0700));
  {
    ComparedClasses first(&store);
    PluginRecord record = record_of("1.0", "X100");
    first.add_to(&record);
    first.know(&kAcme, record);
    EXPECT_EQ(record.units[0].size_classes, Classes());
    for (const uint32_t size_class : {7u, 4294967295u, 7u}) first.note(compared(size_class));
    first.note(compared(9, kNobody));
  }
  EXPECT_EQ(believed(&store, record_of("1.0", "X100")), (std::vector<Classes>{{7, 4294967295}, {}}));
}

TEST(ComparedClasses, AreForgottenWhenThePluginOrItsDeviceChanges) {
  const TempFolder folder;
  Store store(folder.folder("cache", 0700));
  ComparedClasses first(&store);
  PluginRecord record = record_of("1.0", "X100");
  first.add_to(&record);
  first.know(&kAcme, record);
  first.note(compared(7));
  EXPECT_EQ(believed(&store, record_of("1.0", "X100"))[0], Classes{7});
  EXPECT_EQ(believed(&store, record_of("1.1", "X100"))[0], Classes());
  EXPECT_EQ(believed(&store, record_of("1.0", "X200"))[0], Classes());
}

core::UncomparedClass uncompared(uint32_t size_class, const char* code, const rlk_plugin& api = kAcme) {
  core::UncomparedClass one;
  one.unit = compared(size_class, api);
  one.sizes = "N=4,V=9";
  one.reason_code = code;
  one.reason = "a\treason\nof two lines";
  return one;
}

TEST(ComparedClasses, OfWhichNoneWasComparedAreKeptOnceWithTheirReasonUntilOneIs) {
  const TempFolder folder;
  Store store(folder.folder("cache", 0700));
  const PluginRecord record = record_of("1.0", "X100");
  ComparedClasses first(&store);
  first.note_uncompared(uncompared(7, "TOO_LARGE"));  // before the search has ended
  first.note_uncompared(uncompared(9, "TOO_LARGE", kNobody));
  EXPECT_TRUE(first.uncompared_of(record).empty());
  first.know(&kAcme, record);
  first.note_uncompared(uncompared(7, "TOO_LARGE"));
  first.note_uncompared(uncompared(7, "CAPTURED"));
  first.note_uncompared(uncompared(8, "SCATTERED"));
  const ComparedClasses next(&store);
  const auto list = next.uncompared_of(record);
  ASSERT_EQ(list.size(), 3u);
  EXPECT_EQ(list[0].reason_code, "TOO_LARGE");
  EXPECT_EQ(list[0].reason, "a reason of two lines");
  EXPECT_EQ(list[0].sizes, "N=4,V=9");
  EXPECT_EQ(list[0].unit.op + list[0].unit.implementation + list[0].unit.dtype, "logpfusedf32");
  EXPECT_EQ(list[2].unit.size_class, 8u);
  EXPECT_TRUE(next.uncompared_of(record_of("1.1", "X100")).empty()) << "another build";
  first.note(compared(7));
  ASSERT_EQ(next.uncompared_of(record).size(), 1u);
  EXPECT_EQ(next.uncompared_of(record)[0].unit.size_class, 8u);
}

}  // namespace
}  // namespace rlk::loader
