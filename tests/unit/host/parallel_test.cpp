// The host's thread pool: every index once, ranges that are long enough, and nesting. Apart from the other tests
// because it needs oneTBB, which thread sanitizers do not understand.
#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <cfenv>
#include <stdexcept>
#include <vector>

#include "loader/host/embedder_threads.hpp"
#include "loader/host/parallel.hpp"

namespace rlk::loader {
namespace {

struct Seen {
  explicit Seen(int64_t n, int64_t at_least) : counts(static_cast<size_t>(n)), grain(at_least) {}
  std::vector<std::atomic<int>> counts;
  int64_t grain;
  std::atomic<int> too_short{0};
  static void body(void* user, int64_t begin, int64_t end) {
    auto& seen = *static_cast<Seen*>(user);
    const auto n = static_cast<int64_t>(seen.counts.size());
    seen.too_short += end - begin < seen.grain && end != n;
    for (int64_t i = begin; i < end; ++i) ++seen.counts[static_cast<size_t>(i)];
  }
};

void expect_every_index_once() {
  for (const int64_t n : {0, 1, 7, 100, 10007}) {
    for (const int64_t grain : {-1, 0, 1, 3, 64, 20000}) {
      Seen seen(n, grain);
      parallel_for(n, grain, &Seen::body, &seen);
      for (const auto& count : seen.counts) ASSERT_EQ(count, 1);
      EXPECT_EQ(seen.too_short, 0) << n << " " << grain;
    }
  }
}

TEST(Parallel, EveryIndexOnceInRangesThatAreLongEnough) {
  expect_every_index_once();
}

TEST(Parallel, MayBeNested) {
  std::atomic<int64_t> sum{0};
  parallel_for(
      20, 1,
      [](void* user, int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          parallel_for(
              100, 10, [](void* inner, int64_t b, int64_t e) { *static_cast<std::atomic<int64_t>*>(inner) += e - b; },
              user);
        }
      },
      &sum);
  EXPECT_EQ(sum, 2000);
}

// A pool as an embedder may have it: threads of `stack` bytes that live for one loop, and leaves out what it likes.
struct EmbeddersPool {
  uint32_t threads = 4, left_out = 0;
  size_t stack = size_t{8} << 20;
  std::atomic<int> loops{0};

  static uint32_t thread_count(void* context) { return static_cast<EmbeddersPool*>(context)->threads; }
  struct Job {
    void (*work)(void*, uint32_t);
    void* user;
    uint32_t i;
  };
  static void run(void* context, uint32_t n, void (*work)(void*, uint32_t), void* user) {
    auto& pool = *static_cast<EmbeddersPool*>(context);
    ++pool.loops;
    std::vector<Job> jobs;
    for (uint32_t i = pool.left_out; i < n; ++i) jobs.push_back({work, user, i});
    std::vector<pthread_t> running(jobs.size());
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, pool.stack);
    for (size_t k = 0; k < jobs.size(); ++k) {
      const auto body = [](void* given) -> void* {
        const Job& job = *static_cast<const Job*>(given);
        job.work(job.user, job.i);
        return nullptr;
      };
      ASSERT_EQ(pthread_create(&running[k], &attributes, body, &jobs[k]), 0);
    }
    for (const pthread_t thread : running) pthread_join(thread, nullptr);
    pthread_attr_destroy(&attributes);
  }
};

class OnAnEmbeddersPool : public ::testing::Test {
protected:
  void SetUp() override { set_thread_pool(&table_); }
  void TearDown() override { set_thread_pool(nullptr); }
  EmbeddersPool pool_;
  const ThreadPool table_{&pool_, EmbeddersPool::thread_count, EmbeddersPool::run};
};

TEST_F(OnAnEmbeddersPool, EveryIndexOnceInRangesThatAreLongEnough) {
  for (const uint32_t left_out : {0u, 1u, 4u}) {  // the last: no thread comes but the caller
    pool_.left_out = left_out;
    expect_every_index_once();
  }
  EXPECT_GT(pool_.loops, 0);
}

TEST_F(OnAnEmbeddersPool, AWorkerBeginsWithItsOwnShareAndThenTakesTheOthers) {
  const ThreadPool only_the_last = {nullptr, [](void*) { return 4u; },
                                    [](void*, uint32_t n, auto work, void* user) { work(user, n - 1); }};
  set_thread_pool(&only_the_last);
  struct Taken {
    std::vector<int64_t> begins;
    int64_t indices = 0;
  } taken;
  parallel_for(
      1002, 1,
      [](void* user, int64_t begin, int64_t end) {
        auto& seen = *static_cast<Taken*>(user);
        seen.begins.push_back(begin);
        seen.indices += end - begin;
      },
      &taken);
  EXPECT_EQ(taken.begins.front(), 752);  // shares of 251, 251, 250 and 250
  EXPECT_EQ(taken.begins.back(), 750);   // the end of the one before its own comes last
  EXPECT_EQ(taken.indices, 1002);
}

TEST_F(OnAnEmbeddersPool, CountsItsThreadsAndOneAlonePicksNobody) {
  EXPECT_EQ(thread_count(), 4u);
  pool_.threads = 1;
  EXPECT_EQ(thread_count(), 1u);
  Seen seen(100, 1);
  parallel_for(100, 1, &Seen::body, &seen);
  for (const auto& count : seen.counts) EXPECT_EQ(count, 1);
  EXPECT_EQ(pool_.loops, 0);
}

TEST_F(OnAnEmbeddersPool, ALoopInALoopRunsOnItsCaller) {
  std::atomic<int64_t> sum{0};
  const auto outer = [](void* user, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      pthread_t self = pthread_self();
      struct Inner {
        std::atomic<int64_t>* sum;
        pthread_t thread;
      } inner = {static_cast<std::atomic<int64_t>*>(user), self};
      parallel_for(
          100, 10,
          [](void* given, int64_t b, int64_t e) {
            const Inner& wanted = *static_cast<const Inner*>(given);
            EXPECT_NE(pthread_equal(wanted.thread, pthread_self()), 0);
            *wanted.sum += e - b;
          },
          &inner);
    }
  };
  parallel_for(20, 1, outer, &sum);
  EXPECT_EQ(sum, 2000);
  EXPECT_EQ(pool_.loops, 1);
  parallel_for(20, 1, outer, &sum);  // the caller is outside again
  EXPECT_EQ(pool_.loops, 2);
}

TEST_F(OnAnEmbeddersPool, ThreadsWithLittleStackAreLeftOut) {
  pool_.stack = size_t{128} << 10;
  struct Pieces {
    pthread_t caller = pthread_self();
    std::atomic<int> elsewhere{0};
    std::atomic<int64_t> indices{0};
  } pieces;
  parallel_for(
      1000, 1,
      [](void* user, int64_t begin, int64_t end) {
        auto& seen = *static_cast<Pieces*>(user);
        seen.indices += end - begin;
        if (pthread_equal(seen.caller, pthread_self()) == 0) ++seen.elsewhere;
      },
      &pieces);
  EXPECT_EQ(pieces.indices, 1000);
  EXPECT_EQ(pieces.elsewhere, 0);
}

TEST_F(OnAnEmbeddersPool, RoundingIsTheCallersOnEveryThread) {
  struct Modes {
    std::atomic<int> upward{0}, other{0};
  } modes;
  std::fesetround(FE_UPWARD);
  parallel_for(
      1000, 1,
      [](void* user, int64_t, int64_t) {
        auto& seen = *static_cast<Modes*>(user);
        ++(std::fegetround() == FE_UPWARD ? seen.upward : seen.other);
      },
      &modes);
  EXPECT_EQ(std::fegetround(), FE_UPWARD);
  std::fesetround(FE_TONEAREST);
  EXPECT_GT(modes.upward, 0);
  EXPECT_EQ(modes.other, 0);
}

TEST_F(OnAnEmbeddersPool, WhatAPieceThrowsReachesTheCaller) {
  EXPECT_THROW(parallel_for(
                   1000, 1, [](void*, int64_t, int64_t) { throw std::runtime_error("no memory, say"); }, nullptr),
               std::runtime_error);
  Seen seen(100, 1);  // and the next loop is whole
  parallel_for(100, 1, &Seen::body, &seen);
  for (const auto& count : seen.counts) EXPECT_EQ(count, 1);
}

TEST(Parallel, HasAtLeastOneThread) {
  EXPECT_GE(thread_count(), 1u);
}

}  // namespace
}  // namespace rlk::loader
