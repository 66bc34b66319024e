// Reports that stand for a smoke test: of the very same file on the same kind of card, believed as the plugin is,
// confirmed by a canary, and no longer where one fails.
#include "loader/probe/standing_report.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <functional>

#include "loader/screen/note.hpp"
#include "loader/store/report.hpp"
#include "loader/store/seed.hpp"
#include "loader/store/sha256.hpp"
#include "tests/loader/staged_loader.hpp"

namespace rlk::loader {
namespace {

using core::UnitResult;

class Standing : public StagedLoader {
protected:
  Standing() {
    add_plugin("fault");
    plugin = folder / "plugins/librlk_plugin_fault.so";
    whole = probe_one();  // no report is there yet
    Store nowhere("");
    made.plugin_sha256 = sha256_of(&nowhere, plugin).value();
    made.host = {options.host->version,
                 abi_text({options.host->abi_major, options.host->abi_minor, options.host->abi_draft})};
    made.record = whole;
    made.record.evidence.push_back({"device_node", "/dev/acme0", 1});
  }

  std::string text() const { return report_to_json(made.host, made.record, made.plugin_sha256, false, "2026-01-31"); }
  std::string put_report(mode_t mode = 0644) const {
    return folder.file("plugins/reports/fault/x100.json", text(), mode);
  }

  static int cases_of(const PluginRecord& record) {
    int cases = 0;
    for (const UnitResult& unit : record.units) cases += unit.cases;
    return cases;
  }
  static bool rests_on_report(const PluginRecord& record) {
    return std::any_of(record.units.begin(), record.units.end(),
                       [](const UnitResult& unit) { return unit.reason_code == core::kReported; });
  }
  // The same with a report that is changed.
  bool stands_with(const std::function<void(Report*)>& change) {
    const Report honest = made;
    change(&made);
    put_report();
    const PluginRecord record = probe_one();
    made = honest;
    EXPECT_EQ(record.state, whole.state);
    return rests_on_report(record);
  }

  std::string plugin;
  PluginRecord whole;
  Report made;
};

TEST_F(Standing, OfTheSameFileOnTheSameCardItsUnitsAreTaken) {
  ASSERT_EQ(whole.state, State::smoke_tested) << whole.reason;
  put_report();
  const PluginRecord record = probe_one();
  EXPECT_EQ(record.state, State::smoke_tested) << record.reason;
  EXPECT_EQ(cases_of(record), cases_of(whole));
  ASSERT_EQ(record.units.size(), whole.units.size());
  for (const UnitResult& unit : record.units) {
    if (unit.verdict != UnitResult::Verdict::verified) continue;
    EXPECT_EQ(unit.reason_code, core::kReported);
    EXPECT_NE(unit.reason.find("x100.json of 2026-01-31"), std::string::npos) << unit.reason;
    EXPECT_TRUE(unit.size_classes.empty());
  }
  ASSERT_FALSE(record.notes.empty());
  EXPECT_NE(record.notes.back().find("the report x100.json of 2026-01-31 stands"), std::string::npos);
}

TEST_F(Standing, WhereACanaryFailsEverythingIsTried) {
  put_report();
  set_fault("enqueue:wrong_f32");
  const PluginRecord record = probe_one();
  EXPECT_EQ(record.state, State::partial);
  EXPECT_FALSE(rests_on_report(record));
  EXPECT_TRUE(std::any_of(record.units.begin(), record.units.end(), [](const UnitResult& unit) {
    return unit.dtype == "f32" && unit.verdict == UnitResult::Verdict::failed;
  }));
  EXPECT_TRUE(std::any_of(record.units.begin(), record.units.end(), [](const UnitResult& unit) {
    return unit.dtype == "f64" && unit.verdict == UnitResult::Verdict::verified && unit.cases > 1;
  }));
  EXPECT_NE(record.notes.back().find("a canary failed"), std::string::npos) << record.notes.back();
}

TEST_F(Standing, OfAnythingElseItStandsForNothing) {
  EXPECT_TRUE(stands_with([](Report*) {}));
  EXPECT_FALSE(stands_with([](Report* r) { r->plugin_sha256.back() ^= 1; })) << "another file";
  EXPECT_FALSE(stands_with([](Report* r) { r->plugin_sha256.clear(); })) << "a file that is not named";
  EXPECT_FALSE(stands_with([](Report* r) { r->host.version += "1"; })) << "another suite";
  EXPECT_FALSE(stands_with([](Report* r) { r->host.abi += "1"; })) << "another ABI";
  EXPECT_FALSE(stands_with([](Report* r) { r->record.id = "other"; })) << "another plugin";
  EXPECT_FALSE(stands_with([](Report* r) { r->record.version += "1"; })) << "another version";
  EXPECT_FALSE(stands_with([](Report* r) { r->record.devices.at(0).name += " SXM"; })) << "another card";
  EXPECT_FALSE(stands_with([](Report* r) { r->record.devices.clear(); })) << "no card";
  EXPECT_FALSE(stands_with([](Report* r) { r->record.evidence.clear(); })) << "no hardware was seen";
  EXPECT_FALSE(stands_with([](Report* r) {
    r->record.evidence.push_back({"driver_version", "580.1", 1});
  })) << "another driver";
  EXPECT_FALSE(stands_with([](Report* r) { r->record.units.at(0).verdict = UnitResult::Verdict::failed; }))
      << "something failed there";
  EXPECT_FALSE(stands_with([](Report* r) { r->record.units.at(0).verdict = UnitResult::Verdict::declined; }))
      << "declined there, served here";
}

TEST_F(Standing, TheBranchOfTheDriverCountsAndTheWholeVersionOfALibrary) {
  const auto stands = [&](const char* kind, const char* there, const char* here) {
    PluginRecord record = made.record, local = made.record;
    record.evidence.push_back({kind, there, 1});
    local.evidence.push_back({kind, here, 1});
    return find_standing({{"x", record}}, local) != nullptr;
  };
  EXPECT_TRUE(stands("driver_version", "580.159.04", "580.82.07"));
  EXPECT_FALSE(stands("driver_version", "580.159.04", "570.82.07"));
  EXPECT_TRUE(stands("runtime_version", "9.14", "9.14"));
  EXPECT_FALSE(stands("runtime_version", "9.14", "9.19"));
}

TEST_F(Standing, BelievedIsOnlyWhatNoOtherUserCanReplace) {
  put_report(0666);
  const PluginRecord record = probe_one();
  EXPECT_FALSE(rests_on_report(record));
  ASSERT_FALSE(record.notes.empty());
  EXPECT_NE(record.notes.back().find("can be written by every user"), std::string::npos) << record.notes.back();
}

TEST_F(Standing, AnAllowListNamesTheReportToo) {
  const std::string report = put_report();
  Store nowhere("");
  const std::string of_plugin = made.plugin_sha256 + "  plugin\n";
  set("RLK_ALLOW_LIST", folder.file("list", of_plugin));
  EXPECT_FALSE(rests_on_report(probe_one()));
  folder.file("list", of_plugin + sha256_of(&nowhere, report).value() + "  report\n");
  EXPECT_TRUE(rests_on_report(probe_one()));
}

TEST_F(Standing, NothingIsBelievedWhereReportsAreIgnoredOrTheProbeIsFresh) {
  put_report();
  set("RLK_REPORTS", "ignore");
  EXPECT_FALSE(rests_on_report(probe_one()));
  set("RLK_REPORTS", "use");
  options.fresh = true;
  EXPECT_FALSE(rests_on_report(probe_one()));
}

TEST_F(Standing, AVerdictThatRestsOnAReportIsForgottenWithIt) {
  const std::string report = put_report();
  EXPECT_TRUE(rests_on_report(probe_one()));
  EXPECT_TRUE(probe_one().from_cache);
  ASSERT_EQ(unlink(report.c_str()), 0);
  EXPECT_FALSE(rests_on_report(probe_one()));
}

TEST_F(Standing, ASeedBringsOneAlong) {
  const std::string name = std::string(kReportPrefix) + "fault-" + made.plugin_sha256.substr(0, 16);
  const std::string path = folder.file("seed", Seed::write({{name, text()}}));
  std::vector<std::string> notes;
  Store seeded(folder.folder("other", 0700), {}, Seed::open(path, Identity::of_process(), &notes));
  ASSERT_TRUE(notes.empty()) << notes.front();
  options.store = &seeded;
  EXPECT_TRUE(rests_on_report(probe_one()));
}

}  // namespace
}  // namespace rlk::loader
