// A thread's own object: whose it is, and when it ends.
#include <gtest/gtest.h>
#include <rlk/sdk/thread_own.hpp>

#include <atomic>
#include <thread>

namespace rlk::test {
namespace {

std::atomic<int> made{0}, ended{0};

struct Counted {
  Counted() { ++made; }
  ~Counted() { ++ended; }
  int value = 0;
};

// What a program keeps for each thread, and whose destructor uses a library that does the same.
struct Last {
  std::atomic<int>* seen = nullptr;
  ~Last() {
    if (seen != nullptr) *seen = sdk::thread_own<Counted>().value;
  }
};

TEST(ThreadOwn, IsAnotherInEachThreadAndEndsWithIt) {
  const int before = made, ended_before = ended;
  for (int i = 1; i <= 2; ++i) {
    std::thread([&] {
      sdk::thread_own<Counted>().value = i;
      EXPECT_EQ(sdk::thread_own<Counted>().value, i) << "the same again";
      EXPECT_EQ(made - before, i);
    }).join();
    EXPECT_EQ(ended - ended_before, i);
  }
}

TEST(ThreadOwn, OutlivesTheThreadsOtherObjects) {
  const int before = made, ended_before = ended;
  std::atomic<int> seen{0}, seen_without{-1};
  std::thread([&] {
    static thread_local Last last;  // made first, so a thread_local made later would end before it
    last.seen = &seen;
    sdk::thread_own<Counted>().value = 7;
  }).join();
  EXPECT_EQ(seen, 7);
  std::thread([&] {
    static thread_local Last last;
    last.seen = &seen_without;
  }).join();
  EXPECT_EQ(seen_without, 0) << "asked for the first time while the thread ends";
  EXPECT_EQ(made - before, 2);
  EXPECT_EQ(ended - ended_before, 2);
}

}  // namespace
}  // namespace rlk::test
