// The host's thread pool: every index once, ranges that are long enough, and nesting. Apart from the other tests
// because it needs oneTBB, which thread sanitizers do not understand.
#include <gtest/gtest.h>

#include <atomic>
#include <vector>

#include "core/dispatch/parallel.hpp"

namespace rlk::core {
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

TEST(Parallel, EveryIndexOnceInRangesThatAreLongEnough) {
  for (const int64_t n : {0, 1, 7, 100, 10007}) {
    for (const int64_t grain : {-1, 0, 1, 3, 64, 20000}) {
      Seen seen(n, grain);
      parallel_for(n, grain, &Seen::body, &seen);
      for (const auto& count : seen.counts) ASSERT_EQ(count, 1);
      EXPECT_EQ(seen.too_short, 0) << n << " " << grain;
    }
  }
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

TEST(Parallel, HasAtLeastOneThread) {
  EXPECT_GE(thread_count(), 1u);
}

}  // namespace
}  // namespace rlk::core
