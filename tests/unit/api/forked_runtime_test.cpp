// A process that is forked from one with a runtime (a data loader's worker, say) uses rlk on the CPU. A process of its
// own: the search for plugins must still run when the fork comes, or be over, and it runs once.
#include <gtest/gtest.h>
#include <rlk/ops/add.h>
#include <rlk/rlk.hpp>

#include <vector>

#include "framework/fs.hpp"
#include "framework/process.hpp"

namespace rlk::test {
namespace {

using rlk::testing::in_fork;
using rlk::testing::join;

constexpr unsigned kPatienceSeconds = 60;  // then the child is killed by SIGALRM

// Large enough for the thread pool.
bool adds(const Runtime& runtime) {
  constexpr int64_t kCount = int64_t{1} << 20;
  const std::vector<float> a(kCount, 1.5f), b(kCount, 2.0f);
  std::vector<float> sum(kCount, -1.0f);
  const Stream stream = runtime.stream();
  call(stream, "add", static_cast<const rlk_add_params*>(nullptr),
       {ConstTensor(a.data(), kF32, {kCount}), ConstTensor(b.data(), kF32, {kCount})},
       {Tensor(sum.data(), kF32, {kCount})});
  stream.synchronize();
  return sum == std::vector<float>(kCount, 3.5f);
}

rlk_status create_and_destroy(int32_t wait_for_probes) {
  rlk_runtime_options options = RLK_RUNTIME_OPTIONS_INIT;
  options.wait_for_probes = wait_for_probes;
  rlk_runtime* runtime = nullptr;
  const rlk_status status = rlk_runtime_create(&options, &runtime, nullptr);
  return status == RLK_OK ? rlk_runtime_destroy(runtime, nullptr) : status;
}

TEST(ForkedRuntime, ServesCallsAndEndsWhetherTheSearchRunsOrIsOver) {
  // An empty cache: the CPU is judged anew, which takes seconds.
  const testing::TempFolder cache;
  setenv("RLK_CACHE_DIR", cache.path().c_str(), 1);
  rlk_runtime_options options = RLK_RUNTIME_OPTIONS_INIT;
  options.wait_for_probes = 0;
  auto* runtime = new Runtime(options);
  for (const bool is_over : {false, true}) {
    SCOPED_TRACE(is_over ? "the search is over" : "the search runs");
    ASSERT_TRUE(adds(*runtime));
    EXPECT_EQ(join(in_fork([] {
                alarm(kPatienceSeconds);
                return static_cast<int>(create_and_destroy(1));
              })),
              0)
        << "another runtime, which waits for the search; -14: it hung";
    EXPECT_EQ(join(in_fork([&] {
                alarm(kPatienceSeconds);
                const bool right = adds(*runtime);
                delete runtime;
                return right && create_and_destroy(0) == RLK_OK ? 0 : 1;
              })),
              0)
        << "the inherited runtime; -14: it hung";
    ASSERT_EQ(create_and_destroy(1), RLK_OK);  // waits for the search
  }
  EXPECT_TRUE(adds(*runtime)) << "in the parent all is as before";
  delete runtime;
}

}  // namespace
}  // namespace rlk::test
