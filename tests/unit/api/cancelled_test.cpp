// A thread that is cancelled (pthread_cancel) while it is inside rlk: the call is done first, whole, and the thread
// ends where its program next allows it.
#include <gtest/gtest.h>
#include <pthread.h>
#include <rlk/rlk.hpp>

#include <string>
#include <vector>

namespace rlk::test {
namespace {

struct Seen {
  float sum = 0;
  bool passed = false;
};

TEST(Cancelled, ACallIsDoneBeforeItsThreadEnds) {
  Seen seen;
  const auto work = [](void* out) -> void* {
    auto& mine = *static_cast<Seen*>(out);
    pthread_cancel(pthread_self());  // from here on every point of cancellation ends the thread
    rlk_runtime* runtime = nullptr;
    rlk_stream* stream = nullptr;
    float a = 1, b = 2;
    const int64_t shape = 1, stride = 1;
    const rlk_op* op = nullptr;
    const auto tensor = [&](float* data) {
      return rlk_tensor{sizeof(rlk_tensor), 4, data, 0, &shape, &stride, 1, {RLK_DTYPE_FLOAT, 32, 1}};
    };
    const rlk_tensor ta = tensor(&a), tb = tensor(&b), tc = tensor(&mine.sum);
    const rlk_tensor* const inputs[] = {&ta, &tb};
    const rlk_tensor* const outputs[] = {&tc};
    mine.passed = rlk_runtime_create(nullptr, &runtime, nullptr) == RLK_OK &&
                  rlk_stream_create(runtime, "cpu", 0, 0, &stream, nullptr) == RLK_OK &&
                  rlk_op_find("add", &op, nullptr) == RLK_OK &&
                  rlk_call(stream, op, nullptr, inputs, 2, outputs, 1, nullptr, nullptr) == RLK_OK &&
                  rlk_stream_destroy(stream, nullptr) == RLK_OK && rlk_runtime_destroy(runtime, nullptr) == RLK_OK;
    pthread_testcancel();
    mine.passed = false;  // never reached
    return nullptr;
  };
  pthread_t thread;
  ASSERT_EQ(pthread_create(&thread, nullptr, work, &seen), 0);
  void* result = nullptr;
  ASSERT_EQ(pthread_join(thread, &result), 0);
  EXPECT_EQ(result, PTHREAD_CANCELED);
  EXPECT_TRUE(seen.passed);
  EXPECT_EQ(seen.sum, 3.0f);
}

}  // namespace
}  // namespace rlk::test
