// Scratch as callers have it: no test has asked for it to be watched.
#include "core/cpu/simd/scratch.hpp"

#include <gtest/gtest.h>

#include <algorithm>

namespace {

TEST(Scratch, ThatNobodyWatchesIsKeptAsItWasLeft) {
  constexpr size_t kBytes = 4096;
  auto* const memory = static_cast<unsigned char*>(rlk::cpu::thread_scratch(kBytes));
  ASSERT_NE(memory, nullptr);
  std::fill_n(memory, kBytes, static_cast<unsigned char>(0x11));
  EXPECT_EQ(rlk::cpu::thread_scratch(1), memory);
  EXPECT_EQ(rlk::cpu::thread_scratch(kBytes), memory);
  EXPECT_EQ(std::count(memory, memory + kBytes, 0x11), static_cast<std::ptrdiff_t>(kBytes));
}

}  // namespace
