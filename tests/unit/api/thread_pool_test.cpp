// The embedder's threads, through rlk.h. A process of its own: the pool is the process's.
#include <gtest/gtest.h>
#include <rlk/ops/add.h>
#include <rlk/rlk.hpp>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

namespace rlk::test {
namespace {

std::atomic<int> loops{0};

rlk_thread_pool four_threads() {
  const auto run = [](void*, uint32_t n, void (*work)(void*, uint32_t), void* user) {
    ++loops;
    std::vector<std::thread> threads;
    for (uint32_t i = 0; i < n; ++i) threads.emplace_back(work, user, i);
    for (std::thread& thread : threads) thread.join();
  };
  return {sizeof(rlk_thread_pool), 0, nullptr, [](void*) { return 4u; }, run};
}

bool adds(const Stream& stream) {
  constexpr int64_t kCount = int64_t{1} << 20;
  const std::vector<float> a(kCount, 1.5f), b(kCount, 2.0f);
  std::vector<float> sum(kCount, -1.0f);
  call(stream, "add", static_cast<const rlk_add_params*>(nullptr),
       {ConstTensor(a.data(), kF32, {kCount}), ConstTensor(b.data(), kF32, {kCount})},
       {Tensor(sum.data(), kF32, {kCount})});
  return sum == std::vector<float>(kCount, 3.5f);
}

TEST(EmbeddersThreads, ComputeFromWhenTheyAreGivenUntilTheyAreTakenBack) {
  const Runtime runtime;
  const Stream stream = runtime.stream();
  EXPECT_TRUE(adds(stream));
  EXPECT_EQ(loops, 0);

  rlk_error error = RLK_ERROR_INIT;
  {
    const rlk_thread_pool pool = four_threads();
    ASSERT_EQ(rlk_set_thread_pool(&pool, &error), RLK_OK) << error.text;
  }  // was copied
  EXPECT_TRUE(adds(stream));
  const int used = loops;
  EXPECT_GT(used, 0);

  ASSERT_EQ(rlk_set_thread_pool(nullptr, &error), RLK_OK) << error.text;
  EXPECT_TRUE(adds(stream));
  EXPECT_EQ(loops, used);
}

TEST(EmbeddersThreads, APoolThatLacksSomethingIsRefusedByName) {
  const auto refusal = [](const rlk_thread_pool& pool) {
    rlk_error error = RLK_ERROR_INIT;
    EXPECT_EQ(rlk_set_thread_pool(&pool, &error), RLK_INVALID_ARGUMENT);
    return std::string(error.text);
  };
  rlk_thread_pool pool = four_threads();
  pool.struct_size = 8;
  EXPECT_NE(refusal(pool).find("struct_size 8) is too short"), std::string::npos);
  pool = four_threads();
  pool.run = nullptr;
  EXPECT_NE(refusal(pool).find("has no run;"), std::string::npos);
  pool = four_threads();
  pool.thread_count = nullptr;
  EXPECT_NE(refusal(pool).find("has no thread_count;"), std::string::npos);
}

}  // namespace
}  // namespace rlk::test
