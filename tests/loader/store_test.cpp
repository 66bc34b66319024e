// The store: which folder is used, damage, full and read-only places, and processes that write at once.
#include "loader/store/store.hpp"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <thread>

#include "core/dispatch/trust/process_end.hpp"
#include "framework/fs.hpp"
#include "framework/process.hpp"
#include "loader/probe/demand.hpp"
#include "loader/store/breadcrumbs.hpp"
#include "loader/store/file.hpp"

namespace rlk::loader {
namespace {

using rlk::testing::in_fork;
using rlk::testing::join;
using rlk::testing::TempFolder;

// Where /tmp would be is a folder of the tests' own.
std::string choose(std::map<std::string, std::string, std::less<>> values, Identity identity = Identity::of_process(),
                   std::vector<std::string>* notes = nullptr) {
  std::vector<std::string> ignored;
  const TempFolder temporary;
  return choose_cache_folder({std::move(values), false}, identity, notes == nullptr ? &ignored : notes,
                             temporary.path());
}

// A disk of its own, where the system gives one (root): 64 KiB.
TEST(CacheFolder, ThatIsFullIsPassedOverForOneWithRoomAndIsTheLastResort) {
  const TempFolder folder;
  for (const char* name : {"full", "home", "tmp"}) folder.folder(name, 0700);
  constexpr int kNoDisk = 77;
  const int result = rlk::testing::join(rlk::testing::in_fork([&] {
    const std::string full = folder / "full";
    if (unshare(CLONE_NEWNS) != 0 || mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        mount("tmpfs", full.c_str(), "tmpfs", 0, "size=64k,mode=700") != 0)
      return kNoDisk;
    std::vector<std::string> notes;
    const std::string chosen = choose_cache_folder({{{"RLK_CACHE_DIR", full}, {"HOME", folder / "home"}}, false},
                                                   Identity::of_process(), &notes);
    if (chosen != folder / "home/.cache/rlk") return 1;
    if (notes.size() != 1 || notes[0].find("no room") == std::string::npos) return 2;
    // Nothing else can be had.
    const Identity own = Identity::of_process();
    const std::string last = folder / "tmp/rlk-" + std::to_string(own.user);
    if (mkdir(last.c_str(), 0700) != 0 || mount("tmpfs", last.c_str(), "tmpfs", MS_RDONLY, "mode=700") != 0)
      return kNoDisk;
    notes.clear();
    return choose_cache_folder({{{"RLK_CACHE_DIR", full}}, false}, own, &notes, folder / "tmp") == full ? 0 : 3;
  }));
  if (result == kNoDisk) GTEST_SKIP() << "no mounts for this user";
  EXPECT_EQ(result, 0) << "1: the wrong folder, 2: no word of it, 3: not the last resort";
}

TEST(CacheFolder, TheFirstUsableOneOfTheChainIsMadePrivate) {
  const TempFolder folder;
  folder.folder("home");
  const std::string own = folder / "own/deep";
  EXPECT_EQ(choose({{"RLK_CACHE_DIR", own}, {"XDG_CACHE_HOME", folder / "xdg"}, {"HOME", folder / "home"}}), own);
  struct stat status = {};
  ASSERT_EQ(stat(own.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0700u);
  EXPECT_EQ(choose({{"XDG_CACHE_HOME", folder / "xdg"}, {"HOME", folder / "home"}}), folder / "xdg/rlk");
  EXPECT_EQ(choose({{"HOME", folder / "home"}}), folder / "home/.cache/rlk");
}

TEST(CacheFolder, UnusableOnesArePassedOverWithANote) {
  const TempFolder folder;
  folder.file("file");
  folder.folder("open", 0777);
  folder.folder("real");
  folder.folder("home");
  folder.link(folder / "real", "link");
  for (const std::string& unusable :
       {folder / "file", folder / "open", folder / "link", std::string("relative/path"), std::string("/proc/none")}) {
    std::vector<std::string> notes;
    EXPECT_EQ(choose({{"RLK_CACHE_DIR", unusable}, {"HOME", folder / "home"}}, Identity::of_process(), &notes),
              folder / "home/.cache/rlk")
        << unusable;
    ASSERT_EQ(notes.size(), 1u) << unusable;
    EXPECT_NE(notes[0].find(unusable), std::string::npos) << notes[0];
  }
}

TEST(CacheFolder, OneThatAnotherUserCouldReplaceIsPassedOver) {
  const TempFolder folder;
  folder.folder("home");
  folder.folder("everybodys", 0777);
  folder.folder("everybodys/mine", 0700);
  folder.folder("sticky", 01777);
  std::vector<std::string> notes;
  EXPECT_EQ(choose({{"RLK_CACHE_DIR", folder / "everybodys/mine"}, {"HOME", folder / "home"}}, Identity::of_process(),
                   &notes),
            folder / "home/.cache/rlk");
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_NE(notes[0].find("everybodys (owner"), std::string::npos) << notes[0];
  EXPECT_EQ(choose({{"RLK_CACHE_DIR", folder / "sticky/mine"}}), folder / "sticky/mine");
}

TEST(CacheFolder, AHomeThatDoesNotExistIsNotMade) {
  const TempFolder folder;
  EXPECT_EQ(choose({{"HOME", folder / "none"}}).find(folder.path()), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(folder / "none"));
}

TEST(CacheFolder, AFolderOfAnotherUserIsNotUsed) {
  const TempFolder folder;
  folder.folder("cache", 0700);
  Identity other = Identity::of_process();
  other.user += 1;
  std::vector<std::string> notes;
  EXPECT_NE(choose({{"RLK_CACHE_DIR", folder / "cache"}}, other, &notes), folder / "cache");
  EXPECT_NE(notes.at(0).find("belongs to user"), std::string::npos);
}

TEST(CacheFolder, TheLastResortIsPerUser) {
  const TempFolder folder;
  std::vector<std::string> notes;
  const Identity own = Identity::of_process();
  const std::string mine = folder / ("rlk-" + std::to_string(own.user));
  EXPECT_EQ(choose_cache_folder({}, own, &notes, folder.path()), mine);
  Identity other = own;
  other.user += 1;
  EXPECT_EQ(choose_cache_folder({}, other, &notes, folder.path()), "");  // made by us, so not this user's: memory
}

TEST(CacheFolder, PrivilegedProcessesDoNotFollowVariables) {
  const TempFolder folder;
  std::vector<std::string> notes;
  const std::string chosen = choose_cache_folder({{{"RLK_CACHE_DIR", folder / "a"}, {"HOME", folder / "h"}}, true},
                                                 Identity::of_process(), &notes, folder / "tmp");
  EXPECT_EQ(chosen.find(folder / "tmp"), 0u) << chosen;
}

class StoreTest : public ::testing::Test {
protected:
  TempFolder folder;
  Store store{folder.path()};
};

TEST_F(StoreTest, WhatIsPutIsGot) {
  const std::string bytes("a\0b\nc", 5);
  EXPECT_EQ(store.get("entry"), std::nullopt);
  EXPECT_TRUE(store.put("entry", bytes));
  EXPECT_EQ(store.get("entry"), bytes);
  EXPECT_TRUE(store.put("entry", ""));
  EXPECT_EQ(store.get("entry"), "");
  EXPECT_EQ(Store(folder.path()).get("entry"), "");  // another process would see the same
}

mode_t mode_of(const std::string& path) {
  struct stat status = {};
  return stat(path.c_str(), &status) == 0 ? status.st_mode & 0777 : 0;
}

// A plugin may have set it. What could not be read again would be made anew at every start.
TEST_F(StoreTest, AnUmaskThatTakesTheOwnersRightsIsNotFollowed) {
  const mode_t before = umask(0777);
  std::vector<std::string> notes;
  const std::string chosen =
      choose_cache_folder({{{"RLK_CACHE_DIR", folder / "a/b"}}, false}, Identity::of_process(), &notes);
  const bool put = Store(chosen).put("entry", "x");
  umask(before);
  EXPECT_TRUE(put);
  EXPECT_EQ(mode_of(folder / "a"), 0700u);
  EXPECT_EQ(mode_of(folder / "a/b"), 0700u);
  EXPECT_EQ(mode_of(folder / "a/b/entry"), 0600u);
}

// `ulimit -f 0`: the kernel answers a write with SIGXFSZ, which would end the process.
TEST_F(StoreTest, ALimitOfFileSizesLeavesMemory) {
  EXPECT_EQ(join(in_fork([&] {
              const rlimit none = {0, 0};
              setrlimit(RLIMIT_FSIZE, &none);
              const bool kept = !store.put("entry", "x") && store.get("entry") == "x";
              Breadcrumbs breadcrumbs(folder.path());
              return kept && breadcrumbs.leave({}) == nullptr ? 0 : 1;
            })),
            0);
}

// A worker that a trainer forked goes on when the trainer crashes.
TEST_F(StoreTest, ABreadcrumbIsOfAProcessThatEndedAlsoWhileItsForkedChildLives) {
  int child_lives[2], parent_ends[2];
  ASSERT_EQ(pipe(child_lives), 0);
  ASSERT_EQ(pipe(parent_ends), 0);
  const pid_t parent = in_fork([&] {
    Breadcrumbs breadcrumbs(folder.path());
    Breadcrumb breadcrumb;
    breadcrumb.id = "fault";
    const std::shared_ptr<void> inside = breadcrumbs.leave(breadcrumb);
    close(parent_ends[1]);
    if (fork() == 0) {
      close(child_lives[0]);
      char byte = 'x';
      if (write(child_lives[1], &byte, 1) != 1) _exit(1);
      _exit(read(parent_ends[0], &byte, 1) == 0 ? 0 : 1);  // until the test closes the other end
    }
    while (true) pause();
    return 0;
  });
  char byte = 0;
  ASSERT_EQ(read(child_lives[0], &byte, 1), 1);
  EXPECT_TRUE(Breadcrumbs::collect(folder.path()).empty()) << "both live";
  kill(parent, SIGKILL);
  EXPECT_EQ(join(parent), -SIGKILL);
  const std::vector<Breadcrumb> breadcrumbs = Breadcrumbs::collect(folder.path());
  ASSERT_EQ(breadcrumbs.size(), 1u);
  EXPECT_EQ(breadcrumbs[0].id, "fault");
  EXPECT_EQ(breadcrumbs[0].pid, parent);
  for (const int fd : {child_lives[0], child_lives[1], parent_ends[0], parent_ends[1]}) close(fd);
}

TEST_F(StoreTest, AForkedChildHasBreadcrumbsOfItsOwn) {
  Breadcrumbs breadcrumbs(folder.path());
  const std::shared_ptr<void> inside = breadcrumbs.leave({});
  EXPECT_EQ(join(in_fork([&] {
              static std::shared_ptr<void> of_child;
              of_child = breadcrumbs.leave({});
              return of_child != nullptr ? 0 : 1;
            })),
            0);
  const std::vector<Breadcrumb> found = Breadcrumbs::collect(folder.path());
  ASSERT_EQ(found.size(), 1u) << "the child's; this process lives";
  EXPECT_NE(found[0].pid, getpid());
}

// Python ends a process while daemon threads are inside a first call: that call has not ended it.
TEST_F(StoreTest, AProcessThatEndsByItselfLeavesNoBreadcrumbOfOtherThreads) {
  EXPECT_EQ(join(in_fork([&] {
              Breadcrumbs breadcrumbs(folder.path());
              std::shared_ptr<void> inside;
              std::thread([&] { inside = breadcrumbs.leave({}); }).join();
              if (inside == nullptr) return 1;
              breadcrumbs.end_with_the_process();
              _exit(0);
              return 2;
            })),
            0);
  EXPECT_TRUE(Breadcrumbs::collect(folder.path()).empty());
}

TEST_F(StoreTest, WhoEndsTheProcessFromInsideAFirstCallLeavesItsBreadcrumb) {
  for (const bool on_a_thread_of_the_host : {false, true}) {
    EXPECT_EQ(join(in_fork([&] {
                Breadcrumbs breadcrumbs(folder.path());
                const std::shared_ptr<void> inside = breadcrumbs.leave({});
                const auto end = [&] {
                  breadcrumbs.end_with_the_process();
                  _exit(inside != nullptr ? 0 : 1);
                };
                if (!on_a_thread_of_the_host) end();
                std::thread([&] {
                  core::this_thread_is_the_hosts();
                  end();
                }).join();
                return 2;
              })),
              0);
    EXPECT_EQ(Breadcrumbs::collect(folder.path()).size(), 1u) << on_a_thread_of_the_host;
  }
}

TEST_F(StoreTest, EveryDamageIsNoticedAndTheNextPutMends) {
  ASSERT_TRUE(store.put("entry", "some content"));
  const std::string good = rlk::testing::read_text(folder / "entry");
  for (size_t length = 0; length < good.size(); ++length) {
    folder.file("entry", good.substr(0, length));
    ASSERT_EQ(store.get("entry"), std::nullopt) << length;
  }
  for (size_t at = 0; at < good.size(); ++at) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 1);
    folder.file("entry", bad);
    ASSERT_EQ(store.get("entry"), std::nullopt) << at;
  }
  folder.file("renamed", good);
  EXPECT_EQ(store.get("renamed"), std::nullopt);
  folder.file("entry", good + "tail");
  EXPECT_EQ(store.get("entry"), std::nullopt);
  EXPECT_TRUE(store.put("entry", "new"));
  EXPECT_EQ(store.get("entry"), "new");
}

TEST_F(StoreTest, NamesThatLeaveTheFolderAreRefused) {
  for (const char* name : {"", ".", "..", "../x", "a/b", ".hidden", "a b"}) {
    EXPECT_FALSE(store.put(name, "x")) << name;
    EXPECT_EQ(store.get(name), std::nullopt) << name;
  }
}

TEST_F(StoreTest, ALinkOrAPipeInItsPlaceIsHarmless) {
  folder.link("/etc/passwd", "link");
  ASSERT_EQ(mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_EQ(store.get("link"), std::nullopt);
  EXPECT_EQ(store.get("pipe"), std::nullopt);
  EXPECT_TRUE(store.put("link", "mine"));  // replaces the link, does not write through it
  EXPECT_EQ(store.get("link"), "mine");
}

TEST_F(StoreTest, AWriteThatFailsKeepsTheEntryInMemoryAndLeavesNoRubbish) {
  const pid_t child = in_fork([&] {
    // A full disk, as a limit on the size of files.
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit = {1000, 1000};
    setrlimit(RLIMIT_FSIZE, &limit);
    const bool on_disk = store.put("big", std::string(5000, 'x'));
    return !on_disk && store.get("big") == std::string(5000, 'x') ? 0 : 1;
  });
  EXPECT_EQ(join(child), 0);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST_F(StoreTest, AnotherMachinesUnfinishedFileIsLeftAlone) {
  // Its process has our number, as in containers that share a folder.
  const std::string theirs = ".entry." + std::to_string(getpid()) + ".";
  for (int i = 0; i < 2000; ++i) folder.file(theirs + std::to_string(i), "unfinished");
  EXPECT_TRUE(store.put("entry", "mine"));
  EXPECT_EQ(store.get("entry"), "mine");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 2001);
}

TEST_F(StoreTest, AFolderThatVanishesLeavesMemory) {
  Store lost(folder / "gone");
  EXPECT_FALSE(lost.put("entry", "x"));
  EXPECT_EQ(lost.get("entry"), "x");
}

TEST(MemoryStore, WorksWithoutAFolder) {
  Store store("");
  EXPECT_TRUE(store.put("entry", "x"));
  EXPECT_EQ(store.get("entry"), "x");
  ASSERT_EQ(store.list("").size(), 1u);
  EXPECT_EQ(store.clear("e"), 1u);
  EXPECT_EQ(store.get("entry"), std::nullopt);
}

TEST_F(StoreTest, ListAndClearGoByPrefix) {
  for (const char* name : {"probe-1", "probe-2", "kernel-1"}) store.put(name, "xyz");
  const auto entries = store.list("probe-");
  ASSERT_EQ(entries.size(), 2u);
  EXPECT_EQ(entries[0].name, "probe-1");
  EXPECT_GT(entries[0].modified_unix, 1'600'000'000);
  EXPECT_EQ(store.clear("probe-"), 2u);
  EXPECT_EQ(store.list("").size(), 1u);
}

TEST_F(StoreTest, ProcessesThatWriteAndReadAtOnceSeeWholeEntries) {
  constexpr int kRounds = 200;
  std::vector<pid_t> children;
  for (char letter : {'a', 'b'}) {
    children.push_back(in_fork([&, letter] {
      Store own(folder.path());
      const std::string mine(20000, letter);
      for (int i = 0; i < kRounds; ++i)
        if (!own.put("entry", mine)) return 1;
      return 0;
    }));
  }
  int bad = 0;
  for (int i = 0; i < kRounds; ++i) {
    const auto seen = store.get("entry");
    if (seen && *seen != std::string(20000, seen->front())) ++bad;
  }
  for (const pid_t child : children) EXPECT_EQ(join(child), 0);
  EXPECT_EQ(bad, 0);
  EXPECT_TRUE(store.get("entry"));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);  // no temporary file is left
}

TEST_F(StoreTest, ContentHashesAreRememberedByIdentityOnceTheFileHasSettled) {
  const std::string file = folder.file("plugin.so", "content");
  const auto fresh = content_hash(&store, file);
  ASSERT_TRUE(fresh);
  EXPECT_EQ(*fresh, *hash_file(file));
  EXPECT_TRUE(store.list("content-").empty());  // changed a moment ago: the next change might look the same
  sleep(3);
  EXPECT_EQ(content_hash(&store, file), fresh);
  const auto entries = store.list("content-");
  ASSERT_EQ(entries.size(), 1u);
  store.put(entries[0].name, "remembered");
  EXPECT_EQ(content_hash(&store, file), "remembered");  // not read again
  folder.file("plugin.so", "CONTENT");
  EXPECT_EQ(content_hash(&store, file), hash_file(file));
  EXPECT_EQ(content_hash(&store, folder / "none"), std::nullopt);
}

TEST(DemandTest, ProcessesKnowOfEachOthersAndTheMostWantedComesFirst) {
  using Names = std::vector<std::string>;
  const TempFolder folder;
  Store store(folder.folder("cache", 0700));
  const Names waiting = {"add", "gae", "logp", "mul"};
  Demand mine(&store), theirs(&store);
  EXPECT_EQ(mine.wanted_of("cuda", waiting), Names());
  mine.want("cuda", "mul");
  mine.want("cuda", "mul");
  mine.want("cuda", "logp");
  theirs.want("cuda", "logp");
  theirs.want("rocm", "add");
  EXPECT_EQ(theirs.wanted_of("cuda", waiting), (Names{"logp", "mul"}));
  EXPECT_EQ(mine.wanted_of("cuda", {"mul", "gae"}), Names{"mul"});
  EXPECT_EQ(theirs.wanted_of("rocm", waiting), Names{"add"});
  mine.forget("cuda");
  EXPECT_EQ(mine.wanted_of("cuda", waiting), Names());
  Store memory("");
  Demand alone(&memory);
  alone.want("cuda", "gae");
  EXPECT_EQ(alone.wanted_of("cuda", waiting), Names{"gae"});
}

}  // namespace
}  // namespace rlk::loader
