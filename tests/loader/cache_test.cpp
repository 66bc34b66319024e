// Remembered results: what makes them valid, how long, and the lock that keeps eight ranks from probing at once.
#include "loader/store/cache.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <thread>

#include "framework/fs.hpp"
#include "framework/process.hpp"
#include "loader/store/fingerprint.hpp"
#include "loader/store/limits.hpp"

namespace rlk::loader {
namespace {

using rlk::testing::in_fork;
using rlk::testing::join;
using rlk::testing::TempFolder;

ResultKey example_key() {
  ResultKey key;
  key.id = "acme";
  key.content = "c";
  key.dependencies = {"/lib/a 1", "/lib/b 2"};
  key.host = "0.1.0";
  key.device_fingerprint = "d";
  key.environment = {"A=1"};
  return key;
}

PluginRecord verified_record() {
  PluginRecord record;
  record.id = "acme";
  record.advance(State::smoke_tested, Place::child);
  return record;
}

class CacheTest : public ::testing::Test {
protected:
  TempFolder folder;
  Store store{folder.path()};
  int64_t now = 1'000'000;
  ResultCache cache{&store, [this] { return now; }};
  ResultKey key = example_key();
};

TEST(ResultKeys, EveryPartCounts) {
  const std::string name = example_key().name();
  std::vector<ResultKey> others(8, example_key());
  others[0].content = "C";
  others[1].dependencies[1] = "/lib/b 3";
  others[2].dependencies.pop_back();
  others[3].host = "0.1.1";
  others[4].device_fingerprint = "D";
  others[5].environment = {"A=2"};
  others[6].dependencies = {"/lib/a 1/lib/b 2"};
  others[7].tried = kTriedCanary;
  for (size_t i = 0; i < others.size(); ++i) EXPECT_NE(others[i].name(), name) << i;
  EXPECT_EQ(example_key().name(), name);
}

TEST(ResultKeys, TheEnvironmentThatCounts) {
  const Environment environment{{{"ACME_VISIBLE_DEVICES", "0"},
                                 {"LD_LIBRARY_PATH", "/x"},
                                 {"RLK_LOG", "debug"},
                                 {"RLK_NUM_THREADS", "4"},
                                 {"TILE", "7"}},
                                false};
  EXPECT_EQ(relevant_environment(environment, {"TILE", "UNSET"}),
            (std::vector<std::string>{"ACME_VISIBLE_DEVICES=0", "LD_LIBRARY_PATH=/x", "TILE=7"}));
}

TEST(ResultKeys, AFileThatADeclaredVariableNamesCountsWithItsContent) {
  const TempFolder folder;
  const std::string path = folder.file("kernels.toml", "schema = 1");
  const Environment environment = {{{"KERNELS", path}}, false};
  const auto before = relevant_environment(environment, {"KERNELS"});
  EXPECT_EQ(relevant_environment(environment, {"KERNELS"}), before);
  folder.file("kernels.toml", "schema = 1, and more");
  EXPECT_NE(relevant_environment(environment, {"KERNELS"}), before);
}

TEST(ResultKeys, TheStateOfAFolderChangesWithEveryFileBelowIt) {
  const TempFolder folder;
  folder.folder("packs");
  folder.folder("packs/one");
  folder.file("packs/one/kernels.toml", "schema = 1");
  std::string before = state_of(folder / "packs");
  EXPECT_EQ(state_of(folder / "packs"), before);
  const auto expect_changed = [&](const char* what) {
    const std::string now = state_of(folder / "packs");
    EXPECT_NE(now, before) << what;
    before = now;
  };
  folder.file("packs/one/kernels.toml", "schema = 1, and more");
  expect_changed("content");
  folder.file("packs/one/libone.so", "");
  expect_changed("a new file");
  ASSERT_EQ(unlink((folder / "packs/one/libone.so").c_str()), 0);
  expect_changed("a file less");
  EXPECT_EQ(state_of(folder / "none"), "");
}

TEST_F(CacheTest, ALibraryOfTheSameNameOnTheSearchPathIsNoticed) {
  const TempFolder libraries;
  for (const char* name : {"new", "old"}) libraries.folder(name);
  PluginRecord record = verified_record();
  record.loaded_files = {libraries.file("old/libruntime.so", "old")};
  for (const char* separator : {":", ";"}) {
    key.environment = {"LD_LIBRARY_PATH=" + (libraries / "new") + separator + (libraries / "old")};
    cache.store(key, record);
    EXPECT_TRUE(cache.find(key));
    libraries.file("new/libother.so", "of no concern");
    EXPECT_TRUE(cache.find(key));
    const std::string path = libraries.file("new/libruntime.so", "new");
    EXPECT_FALSE(cache.find(key)) << separator;
    cache.store(key, record);  // it loads the old one all the same, by its path say
    EXPECT_TRUE(cache.find(key));
    unlink(path.c_str());
    EXPECT_FALSE(cache.find(key)) << separator;
  }
}

TEST_F(CacheTest, ACanarysVerdictIsNotThatOfEverything) {
  ResultKey canary = key;
  canary.tried = kTriedCanary;
  cache.store(canary, verified_record());
  EXPECT_TRUE(cache.find(canary));
  EXPECT_FALSE(cache.find(key));
  EXPECT_FALSE(cache.was_judged(key));
}

TEST_F(CacheTest, WhatIsOutOfDateWasJudgedAllTheSame) {
  PluginRecord partial = verified_record();
  partial.stop(State::partial, Place::child, reason::kSomeFailed, "1 of 2 units failed");
  cache.store(key, partial);
  now += ResultCache::kPartialSeconds;
  EXPECT_FALSE(cache.find(key));
  EXPECT_TRUE(cache.was_judged(key));
}

TEST_F(CacheTest, ATimeOutIsNoVerdictOnWhatWasTried) {
  PluginRecord late = verified_record();
  late.stop(State::deferred, Place::child, reason::kTimedOut, "phase smoke took longer than 240 s");
  cache.store(key, late);
  EXPECT_TRUE(cache.find(key));
  EXPECT_FALSE(cache.was_judged(key));
}

TEST_F(CacheTest, AVerifiedResultIsRememberedForGood) {
  EXPECT_FALSE(cache.find(key));
  cache.store(key, verified_record());
  now += int64_t{10} * 365 * 86400;
  const auto found = cache.find(key);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->id, "acme");
  EXPECT_EQ(found->state, State::smoke_tested);
  EXPECT_TRUE(found->from_cache);
  ResultKey other = key;
  other.content = "another";
  EXPECT_FALSE(cache.find(other));
}

TEST_F(CacheTest, FailuresAreForgottenAfterTheirTime) {
  const auto remembered_for = [&](State state, const Reason& why) -> int64_t {
    PluginRecord record = verified_record();
    record.stop(state, Place::child, why, "text");
    store.clear("");
    cache.store(key, record);
    const int64_t begin = now;
    while (cache.find(key) && now - begin < 1'000'000) now += 100;
    return now - begin;
  };
  EXPECT_EQ(remembered_for(State::rejected, reason::kCrashed), ResultCache::kFailureSeconds);
  EXPECT_EQ(remembered_for(State::rejected, reason::kNoDevice), ResultCache::kAbsentSeconds);
  EXPECT_EQ(remembered_for(State::partial, reason::kSomeFailed), ResultCache::kPartialSeconds);
}

TEST_F(CacheTest, WhatSaysNothingLastingIsNeverRemembered) {
  for (const Reason* why : {&reason::kKilled, &reason::kCancelled, &reason::kProbeBusy}) {
    PluginRecord record = verified_record();
    record.stop(State::deferred, Place::child, *why, "text");
    cache.store(key, record);
    EXPECT_FALSE(cache.find(key)) << why->code;
  }
  for (const Reason* why : {&reason::kSpawnFailed, &reason::kProbeOff}) {
    PluginRecord record = verified_record();
    record.stop(State::rejected, Place::child, *why, "text");
    cache.store(key, record);
    EXPECT_FALSE(cache.find(key)) << why->code;
  }
}

PluginRecord timed_out_record() {
  PluginRecord record = verified_record();
  record.stop(State::deferred, Place::child, reason::kTimedOut, "phase create took longer than 60 s");
  return record;
}

TEST_F(CacheTest, ATimeOutIsRememberedForAShortTimeAndSaysHowLong) {
  PluginRecord unreached = verified_record();
  unreached.units.resize(1);
  unreached.units[0].op = "logp";
  unreached.units[0].reason_code = kUnitNotReached;
  for (const PluginRecord& record : {timed_out_record(), unreached}) {
    cache.store(key, record);
    now += 60;
    auto found = cache.find(key);
    ASSERT_TRUE(found);
    for (const char* part : {"60 s ago", "in 240 s", "RLK_PROBE_RETRY", "probe --fresh acme"})
      EXPECT_NE(found->hint.find(part), std::string::npos) << part << " | " << found->hint;
    now += ResultCache::kTimeoutSeconds - 61;
    EXPECT_TRUE(cache.find(key));
    now += 1;
    EXPECT_FALSE(cache.find(key));
  }
  ResultCache patient(
      &store, [this] { return now; }, 7);
  patient.store(key, timed_out_record());
  now += 6;
  EXPECT_TRUE(patient.find(key));
  now += 1;
  EXPECT_FALSE(patient.find(key));
}

TEST_F(CacheTest, ATimeOutSaysNothingToWhoHasMorePatience) {
  key.time_scale = 1;
  cache.store(key, timed_out_record());
  key.time_scale = 2;
  EXPECT_FALSE(cache.find(key));
  key.time_scale = 0.5;
  EXPECT_TRUE(cache.find(key)) << "who has less would run into it too";
  key.time_scale = 1;
  cache.store(key, verified_record());
  key.time_scale = 2;
  EXPECT_TRUE(cache.find(key)) << "a verdict is one whatever the patience";
}

TEST_F(CacheTest, AFailureSaysNothingToWhoMayHaveMoreOfTheSystem) {
  PluginRecord failed = verified_record();
  failed.stop(State::rejected, Place::child, reason::kExited, "exit code 5 in phase create");
  key.limits = {200, 1000};
  cache.store(key, failed);
  EXPECT_TRUE(cache.find(key));
  key.limits = {100, 1000};
  EXPECT_TRUE(cache.find(key)) << "who has less would fail too";
  for (const std::vector<uint64_t>& more : {std::vector<uint64_t>{1024, 500}, {200, UINT64_MAX}, {200, 1000, 1}}) {
    key.limits = more;
    EXPECT_FALSE(cache.find(key));
  }
  key.limits = {200, 1000};
  cache.store(key, verified_record());
  key.limits = {1024, UINT64_MAX};
  EXPECT_TRUE(cache.find(key)) << "what worked with little works with more";
}

TEST(Limits, ThatAreTightAreNamed) {
  std::vector<uint64_t> limits(resource_limits().size(), UINT64_MAX);
  EXPECT_EQ(describe_tight_limits(limits), "");
  limits[0] = 200;
  EXPECT_EQ(describe_tight_limits(limits), "open files 200 (ulimit -n)");
}

TEST_F(CacheTest, ALibraryThatChangedUnderItsBuildIdIsAnother) {
  folder.copy(RLK_TEST_OBJECTS "/libchain_c.so", "libvendor.so.1");
  PluginRecord record = verified_record();
  record.loaded_files = {folder / "libvendor.so.1"};
  cache.store(key, record);
  ASSERT_TRUE(cache.find(key));
  const std::string bytes = rlk::testing::read_text(folder / "libvendor.so.1");
  std::string patched = bytes;
  patched.back() = static_cast<char>(patched.back() + 1);
  folder.file("libvendor.so.1", patched);
  EXPECT_FALSE(cache.find(key));
}

TEST_F(CacheTest, WhoWaitedTakesAVerdictThatNobodyElseWouldBelieve) {
  ResultCache forgetful(
      &store, [this] { return now; }, 0);
  const int64_t began_to_wait = now;
  now += 60;
  forgetful.store(key, timed_out_record());
  EXPECT_FALSE(forgetful.find(key));
  now += 1;
  EXPECT_TRUE(forgetful.find(key, began_to_wait));
  EXPECT_FALSE(forgetful.find(key, now)) << "it is older than the wait";
}

TEST(RetrySeconds, AreAWholeNumberUpToADay) {
  int64_t seconds = 0;
  EXPECT_TRUE(retry_seconds_of({}, &seconds));
  EXPECT_EQ(seconds, ResultCache::kTimeoutSeconds);
  for (const auto& [text, value] : {std::pair("0", 0), std::pair("45", 45), std::pair("86400", 86400)}) {
    EXPECT_TRUE(retry_seconds_of({{{"RLK_PROBE_RETRY", text}}, false}, &seconds)) << text;
    EXPECT_EQ(seconds, value);
  }
  for (const char* text : {"-1", "5m", "1.5", "86401", " 5", "99999999999999999999"}) {
    EXPECT_FALSE(retry_seconds_of({{{"RLK_PROBE_RETRY", text}}, false}, &seconds)) << text;
    EXPECT_EQ(seconds, ResultCache::kTimeoutSeconds) << text;
  }
}

TEST_F(CacheTest, AFileThatTheProbeHadLoadedMustStillBeTheSame) {
  PluginRecord record = verified_record();
  record.loaded_files = {folder.file("libvendor.so.1", "old")};
  cache.store(key, record);
  EXPECT_TRUE(cache.find(key));
  folder.file("libvendor.so.1", "newer driver");
  EXPECT_FALSE(cache.find(key));
  cache.store(key, record);
  EXPECT_TRUE(cache.find(key));
  std::filesystem::remove(folder / "libvendor.so.1");
  EXPECT_FALSE(cache.find(key));
}

TEST_F(CacheTest, ADamagedEntryIsIgnoredAndRewritten) {
  cache.store(key, verified_record());
  for (const char* content : {"", "garbage", "rlk-store-1 00000000000000000000000000000000\n{}"}) {
    folder.file(key.name(), content);
    EXPECT_FALSE(cache.find(key)) << content;
  }
  // Sealed rightly, but not what it should be inside.
  for (const char* content :
       {"", "{}", "[]", R"({"schema":2})", R"({"schema":99,"expires_unix":0,"record":"{}"})",
        R"({"schema":2,"expires_unix":0,"record":{}})", R"({"schema":1,"expires_unix":"x","record":"{}"})",
        R"({"schema":2,"expires_unix":0,"record":"{\"state\":\"?\"}"})"}) {
    store.put(key.name(), content);
    EXPECT_FALSE(cache.find(key)) << content;
  }
  cache.store(key, verified_record());
  EXPECT_TRUE(cache.find(key));
}

TEST_F(CacheTest, OldEntriesMakeRoom) {
  const auto fill = [&](size_t from, size_t to) {
    for (size_t i = from; i < to; ++i) {
      ResultKey other = key;
      other.content = std::to_string(i);
      cache.store(other, verified_record());
    }
  };
  fill(0, 1000);
  EXPECT_EQ(store.list("probe-").size(), 1000u) << "a thousand plugins are all remembered";
  fill(1000, ResultCache::kMaxEntries + ResultCache::kTidyEvery + 1);
  EXPECT_EQ(store.list("probe-").size(), ResultCache::kMaxEntries);
}

TEST_F(CacheTest, AStoreWithoutAFolderRemembersInThisProcess) {
  Store memory("");
  ResultCache own(&memory);
  own.store(key, verified_record());
  EXPECT_TRUE(own.find(key));
  EXPECT_EQ(lock_path(memory, "acme"), "");
}

TEST_F(CacheTest, TheLockKeepsOthersOutUntilItsOwnerIsGone) {
  const std::string path = lock_path(store, "acme");
  EXPECT_NE(path, lock_path(store, "other"));
  {
    const auto mine = FileLock::acquire(path, 0.0);
    ASSERT_TRUE(mine);
    EXPECT_FALSE(FileLock::acquire(path, 0.3));
    EXPECT_TRUE(FileLock::acquire(lock_path(store, "other"), 0.0));
  }
  EXPECT_TRUE(FileLock::acquire(path, 0.0));
  int held[2];
  ASSERT_EQ(pipe(held), 0);
  const pid_t child = in_fork([&] {
    const auto theirs = FileLock::acquire(path, 5.0);
    if (!theirs || write(held[1], "", 1) != 1) return 1;
    usleep(300'000);
    return raise(SIGKILL);  // dies with the lock
  });
  char byte = 0;
  ASSERT_EQ(::read(held[0], &byte, 1), 1);
  const auto after = FileLock::acquire(path, 30.0);
  EXPECT_TRUE(after);
  EXPECT_EQ(join(child), -SIGKILL);
  close(held[0]);
  close(held[1]);
}

TEST_F(CacheTest, TheLockIsGivenBackAlsoWhenAForkOfTheApplicationHoldsItsDescriptor) {
  const std::string path = lock_path(store, "acme");
  pid_t child = -1;
  {
    const auto mine = FileLock::acquire(path, 0.0);
    ASSERT_TRUE(mine);
    child = in_fork([] {
      pause();
      return 0;
    });
  }
  EXPECT_TRUE(FileLock::acquire(path, 0.0));
  kill(child, SIGKILL);
  EXPECT_EQ(join(child), -SIGKILL);
}

TEST_F(CacheTest, WaitingForTheLockEndsWhenToldTo) {
  const std::string path = lock_path(store, "acme");
  const auto mine = FileLock::acquire(path, 0.0);
  int asked = 0;
  EXPECT_FALSE(FileLock::acquire(path, 60.0, nullptr, [&] { return ++asked == 3; }));
  EXPECT_EQ(asked, 3);
  const std::atomic<bool> cancel{true};
  EXPECT_FALSE(FileLock::acquire(path, 60.0, &cancel));
}

TEST_F(CacheTest, OfManyProcessesOneProbesAndTheOthersFindTheResult) {
  // Each does what the loader does: look, lock, look again, work, remember.
  const std::string log = folder.file("log");
  std::vector<pid_t> children;
  for (int i = 0; i < 6; ++i) {
    children.push_back(in_fork([&] {
      Store own(folder.path());
      ResultCache own_cache(&own);
      if (own_cache.find(key)) return 0;
      const auto lock = FileLock::acquire(lock_path(own, "acme"), 60.0);
      if (!lock) return 1;
      if (own_cache.find(key)) return 0;
      FILE* file = fopen(log.c_str(), "a");
      fputs("x", file);
      fclose(file);
      usleep(200'000);
      own_cache.store(key, verified_record());
      return 0;
    }));
  }
  for (const pid_t child : children) EXPECT_EQ(join(child), 0);
  EXPECT_EQ(rlk::testing::read_text(log), "x");
}

TEST(Fingerprint, ChangesWithTheMachineAndOnlyThen) {
  const TempFolder machine;
  const auto device = [&](const std::string& address, const std::string& pci_class) {
    const std::string base = "sys/bus/pci/devices/" + address + "/";
    machine.file(base + "class", pci_class + "\n");
    machine.file(base + "vendor", "0x10de\n");
    machine.file(base + "device", "0x2330\n");
  };
  machine.file("proc/cpuinfo", "model name : A\nflags : sse2 avx2\n\nmodel name : A\n");
  machine.file("dev/acme0");
  const std::string start = device_fingerprint(machine.path());
  EXPECT_EQ(device_fingerprint(machine.path()), start);
  machine.file("dev/tty9");
  device("0000:00:1f.0", "0x060100");  // a bridge
  EXPECT_EQ(device_fingerprint(machine.path()), start);
  device("0000:17:00.0", "0x030200");
  const std::string with_gpu = device_fingerprint(machine.path());
  EXPECT_NE(with_gpu, start);
  machine.folder("sys/module/acme");
  machine.folder("sys/bus/pci/devices/0000:17:00.0/driver");
  machine.link("../../../../../module/acme", "sys/bus/pci/devices/0000:17:00.0/driver/module");
  machine.file("sys/module/acme/version", "535.1\n");
  const std::string with_driver = device_fingerprint(machine.path());
  EXPECT_NE(with_driver, with_gpu);
  machine.file("sys/module/acme/version", "550.2\n");
  EXPECT_NE(device_fingerprint(machine.path()), with_driver);
  machine.file("dev/acme1");
  const std::string more = device_fingerprint(machine.path());
  machine.file("proc/cpuinfo", "model name : B\nflags : sse2 avx2\n");
  EXPECT_NE(device_fingerprint(machine.path()), more);
}

}  // namespace
}  // namespace rlk::loader
