// The lowest row in error, whichever threads see which rows in error.
#include <algorithm>
#include <atomic>

#include "unit/cpu/support.hpp"

namespace rlk::test {
namespace {

TEST(CpuFirstBadRow, IsAtMostEveryRowThatAThreadHasReported) {
  constexpr int64_t kThreads = 4, kRows = 200'000;
  cpu::FirstBadRow bad;
  EXPECT_FALSE(bad.any());
  std::atomic<int64_t> lost{0};
  cpu::parallel_for(threads_parallel(kThreads), kThreads, 1, [&](int64_t thread, int64_t) {
    for (int64_t row = kRows + thread; row >= 0; row -= kThreads) {
      bad.report(row);
      if (bad.row() > row) ++lost;
    }
  });
  EXPECT_EQ(lost, 0);
  EXPECT_TRUE(bad.any());
  EXPECT_EQ(bad.row(), 0);
}

}  // namespace
}  // namespace rlk::test
