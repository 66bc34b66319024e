// A limit on work counts work, and by the clock it is wider.
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <thread>

#include "core/declaration/processor_wait.hpp"

namespace rlk::core {
namespace {

using std::chrono::nanoseconds;
using namespace std::chrono_literals;

TEST(Budget, IsUsedUpByWorkAndNotByWaiting) {
  EXPECT_FALSE(is_used_up(10s, 10s, 0s)) << "all of it, and no more";
  EXPECT_TRUE(is_used_up(10s, 10s + 1ns, 0s));
  EXPECT_FALSE(is_used_up(10s, 39s, 30s)) << "nine seconds of work";
  EXPECT_TRUE(is_used_up(10s, 39s, 28s));
}

TEST(Budget, IsSoManyTimesAsWideByTheClock) {
  EXPECT_FALSE(is_used_up(10s, 10s * kWidestByTheClock, 10s * kWidestByTheClock));
  EXPECT_TRUE(is_used_up(10s, 10s * kWidestByTheClock + 1ns, 10s * kWidestByTheClock));
}

TEST(Budget, IsNoneWithoutSeconds) {
  for (const double seconds : {0.0, -1.0, std::nan("")}) {
    const Budget budget(seconds);
    EXPECT_EQ(budget.limit(), 0ns) << seconds;
    EXPECT_FALSE(budget.is_used_up()) << seconds;
  }
  EXPECT_FALSE(is_used_up(0ns, 1000000s, 0s));
}

TEST(Budget, IsALimitHoweverShort) {
  for (const double seconds : {1e-9, 1e-12, 5e-324}) EXPECT_GT(Budget(seconds).limit(), 0ns) << seconds;
}

TEST(Budget, OfMoreThanAMillionSecondsDoesNotOverflow) {
  for (const double seconds : {1e6, 1e30, HUGE_VAL}) {
    const Budget budget(seconds);
    EXPECT_EQ(budget.limit(), 1000000s) << seconds;
    EXPECT_FALSE(budget.is_used_up());
  }
}

TEST(Budget, OfTheThreadEndsWhenItsWorkIsDone) {
  const Budget budget(1e-6);
  while (!budget.is_used_up()) std::this_thread::yield();  // by the clock at the latest
  SUCCEED();
}

TEST(Budget, HearsWhatTheKernelTellsOfAThread) {
  EXPECT_GE(waited_for_processor(), 0ns);
  EXPECT_EQ(waited_for_processor(-1), 0ns) << "there is no such process";
}

}  // namespace
}  // namespace rlk::core
