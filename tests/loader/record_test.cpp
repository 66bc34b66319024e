// Records: states, reasons, operator counts, and their JSON there and back.
#include "loader/store/record.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "framework/fs.hpp"
#include "loader/store/known_bad.hpp"
#include "loader/store/report.hpp"
#include "loader/store/store.hpp"

namespace rlk::loader {
namespace {

using core::UnitResult;
using nlohmann::json;
using testing::TempFolder;

UnitResult unit(const char* op, UnitResult::Verdict verdict, const char* dtype = "f32") {
  UnitResult out;
  out.op = op;
  out.implementation = "fused";
  out.dtype = dtype;
  out.verdict = verdict;
  return out;
}

PluginRecord full_record() {
  PluginRecord record;
  record.path = "/plugins/librlk_plugin_acme.so";
  record.source = "RLK_PLUGIN_PATH";
  record.id = "acme";
  record.backend = "acme";
  record.version = "1.2.3";
  record.abi = "1.0";
  record.advance(State::discovered, Place::static_screen);
  record.advance(State::screened, Place::static_screen);
  record.stop(State::partial, Place::child, reason::kSomeFailed, "1 of 2 units failed");
  record.notes = {"a note"};
  record.devices = {{0, "Acme X", "x1", 1ull << 35, "00112233-4455-6677-8899-aabbccddeeff", "0000:17:00.0", 1},
                    {1, "Acme Y", "y1", 0, "", "", -1}};
  record.evidence = {{"device_node", "/dev/acme0", 1}, {"pci_id", "10de:2330", 0}, {"simt_width", "32", -1}};
  record.units = {unit("logp", UnitResult::Verdict::verified), unit("add", UnitResult::Verdict::failed)};
  record.units[0].numerics = RLK_NUMERICS_TOLERANCE | RLK_NUMERICS_ACCURATE | RLK_NUMERICS_PORTABLE;
  record.units[0].worst_error_ratio = 0.125;
  record.units[0].worst_error_ulp = 0.75;
  record.units[0].cases = 9;
  record.units[1].worst_error_ratio = std::numeric_limits<double>::infinity();
  record.units[1].reason = "NaN at 3";
  record.tried = kTriedEverything;
  record.loaded_files = {"/lib/libc.so.6"};
  record.output = "hello\n";
  return record;
}

TEST(Reasons, EachCodeIsUniqueAndExplained) {
  std::set<std::string_view> codes;
  for (const Reason& entry : kReasons) {
    EXPECT_TRUE(codes.insert(entry.code).second) << entry.code;
    EXPECT_FALSE(entry.meaning.empty()) << entry.code;
    EXPECT_FALSE(entry.hint.empty()) << entry.code;
  }
}

TEST(Record, AUnitThatACanaryStandsForHasNoMeasuredError) {
  PluginRecord record = full_record();
  record.tried = kTriedCanary;
  record.units[0].cases = 0;
  record.units[0].reason_code = core::kCanary;
  const json document = json::parse(record_to_json(record));
  EXPECT_EQ(document["tried"], "canary");
  EXPECT_TRUE(document["units"][0]["worst_error_ratio"].is_null());
  EXPECT_TRUE(document["units"][0]["worst_error_ulp"].is_null());
  PluginRecord again;
  std::string error;
  ASSERT_TRUE(record_from_json(document.dump(), &again, &error)) << error;
  EXPECT_EQ(again.tried, kTriedCanary);
  EXPECT_EQ(again.units[0].worst_error_ratio, 0.0);
  EXPECT_TRUE(std::isinf(again.units[1].worst_error_ratio)) << "a measured one";
}

TEST(Record, StopTakesTheDefaultHintUnlessThereIsABetterOne) {
  PluginRecord record;
  record.stop(State::rejected, Place::static_screen, reason::kWrongMachine, "seen");
  EXPECT_EQ(record.hint, reason::kWrongMachine.hint);
  EXPECT_TRUE(record.broken);
  EXPECT_EQ(record.state, State::rejected);
  record.stop(State::rejected, Place::child, reason::kNoDevice, "seen", "plug it in");
  EXPECT_EQ(record.state, State::absent) << "nothing is broken";
  EXPECT_EQ(record.hint, "plug it in");
  EXPECT_FALSE(record.broken);
  ASSERT_EQ(record.history.size(), 2u);
  EXPECT_EQ(record.history[1].place, Place::child);
  EXPECT_EQ(record.history[1].reason_code, "NO_DEVICE");
  EXPECT_GT(record.history[1].unix_us, 1'600'000'000'000'000);
}

TEST(Record, StateNamesGoThereAndBack) {
  for (int i = 0; i <= static_cast<int>(State::retired); ++i) {
    State state = State::discovered;
    ASSERT_TRUE(parse(to_string(static_cast<State>(i)), &state));
    EXPECT_EQ(state, static_cast<State>(i));
  }
  Place place = Place::child;
  EXPECT_TRUE(parse("static", &place));
  EXPECT_EQ(place, Place::static_screen);
  EXPECT_FALSE(parse("elsewhere", &place));
}

TEST(RecordJson, GoesThereAndBackUnchanged) {
  const std::string text = record_to_json(full_record());
  PluginRecord back;
  std::string error;
  ASSERT_TRUE(record_from_json(text, &back, &error)) << error;
  EXPECT_EQ(record_to_json(back), text);
  ASSERT_EQ(back.units.size(), 2u);
  EXPECT_NE(text.find(R"("numerics":["tolerance","accurate","portable"])"), std::string::npos) << text;
  EXPECT_EQ(back.units[0].numerics, RLK_NUMERICS_TOLERANCE | RLK_NUMERICS_ACCURATE | RLK_NUMERICS_PORTABLE);
  EXPECT_EQ(back.units[0].worst_error_ulp, 0.75);
  EXPECT_TRUE(std::isinf(back.units[1].worst_error_ratio));
  EXPECT_EQ(back.evidence[2].supports, -1);
  EXPECT_EQ(back.devices[0].memory_bytes, 1ull << 35);
  EXPECT_TRUE(back.broken);
}

TEST(RecordJson, TextThatIsNotUtf8IsReplaced) {
  PluginRecord record = full_record();
  record.output = "bad \xff\xfe bytes";
  PluginRecord back;
  std::string error;
  ASSERT_TRUE(record_from_json(record_to_json(record), &back, &error)) << error;
  EXPECT_NE(back.output.find("bytes"), std::string::npos);
}

TEST(RecordJson, GarbageIsAnErrorAndLeavesTheTargetAlone) {
  for (const char* text :
       {"", "{", "[]", "7", "null", "{}", R"({"state":"flying"})", R"({"state":7})", R"({"state":"loaded","units":7})",
        R"({"state":"loaded","units":[7]})", R"({"state":"loaded","units":[{"op":"logp","verdict":"maybe"}]})",
        R"({"state":"loaded","units":[{"verdict":"verified"}]})", R"({"state":"loaded","history":[{"state":"x"}]})"}) {
    PluginRecord record;
    record.id = "untouched";
    std::string error;
    EXPECT_FALSE(record_from_json(text, &record, &error)) << text;
    EXPECT_FALSE(error.empty()) << text;
    EXPECT_EQ(record.id, "untouched");
  }
}

TEST(RecordJson, EveryCutOfADocumentIsAnError) {
  const std::string text = record_to_json(full_record());
  PluginRecord record;
  std::string error;
  for (size_t length = 0; length < text.size(); ++length)
    ASSERT_FALSE(record_from_json(text.substr(0, length), &record, &error)) << length;
}

TEST(RecordText, GoesThereAndBackUnchangedWithWhatNoJsonCanHold) {
  PluginRecord record = full_record();
  record.units[0].reason = "a line\nand \xff bytes";
  record.units[0].size_classes = {0, 0x12345678, 0xffffffff};
  record.units[1].worst_error_ulp = std::numeric_limits<double>::quiet_NaN();
  PluginRecord back;
  std::string error;
  ASSERT_TRUE(record_from_text(record_to_text(record), &back, &error)) << error;
  EXPECT_EQ(record_to_text(back), record_to_text(record));
  EXPECT_EQ(back.devices.size(), 2u) << "all else too";
  EXPECT_EQ(back.units[0].reason, "a line\nand \xff bytes");
  EXPECT_EQ(back.units[0].size_classes, record.units[0].size_classes);
  EXPECT_EQ(back.units[0].worst_error_ratio, 0.125);
  EXPECT_TRUE(std::isinf(back.units[1].worst_error_ratio));
  EXPECT_TRUE(std::isnan(back.units[1].worst_error_ulp));
  EXPECT_EQ(back.units[1].verdict, UnitResult::Verdict::failed);
}

TEST(RecordText, EveryCutAndEveryChangedNumberIsAnErrorOrAnotherRecord) {
  const std::string text = record_to_text(full_record());
  for (size_t length = 0; length < text.size(); ++length) {
    PluginRecord record;
    record.id = "untouched";
    std::string error;
    ASSERT_FALSE(record_from_text(text.substr(0, length), &record, &error)) << length;
    ASSERT_FALSE(error.empty()) << length;
    ASSERT_EQ(record.id, "untouched") << length;
  }
  for (size_t at = text.find('\n'); at < text.size(); ++at) {
    if (text[at] < '0' || text[at] > '9') continue;
    std::string changed = text;
    changed[at] = changed[at] == '9' ? '7' : '9';
    PluginRecord record;
    std::string error;
    if (record_from_text(changed, &record, &error)) {
      EXPECT_NE(record_to_text(record), text) << at;
    }
  }
}

TEST(RecordText, PathsAreBytesAndShownEscaped) {
  PluginRecord record = full_record();
  record.path = "/plugins/\xe9t\xe9/librlk_plugin_acme.so";
  record.loaded_files = {"/lib/libc.so.6", record.path};
  record.reason = record.path + ": gone";
  PluginRecord back;
  std::string error;
  ASSERT_TRUE(record_from_text(record_to_text(record), &back, &error)) << error;
  EXPECT_EQ(back.path, record.path);
  EXPECT_EQ(back.loaded_files, record.loaded_files);
  EXPECT_EQ(back.reason, "/plugins/\\xe9t\\xe9/librlk_plugin_acme.so: gone");
  const json listed = json::parse(list_to_json({"0.1.0", "1.0"}, {record}))["plugins"][0];
  EXPECT_EQ(listed["path"], "/plugins/\\xe9t\\xe9/librlk_plugin_acme.so");
}

TEST(RecordText, AWordThatIsNamedTooOftenIsRefused) {
  const std::string word(1 << 20, 'x');
  std::string units = "2 400\n1:a\n" + std::to_string(word.size()) + ":" + word + "\n";
  const std::string head = record_to_text(PluginRecord());
  for (int i = 0; i < 400; ++i) units += "0 1 1 1 1 1 1 0 1 0 0 0 0\n";
  PluginRecord record;
  std::string error;
  EXPECT_FALSE(record_from_text(head.substr(0, head.find('\n') + 1) + units, &record, &error))
      << "2,400 MiB of words in 1 MiB of text";
}

PluginRecord verified_record() {
  PluginRecord record;
  record.id = "acme";
  record.backend = "cuda";
  record.evidence = {{"driver_version", "550.54", 1}, {"runtime_version", "12.2.140", 1}};
  record.units = {unit("logp", UnitResult::Verdict::verified), unit("add", UnitResult::Verdict::verified)};
  record.advance(State::smoke_tested, Place::child);
  return record;
}

TEST(KnownBad, TakesOutWhatItNamesWhereTheVersionWasSeen) {
  const KnownBad bad = {"cuda", "runtime_version", "12.2*", {"logp:fused"}, "NaN in bf16", "site.toml:3"};
  PluginRecord record = verified_record();
  apply({bad}, {}, &record);
  EXPECT_EQ(record.state, State::partial);
  EXPECT_EQ(record.reason_code, "KNOWN_BAD");
  EXPECT_EQ(record.reason, "logp:fused with runtime_version 12.2.140: NaN in bf16 (site.toml:3)");
  EXPECT_EQ(record.units[0].verdict, UnitResult::Verdict::failed);
  EXPECT_EQ(record.units[0].reason_code, "KNOWN_BAD");
  EXPECT_EQ(record.units[1].verdict, UnitResult::Verdict::verified) << "another operator";

  for (const KnownBad& other : {KnownBad{"rocm", "runtime_version", "12.2*", {}, "why", ""},
                                KnownBad{"cuda", "runtime_version", "12.3*", {}, "why", ""},
                                KnownBad{"cuda", "cudnn_version", "*", {}, "why", ""},
                                KnownBad{"cuda", "runtime_version", "12.2*", {"logp:simple"}, "why", ""}}) {
    record = verified_record();
    apply({other}, {}, &record);
    EXPECT_EQ(record.state, State::smoke_tested) << other.plugin << other.evidence << other.value;
    EXPECT_TRUE(record.notes.empty());
  }
}

TEST(KnownBad, NothingLeftIsRejectedAndThePolicyMayUseItAnyway) {
  const KnownBad all = {"acme", "driver_version", "550.*", {}, "wrong", "site.toml:1"};
  PluginRecord record = verified_record();
  apply({all}, {"other"}, &record);
  EXPECT_EQ(record.state, State::rejected);
  EXPECT_TRUE(record.broken) << "somebody must install another version";
  record = verified_record();
  apply({all}, {"ac*"}, &record);
  EXPECT_EQ(record.state, State::smoke_tested);
  ASSERT_EQ(record.notes.size(), 1u);
  EXPECT_NE(record.notes[0].find("all operators with driver_version 550.54: wrong"), std::string::npos);
}

TEST(OperatorCounts, CountEachOperatorOnce) {
  PluginRecord record;
  record.units = {unit("a", UnitResult::Verdict::verified), unit("a", UnitResult::Verdict::declined, "f64"),
                  unit("b", UnitResult::Verdict::verified), unit("b", UnitResult::Verdict::failed, "f64"),
                  unit("c", UnitResult::Verdict::declined), unit("d", UnitResult::Verdict::failed)};
  const OperatorCounts counts = count_operators(record);
  EXPECT_EQ(counts.verified, 1u);
  EXPECT_EQ(counts.partial, 2u);
  EXPECT_EQ(counts.unsupported, 1u);
  EXPECT_EQ(counts.quarantined, 0u);
  record.state = State::quarantined;
  EXPECT_EQ(count_operators(record).quarantined, 4u);
}

TEST(OperatorCounts, WhatWasNotTriedWaits) {
  PluginRecord record;
  record.units = {unit("a", UnitResult::Verdict::declined), unit("b", UnitResult::Verdict::declined, ""),
                  unit("c", UnitResult::Verdict::declined, ""), unit("d", UnitResult::Verdict::verified)};
  record.units[1].reason_code = core::kPutOff;
  record.units[2].reason_code = core::kWaiting;
  const OperatorCounts counts = count_operators(record);
  EXPECT_EQ(counts.waiting, 2u);
  EXPECT_EQ(counts.unsupported, 1u);
  EXPECT_EQ(counts.verified, 1u);
  EXPECT_EQ(waiting_operators(record), (std::vector<std::string>{"c", "b"})) << "one that was put off comes last";
}

// In every condition that an operator may be in, several times.
PluginRecord record_of_many_units() {
  PluginRecord record = full_record();
  record.units.clear();
  int turn = 0;
  for (const char* op : {"a", "b", "c", "d", "e", "f", "g"}) {
    for (const char* dtype : {"f32", "bf16", "f16", "f64"}) {
      UnitResult::Verdict verdict = UnitResult::Verdict::verified;
      if (*op == 'b' || (*op == 'c' && turn % 2 == 0)) verdict = UnitResult::Verdict::declined;
      if (*op == 'd' && *dtype == 'b') verdict = UnitResult::Verdict::failed;
      UnitResult& one = record.units.emplace_back(unit(op, verdict, dtype));
      if (*op == 'e') one.verdict = UnitResult::Verdict::declined, one.reason_code = core::kPutOff;
      if (*op == 'f') one.verdict = UnitResult::Verdict::declined, one.reason_code = core::kWaiting;
      if (*op == 'g') one.reason_code = reason::kQuarantined.code, one.verdict = UnitResult::Verdict::failed;
      one.cases = turn++ % 3;
    }
  }
  return record;
}

TEST(RepresentativeUnits, AreFewAndGiveTheAnswersOfAll) {
  const PluginRecord whole = record_of_many_units();
  PluginRecord few = whole;
  few.units = representative_units(whole.units);
  EXPECT_LT(few.units.size(), whole.units.size());
  EXPECT_EQ(list_to_json({"0.1.0", "1.0"}, {few}), list_to_json({"0.1.0", "1.0"}, {whole}));
  EXPECT_EQ(waiting_operators(few), waiting_operators(whole));
  EXPECT_EQ(waiting_operators(few), (std::vector<std::string>{"f", "e"}));
  EXPECT_EQ(objection_to(few), objection_to(whole));
  EXPECT_EQ(objection_to(few), "d fused bf16 failed");
  std::erase_if(few.units, [](const UnitResult& one) { return one.verdict == UnitResult::Verdict::failed; });
  PluginRecord good = whole;
  std::erase_if(good.units, [](const UnitResult& one) { return one.verdict == UnitResult::Verdict::failed; });
  EXPECT_EQ(objection_to(few), objection_to(good));
}

TEST(ReportInShort, IsRememberedUntilTheFileChanges) {
  const TempFolder folder;
  Store store(folder.folder("cache", 0700));
  PluginRecord record = record_of_many_units();
  const auto write = [&](const char* date) {
    return folder.file("reports/acme/x100.json", report_to_json({"0.1.0", "1.0"}, record, "abc", true, date));
  };
  const std::string path = write("2026-01-31");
  const auto is_same = [&](const std::optional<Report>& report, const char* date) {
    ASSERT_TRUE(report);
    EXPECT_EQ(report->date, date);
    EXPECT_EQ(report->host.version, "0.1.0");
    EXPECT_EQ(report->plugin_sha256, "abc");
    EXPECT_EQ(report->record.id, record.id);
    EXPECT_EQ(objection_to(report->record), objection_to(record));
    EXPECT_EQ(on_what(report->record), on_what(record));
  };
  is_same(read_report_in_short(path, nullptr), "2026-01-31");
  is_same(read_report_in_short(path, &store), "2026-01-31");
  EXPECT_TRUE(store.list("").empty()) << "a change within two seconds may leave the same times";
  sleep(3);
  is_same(read_report_in_short(path, &store), "2026-01-31");
  const std::vector<StoreEntry> entries = store.list("");
  ASSERT_EQ(entries.size(), 1u);
  is_same(read_report_in_short(path, &store), "2026-01-31");

  // It is the store's answer that is taken, and a damaged one is not.
  const std::string good = store.get(entries[0].name).value();
  std::string other = good;
  other.replace(other.find("2026-01-31"), 10, "2025-01-31");
  store.put(entries[0].name, other);
  is_same(read_report_in_short(path, &store), "2025-01-31");
  store.put(entries[0].name, good.substr(0, good.size() / 2));
  is_same(read_report_in_short(path, &store), "2026-01-31");

  // The file changes in place, keeps its size, and is given its old time again: it is read.
  struct stat before = {};
  ASSERT_EQ(stat(path.c_str(), &before), 0);
  write("2026-02-28");
  const timespec times[] = {before.st_atim, before.st_mtim};
  ASSERT_EQ(utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
  is_same(read_report_in_short(path, &store), "2026-02-28");

  folder.file("reports/acme/x100.json", "{}");
  EXPECT_FALSE(read_report_in_short(path, &store));
  sleep(3);
  for (int i = 0; i < 2; ++i) EXPECT_FALSE(read_report_in_short(path, &store));
  EXPECT_EQ(store.list("").size(), 2u) << "that it is none is remembered too";
}

TEST(ListJson, HasThePublishedShape) {
  const json document = json::parse(list_to_json({"0.1.0", "1.0"}, {full_record()}));
  EXPECT_EQ(document["schema"], 1);
  EXPECT_EQ(document["host"]["version"], "0.1.0");
  EXPECT_EQ(document["host"]["abi"], "1.0");
  const json& plugin = document["plugins"].at(0);
  for (const char* name :
       {"id", "backend", "version", "abi", "state", "reason_code", "reason", "hint", "path", "source"})
    EXPECT_TRUE(plugin.at(name).is_string()) << name;
  EXPECT_EQ(plugin["state"], "partial");
  EXPECT_EQ(plugin["devices"][0], json({{"index", 0},
                                        {"name", "Acme X"},
                                        {"arch", "x1"},
                                        {"memory_bytes", 1ull << 35},
                                        {"uuid", "00112233-4455-6677-8899-aabbccddeeff"},
                                        {"pci_bus_id", "0000:17:00.0"},
                                        {"numa_node", 1}}));
  EXPECT_EQ(plugin["evidence"][1], json({{"kind", "pci_id"}, {"value", "10de:2330"}, {"supports", false}}));
  EXPECT_EQ(plugin["ops"],
            json({{"verified", 1}, {"partial", 1}, {"unsupported", 0}, {"quarantined", 0}, {"waiting", 0}}));
}

}  // namespace
}  // namespace rlk::loader
