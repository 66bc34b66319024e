// The lowest row in error, whichever threads see which rows in error.
#include <atomic>
#include <latch>
#include <thread>
#include <vector>

#include "unit/cpu/support.hpp"

namespace rlk::test {
namespace {

TEST(CpuFirstBadRow, IsAtMostEveryRowThatAThreadHasReported) {
  constexpr int64_t kThreads = 3, kRows = 9'000'000;  // long enough for two to meet
  cpu::FirstBadRow bad;
  EXPECT_FALSE(bad.any());
  std::atomic<int64_t> lost{0};
  std::latch all(kThreads);
  const auto work = [&](int64_t thread) {
    all.arrive_and_wait();
    for (int64_t row = kRows + thread; row >= 0; row -= kThreads) {
      bad.report(row);
      if (bad.row() > row) ++lost;
    }
  };
  std::vector<std::jthread> threads;
  for (int64_t thread = 0; thread < kThreads; ++thread) threads.emplace_back(work, thread);
  threads.clear();
  EXPECT_EQ(lost, 0);
  EXPECT_EQ(bad.row(), 0);
}

}  // namespace
}  // namespace rlk::test
