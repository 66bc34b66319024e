// An application that loads librlk by itself, and closes it while it works.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <rlk/rlk.h>

#include <chrono>
#include <thread>

#include "framework/fs.hpp"
#include "framework/process.hpp"

namespace rlk::test {
namespace {

// In a process of its own. A cache of its own too: the search must have something to do.
TEST(Dlclose, DuringTheSearchLeavesTheProcessAlive) {
  const testing::TempFolder cache;
  setenv("RLK_CACHE_DIR", cache.path().c_str(), 1);
  const int ended = testing::join(testing::in_fork([] {
    alarm(60);
    void* library = dlopen(RLK_TEST_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return 2;
    const auto create = reinterpret_cast<decltype(&rlk_runtime_create)>(dlsym(library, "rlk_runtime_create"));
    rlk_runtime_options options = RLK_RUNTIME_OPTIONS_INIT;
    options.wait_for_probes = 0;
    rlk_runtime* runtime = nullptr;
    if (create(&options, &runtime, nullptr) != RLK_OK) return 3;
    dlclose(library);
    std::this_thread::sleep_for(std::chrono::seconds(2));  // the search goes on
    return 0;
  }));
  EXPECT_EQ(ended, 0) << "-11: its code was unmapped under its thread";
}

}  // namespace
}  // namespace rlk::test
