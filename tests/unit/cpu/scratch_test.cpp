// Scratch of a thread: kept, grown, and watched in all tests of this program.
#include "core/cpu/simd/scratch.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string>

namespace rlk::test {
namespace {

// What a kernel does not write before it reads it is NaN here, and what it did not ask for is not its own.
[[maybe_unused]] const bool watched = [] {
  cpu::check_scratch_use();
  return true;
}();

TEST(CpuScratch, IsAlignedAndFullOfNan) {
  for (const size_t count : {1, 100, 4993, 7}) {  // with what is watched 4993 are five pages and one number
    const auto* const numbers = static_cast<const float*>(cpu::thread_scratch(count * sizeof(float)));
    ASSERT_NE(numbers, nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(numbers) % 64, 0u);
    for (size_t i = 0; i < count; ++i) ASSERT_TRUE(std::isnan(numbers[i])) << i << " of " << count;
  }
}

TEST(CpuScratch, WrittenBehindWhatWasAskedForEndsTheProgram) {
  for (const size_t at : {1000, 1511}) {
    EXPECT_DEATH(
        {
          static_cast<char*>(cpu::thread_scratch(1000))[at] = 0;
          cpu::thread_scratch(1);
        },
        "asked for 1000 bytes of scratch and wrote to byte " + std::to_string(at));
  }
}

}  // namespace
}  // namespace rlk::test
