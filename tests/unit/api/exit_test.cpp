// exit() while threads go on with rlk: whatever they compute then, no plugin is blamed, and the process ends with
// its own status. As in a Python program, which never ends the runtime.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <rlk/rlk.h>
#include <sched.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "framework/env.hpp"
#include "framework/fs.hpp"
#include "framework/process.hpp"

namespace rlk::test {
namespace {

constexpr int kBackends = 2;
constexpr uint64_t kBefore = 20, kAfter = 400;  // calls of each thread, before exit() and while it runs
constexpr int kFailed = 9;

std::atomic<uint64_t> calls[kBackends];
std::atomic<bool> any_failed{false};

// The embedder's handler, which was there first and so is called last: until then everything of rlk that has a
// destructor is destroyed.
void wait_for_more_calls() {
  uint64_t wanted[kBackends];
  for (int i = 0; i < kBackends; ++i) wanted[i] = calls[i] + kAfter;
  for (int i = 0; i < kBackends; ++i) {
    while (calls[i] < wanted[i] && !any_failed) sched_yield();
  }
  if (any_failed) _exit(kFailed);
}

struct Library {
  void* handle = dlopen(RLK_TEST_LIBRARY, RTLD_NOW | RTLD_LOCAL);
  template <class Function>
  Function* find(const char* name) const {
    return reinterpret_cast<Function*>(dlsym(handle, name));
  }
};

// bf16 numbers that are far from equal, so that a table of zeros or of anything else is seen.
void add_for_ever(const Library& library, rlk_stream* stream, int64_t count, std::atomic<uint64_t>& done) {
  std::vector<uint16_t> a(static_cast<size_t>(count)), b(a.size()), sum(a.size());
  for (size_t i = 0; i < a.size(); ++i) a[i] = static_cast<uint16_t>(0x3f80 + i % 256), b[i] = 0x4040;
  const rlk_op* op = nullptr;
  library.find<decltype(rlk_op_find)>("rlk_op_find")("add", &op, nullptr);
  auto* const call = library.find<decltype(rlk_call)>("rlk_call");
  const int64_t shape[] = {count}, strides[] = {1};
  const auto tensor = [&](std::vector<uint16_t>& of) {
    return rlk_tensor{sizeof(rlk_tensor), 2, of.data(), 0, shape, strides, 1, {RLK_DTYPE_BFLOAT, 16, 1}};
  };
  const rlk_tensor tensors[] = {tensor(a), tensor(b), tensor(sum)};
  const rlk_tensor *inputs[] = {&tensors[0], &tensors[1]}, *outputs[] = {&tensors[2]};
  auto* const synchronize = library.find<decltype(rlk_stream_synchronize)>("rlk_stream_synchronize");
  for (;;) {
    const bool served = call(stream, op, nullptr, inputs, 2, outputs, 1, nullptr, nullptr) == RLK_OK &&
                        synchronize(stream, UINT64_MAX, nullptr) == RLK_OK;
    if (!served) any_failed = true;
    ++done;
  }
}

int use_and_exit() {
  alarm(120);
  mallopt(M_PERTURB, 0xa5);  // what is freed is overwritten, and large blocks are unmapped
  mallopt(M_MMAP_THRESHOLD, 131072);
  std::atexit(wait_for_more_calls);
  static const Library library;  // after the handler, with all that it needs
  if (library.handle == nullptr) return 2;
  rlk_runtime* runtime = nullptr;
  if (library.find<decltype(rlk_runtime_create)>("rlk_runtime_create")(nullptr, &runtime, nullptr) != RLK_OK) return 3;
  const std::array<const char*, kBackends> backends = {"cpu", "newer_minor"};
  const std::array<int64_t, kBackends> counts = {1 << 16, 1 << 10};  // on the pool of threads, and on one alone
  for (size_t i = 0; i < kBackends; ++i) {
    rlk_stream* stream = nullptr;
    if (library.find<decltype(rlk_stream_create)>("rlk_stream_create")(runtime, backends[i], 0, 0, &stream, nullptr) !=
        RLK_OK)
      return 4;
    std::thread([stream, i, count = counts[i]] { add_for_ever(library, stream, count, calls[i]); }).detach();
  }
  for (const auto& made : calls)
    while (made < kBefore && !any_failed) sched_yield();
  std::exit(0);
}

TEST(Exit, WhileThreadsGoOnBlamesNobody) {
  const testing::TempFolder cache;
  const std::string log = cache / "log";
  const testing::ScopedEnv folder("RLK_CACHE_DIR", cache.path().c_str()), file("RLK_LOG_FILE", log.c_str()),
      watch("RLK_WATCH", "1"), plugins("RLK_PLUGIN_PATH", RLK_TEST_PLUGIN);
  for (int round = 0; round < 3; ++round) {
    EXPECT_EQ(testing::join(testing::in_fork(use_and_exit)), 0) << "-11: it read what was destroyed; 9: a call failed";
  }
  std::ifstream lines(log);
  const std::string text((std::istreambuf_iterator<char>(lines)), std::istreambuf_iterator<char>());
  for (const char* blame : {"WRONG_RESULT", "switched off", "compared"})
    EXPECT_EQ(text.find(blame), std::string::npos) << text;
  for (const auto& entry : std::filesystem::directory_iterator(cache.path())) {
    const std::string name = entry.path().filename();
    EXPECT_FALSE(name.starts_with("quarantine-") || name.starts_with(".crumbs-")) << name;
  }
}

}  // namespace
}  // namespace rlk::test
