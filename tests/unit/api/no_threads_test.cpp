// A container whose limit of processes is reached: no thread can be started any more. The CPU computes on the caller's.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <rlk/rlk.hpp>

#include <atomic>
#include <cerrno>
#include <string>
#include <vector>

namespace {
std::atomic<int> refused{0};
}

// Stands before the C library's for everything in this process; root cannot be limited by setrlimit.
extern "C" int pthread_create(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*) {
  ++refused;
  return EAGAIN;
}

namespace rlk::test {
namespace {

TEST(NoThreads, ARuntimeIsMadeAndCallsAreServedOnTheCallersThread) {
  const Runtime runtime;
  EXPECT_GT(refused.load(), 0) << "the search for plugins asked for no thread";
  const Stream stream = runtime.stream();
  constexpr int64_t kMany = 1 << 20;  // enough for the pool
  std::vector<float> a(kMany, 1), b(kMany, 2), out(kMany);
  for (int i = 0; i < 2; ++i) {
    const int before = refused;
    out.assign(kMany, 0);
    call(stream, "add", nullptr, {Tensor(a.data(), kF32, {kMany}), Tensor(b.data(), kF32, {kMany})},
         {Tensor(out.data(), kF32, {kMany})});
    stream.synchronize();
    EXPECT_EQ(out, std::vector<float>(kMany, 3));
    if (i == 0) {
      EXPECT_GT(refused.load(), before) << "the pool asked for no thread";
    }
  }
}

TEST(NoThreads, ACallThatNeedsOneSaysSo) {
  // Less stack than a kernel needs: it would run on a thread made for it.
  alignas(64) static char stack[256 << 10];
  using Create = int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  const auto create = reinterpret_cast<Create>(dlsym(RTLD_NEXT, "pthread_create"));
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstack(&attributes, static_cast<char*>(stack), sizeof(stack));
  const Runtime runtime;
  const Stream stream = runtime.stream();
  struct Asked {
    const Stream& stream;
    std::string answer;
  } asked{stream, "served"};
  const auto work = [](void* of) -> void* {
    auto& mine = *static_cast<Asked*>(of);
    try {
      float a = 1, b = 2, c = 0;
      call(mine.stream, "add", nullptr, {Tensor(&a, kF32, {1}), Tensor(&b, kF32, {1})}, {Tensor(&c, kF32, {1})});
    } catch (const Exception& e) {
      mine.answer = e.what();
    }
    return nullptr;
  };
  pthread_t thread;
  ASSERT_EQ(create(&thread, &attributes, work, &asked), 0);
  pthread_join(thread, nullptr);
  const std::string& text = asked.answer;
  EXPECT_EQ(text.find("QUARANTINED"), std::string::npos) << text;
  EXPECT_NE(text.find("less than 1 MiB of stack and no other can be started"), std::string::npos) << text;
}

}  // namespace
}  // namespace rlk::test
