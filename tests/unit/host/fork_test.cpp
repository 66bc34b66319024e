// A process that is forked from one whose thread pool runs: it has the memory of the pool and none of its threads.
// Apart from the other tests of the pool: thread sanitizers do not follow a fork.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "framework/process.hpp"
#include "loader/host/embedder_threads.hpp"
#include "loader/host/parallel.hpp"

namespace rlk::loader {
namespace {

using rlk::testing::in_fork;
using rlk::testing::join;

constexpr unsigned kPatienceSeconds = 30;  // then the child is killed by SIGALRM

int64_t sum_up_to(int64_t n) {
  std::atomic<int64_t> sum{0};
  parallel_for(
      n, 1,
      [](void* user, int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) *static_cast<std::atomic<int64_t>*>(user) += i;
      },
      &sum);
  return sum;
}

TEST(ForkedChild, RunsALoopInOnePieceOnItsOneThread) {
  ASSERT_EQ(sum_up_to(1000), 499500);  // the pool runs
  EXPECT_EQ(join(in_fork([] {
              alarm(kPatienceSeconds);
              struct Pieces {
                pthread_t thread;
                int count;
                bool whole;
              } pieces = {pthread_self(), 0, false};
              parallel_for(
                  1000, 1,
                  [](void* user, int64_t begin, int64_t end) {
                    auto& seen = *static_cast<Pieces*>(user);
                    ++seen.count;
                    seen.whole = begin == 0 && end == 1000 && pthread_equal(seen.thread, pthread_self()) != 0;
                  },
                  &pieces);
              return pieces.count == 1 && pieces.whole ? 0 : 1;
            })),
            0);
}

TEST(ForkedChild, DoesNotAskTheEmbeddersPoolWhoseThreadsItDoesNotHave) {
  static int asked = 0;
  const ThreadPool pool = {nullptr, [](void*) { return 4u; },
                           [](void*, uint32_t n, void (*work)(void*, uint32_t), void* user) {
                             ++asked;
                             for (uint32_t i = 0; i < n; ++i) work(user, i);
                           }};
  set_thread_pool(&pool);
  EXPECT_EQ(sum_up_to(1000), 499500);
  EXPECT_EQ(asked, 1);
  EXPECT_EQ(join(in_fork([] { return sum_up_to(1000) == 499500 && asked == 1 && thread_count() == 1 ? 0 : 1; })), 0);
  set_thread_pool(nullptr);
}

TEST(ForkedChild, CountsOneThread) {
  ASSERT_EQ(sum_up_to(1000), 499500);
  EXPECT_EQ(join(in_fork([] { return static_cast<int>(thread_count()); })), 1);
}

TEST(ForkedChild, OfItsChildTheSameHolds) {
  ASSERT_EQ(sum_up_to(1000), 499500);
  EXPECT_EQ(join(in_fork([] { return join(in_fork([] { return static_cast<int>(thread_count()); })); })), 1);
}

// Threads of the pool are at any place when the fork comes: inside its locks, with half of the loop's pieces.
TEST(ForkedChild, ReturnsFromItsLoopsHoweverBusyThePoolWas) {
  std::atomic<bool> stop{false};
  std::vector<std::thread> busy;
  for (int i = 0; i < 3; ++i) {
    busy.emplace_back([&stop] {
      while (!stop) sum_up_to(200);
    });
  }
  std::vector<pid_t> children;
  for (int i = 0; i < 40; ++i) {
    children.push_back(in_fork([] {
      alarm(kPatienceSeconds);
      for (int64_t n = 100; n < 110; ++n) {
        if (sum_up_to(n) != n * (n - 1) / 2) return 1;
      }
      return 0;
    }));
    sum_up_to(50);
  }
  for (const pid_t child : children) EXPECT_EQ(join(child), 0) << "-14: it hung";
  stop = true;
  for (std::thread& thread : busy) thread.join();
}

TEST(ForkedChild, ForkedInsideALoopReturnsFromLoopsOfItsOwn) {
  std::atomic<int> bad{0};
  parallel_for(
      8, 1,
      [](void* user, int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          *static_cast<std::atomic<int>*>(user) += join(in_fork([] {
                                                     alarm(kPatienceSeconds);
                                                     return sum_up_to(1000) == 499500 ? 0 : 1;
                                                   })) != 0;
        }
      },
      &bad);
  EXPECT_EQ(bad, 0);
}

TEST(ForkedChild, LeavesTheParentsPoolAsItWas) {
  ASSERT_EQ(join(in_fork([] { return sum_up_to(100) == 4950 ? 0 : 1; })), 0);
  EXPECT_EQ(sum_up_to(1000), 499500);
  EXPECT_GE(thread_count(), 1u);
}

}  // namespace
}  // namespace rlk::loader
