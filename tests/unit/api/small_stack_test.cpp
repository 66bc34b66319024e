// Threads with little stack, such as those of an interpreter or of a language with its own scheduler: a runtime is
// made, plugins are searched, an operator is called.
#include <gtest/gtest.h>
#include <pthread.h>
#include <rlk/rlk.hpp>

#include <functional>
#include <string>
#include <vector>

namespace rlk::test {
namespace {

void* run(void* work) {
  (*static_cast<std::function<void()>*>(work))();
  return nullptr;
}

void on_a_stack_of(size_t bytes, std::function<void()> work) {
  pthread_attr_t attributes;
  pthread_t thread;
  ASSERT_EQ(pthread_attr_init(&attributes), 0);
  ASSERT_EQ(pthread_attr_setstacksize(&attributes, bytes), 0);
  ASSERT_EQ(pthread_create(&thread, &attributes, &run, &work), 0);
  ASSERT_EQ(pthread_join(thread, nullptr), 0);
  pthread_attr_destroy(&attributes);
}

TEST(SmallStack, Of64KiBIsEnoughForEverythingThatACallerDoes) {
#ifdef RLK_SANITIZED
  GTEST_SKIP() << "a sanitizer's frames are larger";
#endif
  on_a_stack_of(64 << 10, [] {
    const Runtime runtime;
    const Stream stream = runtime.stream();
    std::vector<float> a(1 << 16, 1), b(1 << 16, 2), out(1 << 16);
    call(stream, "add", nullptr, {Tensor(a.data(), kF32, {1 << 16}), Tensor(b.data(), kF32, {1 << 16})},
         {Tensor(out.data(), kF32, {1 << 16})});
    stream.synchronize();
    EXPECT_EQ(out.front(), 3.0f);
    EXPECT_EQ(out.back(), 3.0f);
    std::vector<float> logits(64 * 512, 1), logp(64);
    std::vector<int64_t> ids(64, 3);
    call(stream, "logp", nullptr, {Tensor(logits.data(), kF32, {64, 512}), Tensor(ids.data(), kI64, {64})},
         {Tensor(logp.data(), kF32, {64})});
    stream.synchronize();
    EXPECT_LT(logp.front(), 0.0f);
    char* text = nullptr;
    ASSERT_EQ(rlk_list_json(runtime.get(), &text, nullptr), RLK_OK);
    EXPECT_NE(std::string(text).find("cpu"), std::string::npos);
    rlk_string_free(text);
    try {
      call(stream, "add", nullptr, {Tensor()}, {Tensor()});
      ADD_FAILURE() << "a call without arguments was taken";
    } catch (const Exception& error) {
      EXPECT_EQ(error.status(), RLK_INVALID_ARGUMENT);
    }
  });
}

}  // namespace
}  // namespace rlk::test
