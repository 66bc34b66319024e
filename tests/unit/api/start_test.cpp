// Runtimes that come and go on several threads while the search for plugins still runs. A process of its own: a search
// that was finished is not made again.
#include <gtest/gtest.h>
#include <rlk/rlk.hpp>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

namespace rlk::test {
namespace {

TEST(Start, IsNotDisturbedByTheEndOfTheRuntimeBefore) {
  constexpr int kThreads = 2, kRounds = 25;
  std::atomic<int> bad{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&bad] {
      for (int round = 0; round < kRounds; ++round) {
        rlk_runtime* runtime = nullptr;
        bad += rlk_runtime_create(nullptr, &runtime, nullptr) == RLK_OK ? 0 : 1;
        bad += rlk_runtime_destroy(runtime, nullptr) == RLK_OK ? 0 : 1;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(bad, 0);
  rlk_runtime_options options = RLK_RUNTIME_OPTIONS_INIT;
  options.wait_for_probes = 1;
  rlk_runtime* runtime = nullptr;
  ASSERT_EQ(rlk_runtime_create(&options, &runtime, nullptr), RLK_OK);
  char* text = nullptr;
  ASSERT_EQ(rlk_list_json(runtime, &text, nullptr), RLK_OK);
  EXPECT_EQ(std::string(text).find("CANCELLED"), std::string::npos) << text;
  EXPECT_NE(std::string(text).find("\"registered\""), std::string::npos) << text;
  rlk_string_free(text);
  EXPECT_EQ(rlk_runtime_destroy(runtime, nullptr), RLK_OK);
}

}  // namespace
}  // namespace rlk::test
