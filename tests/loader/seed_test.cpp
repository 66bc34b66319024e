// Seeds: what travels, which ones are believed, and stores that read from them and from folders that cannot be written.
#include "loader/store/seed.hpp"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "framework/fs.hpp"
#include "framework/process.hpp"
#include "loader/store/file.hpp"
#include "loader/store/store.hpp"

namespace rlk::loader {
namespace {

using rlk::testing::TempFolder;

const Seed::Entries kEntries = {{"kernel-1", std::string("a\0b\n", 4)}, {"probe-1", "verdict"}, {"probe-2", ""}};

class SeedTest : public ::testing::Test {
protected:
  // The only note of a seed that was refused.
  std::string refusal(const std::string& path) {
    std::vector<std::string> notes;
    EXPECT_EQ(Seed::open(path, Identity::of_process(), &notes), nullptr) << path;
    return notes.size() == 1 ? notes[0] : std::to_string(notes.size()) + " notes";
  }
  TempFolder folder;
};

TEST_F(SeedTest, WhatIsWrittenIsRead) {
  const std::string path = folder.file("seed", Seed::write(kEntries));
  std::vector<std::string> notes;
  const auto seed = Seed::open(path, Identity::of_process(), &notes);
  ASSERT_NE(seed, nullptr) << notes.at(0);
  EXPECT_EQ(seed->size(), 3u);
  for (const auto& [name, bytes] : kEntries) EXPECT_EQ(*seed->get(name), bytes);
  EXPECT_EQ(seed->get("probe-3"), nullptr);
}

TEST_F(SeedTest, OfAnotherUserOrDamagedIsRefusedWithAReason) {
  const std::string good = Seed::write(kEntries);
  const std::string path = folder.file("seed", good);
  EXPECT_NE(refusal("seed").find("does not start with /"), std::string::npos);
  EXPECT_NE(refusal(folder / "none").find("No such file"), std::string::npos);
  ASSERT_EQ(chmod(path.c_str(), 0666), 0);
  EXPECT_NE(refusal(path).find("can be written by every user"), std::string::npos) << refusal(path);
  ASSERT_EQ(chmod(path.c_str(), 0644), 0);
  if (geteuid() == 0) {
    ASSERT_EQ(chown(path.c_str(), 12345, 12345), 0);
    EXPECT_NE(refusal(path).find("belongs neither to root nor"), std::string::npos) << refusal(path);
  }
  EXPECT_NE(refusal(folder.folder("folder")), "");
  for (size_t cut = 0; cut < good.size(); ++cut)
    EXPECT_NE(refusal(folder.file("cut", good.substr(0, cut))).find("damaged"), std::string::npos) << cut;
  for (size_t at = 0; at < good.size(); ++at) {
    std::string changed = good;
    changed[at] = static_cast<char>(changed[at] ^ 4);
    EXPECT_NE(refusal(folder.file("changed", changed)).find("damaged"), std::string::npos) << at;
  }
}

TEST_F(SeedTest, BeyondAGibibyteIsTooLarge) {
  const std::string path = folder.file("seed", "");
  if (truncate(path.c_str(), (off_t{1} << 30) + 1) != 0) GTEST_SKIP() << "no room for a file of holes";
  EXPECT_NE(refusal(path).find("File too large"), std::string::npos) << refusal(path);
}

TEST_F(SeedTest, SizesThatLieAreDamage) {
  for (const char* body : {"probe-1 8\nverdict", "probe-1 18446744073709551615\nverdict", "probe-1 -1\n", "probe-1\n",
                           "probe-1 7 \nverdict", "no end"}) {
    // With the right hash: its author made it so on purpose.
    const std::string path = folder.file("lie", "rlk-seed-1 " + hash_bytes(body) + "\n" + body);
    EXPECT_NE(refusal(path).find("damaged"), std::string::npos) << body;
  }
}

TEST_F(SeedTest, IsWhereAStoreLooksLastAndNeverWrites) {
  const std::string path = folder.file("seed", Seed::write(kEntries));
  std::vector<std::string> notes;
  Store store(folder.folder("own", 0700), {}, Seed::open(path, Identity::of_process(), &notes));
  EXPECT_EQ(store.get("probe-1"), "verdict");
  EXPECT_TRUE(store.put("probe-1", "newer"));
  EXPECT_EQ(store.get("probe-1"), "newer");
  EXPECT_EQ(store.clear(""), 1u);
  EXPECT_EQ(store.get("probe-1"), "verdict");
}

TEST_F(SeedTest, OnlyWhatLastsTravels) {
  const std::string lasting = R"({"expires_unix": 9223372036854775807})";
  EXPECT_TRUE(may_travel("probe-1", lasting));
  EXPECT_FALSE(may_travel("probe-1", R"({"expires_unix": 1900000000})"));
  EXPECT_FALSE(may_travel("probe-1", "not JSON"));
  EXPECT_TRUE(may_travel("kernel-1", ""));
  for (const char* name : {"quarantine-1", "content-1", "compared-1"}) EXPECT_FALSE(may_travel(name, lasting)) << name;
}

TEST_F(SeedTest, ThatIsNamedAndRefusedIsAWarningAndSoIsNoCacheAtAll) {
  std::vector<std::string> warnings;
  const auto warn = [&](bool is_warning, const std::string& text) {
    if (is_warning) warnings.push_back(text);
  };
  const std::string cache = folder.folder("cache", 0700);
  open_store({{{"RLK_CACHE_DIR", cache}, {"RLK_CACHE_SEED", folder / "none"}}, false}, Identity::of_process(), warn);
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_NE(warnings[0].find("is not used"), std::string::npos);
  warnings.clear();
  // Made by us, so not this user's; root's would only be read.
  const Identity other{54321, 54321};
  if (geteuid() == 0) return;
  open_store({{}, false}, other, warn, folder.path());
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_NE(warnings[0].find("every process tries every plugin anew"), std::string::npos) << warnings[0];
}

// A warm cache that an image carries, beside an empty one that can be written.
TEST_F(SeedTest, AFolderThatCannotBeWrittenIsReadBesideOneThatCan) {
  const std::string warm = folder.folder("warm", 0700), home = folder.folder("home", 0700);
  ASSERT_TRUE(Store(warm).put("probe-1", "verdict"));
  constexpr int kNoMounts = 77;
  const int result = rlk::testing::join(rlk::testing::in_fork([&] {
    if (unshare(CLONE_NEWNS) != 0 || mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        mount(warm.c_str(), warm.c_str(), nullptr, MS_BIND, nullptr) != 0 ||
        mount(nullptr, warm.c_str(), nullptr, MS_BIND | MS_REMOUNT | MS_RDONLY, nullptr) != 0)
      return kNoMounts;
    int warnings = 0;
    const auto count = [&](bool is_warning, const std::string&) { warnings += is_warning ? 1 : 0; };
    Store store = open_store({{{"RLK_CACHE_DIR", warm}, {"HOME", home}}, false}, Identity::of_process(), count);
    if (store.folder() != home + "/.cache/rlk") return 1;
    if (store.get("probe-1") != "verdict") return 2;
    if (!store.put("probe-2", "new") || warnings != 0) return 3;
    return 0;
  }));
  if (result == kNoMounts) GTEST_SKIP() << "no mounts for this user";
  EXPECT_EQ(result, 0) << "1: another folder, 2: not read, 3: not written, or a warning";
}

}  // namespace
}  // namespace rlk::loader
