// Plugins' compiled kernels: kept between processes, and compiled by one process although many want them.
#include "loader/store/kernel_cache.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <string>

#include "framework/fs.hpp"
#include "framework/process.hpp"

namespace rlk::loader {
namespace {

using rlk::testing::in_fork;
using rlk::testing::join;

class KernelCacheTest : public ::testing::Test {
protected:
  static rlk_status load(const loader::KernelCache& from, std::string* out) {
    uint64_t size = 0;
    out->resize(100);
    const rlk_status status = from.load("acme", "key", out->data(), out->size(), &size);
    out->resize(status == RLK_OK ? size : 0);
    return status;
  }
  int lock_files() {
    int count = 0;
    for (const auto& item : std::filesystem::directory_iterator(folder.path()))
      count += item.path().extension() == ".lock" ? 1 : 0;
    return count;
  }
  rlk::testing::TempFolder folder;
  Store store{folder.path()};
  loader::KernelCache cache = kernel_cache(&store);
};

TEST_F(KernelCacheTest, OneThreadCompilesAndTheOthersAreToldToWait) {
  EXPECT_EQ(cache.begin("acme", "key"), RLK_OK);
  EXPECT_EQ(cache.begin("acme", "key"), RLK_NOT_READY);
  EXPECT_EQ(cache.begin("acme", "another"), RLK_OK);
  EXPECT_EQ(cache.store("acme", "key", "kernel", 6), RLK_OK);
  std::string kernel;
  EXPECT_EQ(load(cache, &kernel), RLK_OK);
  EXPECT_EQ(kernel, "kernel");
  EXPECT_EQ(cache.begin("acme", "key"), RLK_NOT_READY) << "it is there: load again";
  cache.abandon("acme", "another");
  EXPECT_EQ(lock_files(), 0);
  EXPECT_TRUE(store.list("").size() == 1u) << "lock files are no entries";
}

TEST_F(KernelCacheTest, WhatIsAbandonedIsTheNextOnes) {
  EXPECT_EQ(cache.begin("acme", "key"), RLK_OK);
  cache.abandon("acme", "key");
  cache.abandon("acme", "key");
  EXPECT_EQ(cache.begin("acme", "key"), RLK_OK);
  cache.abandon("acme", "key");
}

TEST_F(KernelCacheTest, OfManyProcessesOneCompiles) {
  std::vector<pid_t> children;
  for (int i = 0; i < 4; ++i) {
    children.push_back(in_fork([&] {
      Store own(folder.path());
      const loader::KernelCache mine = kernel_cache(&own);
      for (int round = 0; round < 1000; ++round) {
        std::string kernel;
        if (load(mine, &kernel) == RLK_OK) return kernel == "kernel" ? 0 : 9;
        const rlk_status status = mine.begin("acme", "key");
        if (status == RLK_OK) {
          usleep(50000);  // compiles
          return mine.store("acme", "key", "kernel", 6) == RLK_OK ? 1 : 9;
        }
        if (status != RLK_NOT_READY) return 8;
        usleep(2000);
      }
      return 7;
    }));
  }
  int compiled = 0;
  for (const pid_t child : children) {
    const int code = join(child);
    EXPECT_LE(code, 1);
    compiled += code == 1;
  }
  EXPECT_EQ(compiled, 1);
  EXPECT_EQ(lock_files(), 0);
}

TEST_F(KernelCacheTest, AProcessThatDiesHasAbandoned) {
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = in_fork([&] {
    Store own(folder.path());
    const loader::KernelCache mine = kernel_cache(&own);
    const char status = mine.begin("acme", "key") == RLK_OK ? 'y' : 'n';
    if (write(ready[1], &status, 1) != 1) return 1;
    while (true) pause();
  });
  char status = 0;
  ASSERT_EQ(read(ready[0], &status, 1), 1);
  EXPECT_EQ(status, 'y');
  EXPECT_EQ(cache.begin("acme", "key"), RLK_NOT_READY);
  kill(child, SIGKILL);
  join(child);
  EXPECT_EQ(cache.begin("acme", "key"), RLK_OK);
  cache.abandon("acme", "key");
  close(ready[0]);
  close(ready[1]);
}

TEST_F(KernelCacheTest, AProcessThatDiesHasAbandonedAlsoWhileItsForkedChildLives) {
  int told[2], test_ends[2];
  ASSERT_EQ(pipe(told), 0);
  ASSERT_EQ(pipe(test_ends), 0);
  const pid_t parent = in_fork([&] {
    Store own(folder.path());
    const loader::KernelCache mine = kernel_cache(&own);
    if (mine.begin("acme", "key") != RLK_OK) return 1;
    close(test_ends[1]);
    if (fork() == 0) {
      char byte = 'y';
      if (write(told[1], &byte, 1) != 1) _exit(1);
      _exit(read(test_ends[0], &byte, 1) == 0 ? 0 : 1);
    }
    while (true) pause();
  });
  char byte = 0;
  ASSERT_EQ(read(told[0], &byte, 1), 1);
  EXPECT_EQ(cache.begin("acme", "key"), RLK_NOT_READY);
  kill(parent, SIGKILL);
  join(parent);
  EXPECT_EQ(cache.begin("acme", "key"), RLK_OK);
  cache.abandon("acme", "key");
  for (const int fd : {told[0], told[1], test_ends[0], test_ends[1]}) close(fd);
}

TEST_F(KernelCacheTest, AForkedChildWaitsForWhatItsParentCompilesAndDoesNotGiveItBack) {
  EXPECT_EQ(cache.begin("acme", "key"), RLK_OK);
  EXPECT_EQ(join(in_fork([&] {
              cache.abandon("acme", "key");
              return cache.begin("acme", "key") == RLK_NOT_READY ? 0 : 1;
            })),
            0);
  EXPECT_EQ(lock_files(), 1);
  cache.abandon("acme", "key");
  EXPECT_EQ(join(in_fork([&] { return cache.begin("acme", "key") == RLK_OK ? 0 : 1; })), 0);
}

TEST(KernelCache, WithoutAFolderEverybodyCompiles) {
  Store store("");
  const loader::KernelCache cache = kernel_cache(&store);
  EXPECT_EQ(cache.begin("acme", "key"), RLK_UNSUPPORTED);
  EXPECT_EQ(cache.store("acme", "key", "kernel", 6), RLK_OK) << "for this process";
}

}  // namespace
}  // namespace rlk::loader
