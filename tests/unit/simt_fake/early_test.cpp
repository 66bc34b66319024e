// Does the simulated driver of CUDA stop a kernel that is launched before those ahead of it are done and does not wait
// for them, and let pass one that does?
#include <gtest/gtest.h>

#include <cstdint>

#include "plugins/simt/products.h"
#include "plugins/simt/skeleton/map.h"

// CUlaunchConfig, with one CUlaunchAttribute.
struct LaunchConfig {
  unsigned grid[3], block[3], shared;
  void* stream;
  const int* attributes;
  unsigned count;
};
extern "C" {
int cuInit(unsigned flags);
int cuDevicePrimaryCtxRetain(void** context, int device);
int cuCtxPushCurrent_v2(void* context);
int cuMemAlloc_v2(void** pointer, size_t bytes);
int cuMemFree_v2(void* pointer);
int cuStreamCreateWithPriority(void** stream, unsigned flags, int priority);
int cuStreamDestroy_v2(void* stream);
int cuStreamSynchronize(void* stream);
int cuModuleLoadData(void** module, const void* image);
int cuModuleGetFunction(void** function, void* module, const char* name);
int cuLaunchKernelEx(const LaunchConfig* config, void* function, void** parameters, void** extra);
}

namespace {

class EarlyTest : public testing::Test {
protected:
  void SetUp() override {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    constexpr uint32_t kFatBinary = 0xba55ed50;
    ASSERT_EQ(cuInit(0), 0);
    void* context = nullptr;
    ASSERT_EQ(cuDevicePrimaryCtxRetain(&context, 0), 0);
    ASSERT_EQ(cuCtxPushCurrent_v2(context), 0);
    ASSERT_EQ(cuStreamCreateWithPriority(&stream_, 1, 0), 0);
    ASSERT_EQ(cuMemAlloc_v2(&memory_, 64), 0);
    ASSERT_EQ(cuModuleLoadData(&module_, &kFatBinary), 0);
  }
  void TearDown() override {
    EXPECT_EQ(cuMemFree_v2(memory_), 0);
    EXPECT_EQ(cuStreamDestroy_v2(stream_), 0);
  }
  int launch(const char* name, void* args, unsigned threads, int is_early) {
    void* function = nullptr;
    EXPECT_EQ(cuModuleGetFunction(&function, module_, name), 0);
    const int attribute[18] = {6, 0, is_early};
    const LaunchConfig config = {{1, 1, 1}, {threads, 1, 1}, 0, stream_, attribute, 1};
    const int code = cuLaunchKernelEx(&config, function, &args, nullptr);
    return code != 0 ? code : cuStreamSynchronize(stream_);
  }

  void *stream_ = nullptr, *memory_ = nullptr, *module_ = nullptr;
};

TEST_F(EarlyTest, AKernelThatIsLaunchedEarlyWaitsForThoseAheadOfIt) {
  rlk::simt::MapArgs map{};
  for (int t = 0; t < 3; ++t) map.tensor[t].data = memory_;
  map.elements = map.pieces = map.shape[0] = 1;
  map.dims = 1;
  map.form = rlk::simt::kMapAny;
  EXPECT_EQ(launch("arithmetic_map_Mul_f32", &map, rlk::simt::kMapThreads, 1), 0);

  rlk::simt::ProductsMapArgs products{};
  products.y = memory_;
  for (int64_t& size : products.size) size = 1;
  EXPECT_EQ(launch("products_map_f32_f32", &products, rlk::simt::kProductsThreads, 0), 0);
  EXPECT_DEATH(launch("products_map_f32_f32", &products, rlk::simt::kProductsThreads, 1),
               "EARLY: products_map_f32_f32 .*256 of its 256 threads do not wait");
}

}  // namespace
