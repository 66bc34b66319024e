// What does the simulated CNRT do with a queue that captures, what does it forbid beside one, and which orders of
// topologies, entities and memory does it find wrong?
#include <functional>
#include <thread>

#include "graphs.hpp"

extern "C" {
int cnnlCreate(void** handle);
int cnnlDestroy(void* handle);
int cnnlSetQueue(void* handle, void* queue);
int cnnlCreateTensorDescriptor(void** desc);
int cnnlSetTensorDescriptor(void* desc, int layout, int dtype, int n, const int* dims);
int cnnlDestroyTensorDescriptor(void* desc);
int cnnlAbs(void* handle, void* xd, const void* x, void* yd, void* y);
}

namespace {

using cambricon::kGlobal;
using cambricon::kRelaxed;

constexpr int kArgsInvalid = 100006, kIllegalState = 100015, kUnsupported = 100360, kInvalidated = 100361;
constexpr int kWrongThread = 100362, kUnjoined = 100364, kIsolation = 100365, kUnmatched = 100366;
constexpr int kNone = 0, kActive = 1, kBroken = 2;

class CnrtCaptures : public testing::Test {
protected:
  void SetUp() override {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    fakeResetCalls();
    ASSERT_EQ(cnrtSetDevice(0), 0);
    ASSERT_EQ(cnrtQueueCreate(&queue), 0);
    ASSERT_EQ(cnrtMalloc(&memory, 64), 0);
  }
  void TearDown() override {
    EXPECT_EQ(cnrtQueueDestroy(queue), 0);
    EXPECT_EQ(cnrtFree(memory), 0);
  }
  void begin(int mode = kRelaxed) { ASSERT_EQ(cnrtQueueBeginCapture(queue, mode), 0); }
  int end() {
    topology = nullptr;
    return cnrtQueueEndCapture(queue, &topology);
  }
  int status_of(void* asked) {
    int status = -1;
    EXPECT_EQ(cnrtQueueGetCaptureInfo(asked, &status, nullptr, nullptr, nullptr, nullptr), 0);
    return status;
  }
  void* entity_of(void* made) {
    void* entity = nullptr;
    EXPECT_EQ(cnrtTaskTopoInstantiate(&entity, made, nullptr, nullptr, 0), 0);
    return entity;
  }
  // Forbidden in a capture, which it breaks.
  void breaks(const std::function<int()>& call, int mode) {
    begin(mode);
    EXPECT_EQ(call(), kUnsupported);
    EXPECT_EQ(status_of(queue), kBroken);
    EXPECT_EQ(cnrtMemsetAsync(memory, 1, 64, queue), kInvalidated);
    EXPECT_EQ(end(), kInvalidated);
    EXPECT_EQ(topology, nullptr);
    EXPECT_EQ(status_of(queue), kNone);
  }
  // The capture goes on.
  void answers(int expected, const std::function<int()>& call, int mode = kRelaxed) {
    begin(mode);
    EXPECT_EQ(call(), expected);
    EXPECT_EQ(status_of(queue), kActive);
    ASSERT_EQ(end(), 0);
    EXPECT_EQ(cnrtTaskTopoDestroy(topology), 0);
  }
  uint8_t byte() {
    uint8_t value = 0;
    EXPECT_EQ(cnrtMemcpy(&value, memory, 1, cambricon::kToHost), 0);
    return value;
  }
  // On another thread, in this mode.
  static int elsewhere(const std::function<int()>& call, int exchanged) {
    int code = -1;
    std::thread([&] {
      EXPECT_EQ(cnrtSetDevice(0), 0);
      int mode = exchanged;
      EXPECT_EQ(cnrtThreadExchangeQueueCaptureMode(&mode), 0);
      EXPECT_EQ(mode, kGlobal) << "as a thread begins";
      code = call();
    }).join();
    return code;
  }

  void *queue = nullptr, *memory = nullptr, *topology = nullptr;
};

TEST_F(CnrtCaptures, RecordAndRunWhenInvoked) {
  ASSERT_EQ(cnrtMemset(memory, 1, 64), 0);
  begin();
  EXPECT_EQ(cnrtMemsetAsync(memory, 7, 64, queue), 0);
  ASSERT_EQ(end(), 0);
  void* entity = entity_of(topology);
  EXPECT_EQ(cnrtTaskTopoDestroy(topology), 0);
  ASSERT_EQ(cnrtQueueSync(queue), 0);
  EXPECT_EQ(byte(), 1);
  for (int i = 0; i < 2; ++i) {
    ASSERT_EQ(cnrtMemset(memory, 1, 64), 0);
    ASSERT_EQ(cnrtTaskTopoEntityInvoke(entity, queue), 0);
    ASSERT_EQ(cnrtQueueSync(queue), 0);
    EXPECT_EQ(byte(), 7);
  }
  EXPECT_EQ(cnrtTaskTopoEntityDestroy(entity), 0);
}

TEST_F(CnrtCaptures, QuestionsToTheQueueBreakThemInAnyMode) {
  for (const int mode : {kGlobal, kRelaxed}) {
    breaks([&] { return cnrtQueueSync(queue); }, mode);
    breaks([&] { return cnrtQueueQuery(queue); }, mode);
    breaks([] { return cnrtSyncDevice(); }, mode);
  }
  void* pointer = nullptr;
  breaks([&] { return cnrtMemAllocAsync(&pointer, 64, queue); }, kRelaxed);
}

TEST_F(CnrtCaptures, GlobalModeForbidsToEveryThreadWhatIsDoneAtOnce) {
  const auto fill = [&] { return cnrtMemset(memory, 1, 64); };
  const auto take = [] {
    void* pointer = nullptr;
    const int code = cnrtMalloc(&pointer, 64);
    return code != 0 ? code : cnrtFree(pointer);
  };
  begin();
  ASSERT_EQ(end(), 0);
  void* const whole = topology;
  const auto instantiate = [&] {
    void* entity = nullptr;
    const int code = cnrtTaskTopoInstantiate(&entity, whole, nullptr, nullptr, 0);
    return code != 0 ? code : cnrtTaskTopoEntityDestroy(entity);
  };
  for (const std::function<int()>& call : {std::function<int()>(fill), {take}, {instantiate}}) {
    breaks(call, kGlobal);
    breaks([&] { return elsewhere(call, kGlobal); }, kGlobal);
    answers(
        0, [&] { return elsewhere(call, kRelaxed); }, kGlobal);
    answers(0, call);
    answers(0, [&] { return elsewhere(call, kGlobal); });
  }
  EXPECT_EQ(cnrtTaskTopoDestroy(whole), 0);
}

TEST_F(CnrtCaptures, AreBegunAndEndedInPairsByOneQueue) {
  EXPECT_EQ(cnrtQueueBeginCapture(nullptr, kRelaxed), kArgsInvalid);
  EXPECT_EQ(cnrtQueueBeginCapture(queue, 1), kArgsInvalid) << "of the thread: not supported yet";
  EXPECT_EQ(end(), kIllegalState);
  answers(kIllegalState, [&] { return cnrtQueueBeginCapture(queue, kRelaxed); });
  const auto ended_elsewhere = [&] { return elsewhere([&] { return end(); }, kGlobal); };
  begin(kGlobal);
  EXPECT_EQ(ended_elsewhere(), kWrongThread);
  EXPECT_EQ(status_of(queue), kNone);
  begin(kRelaxed);
  EXPECT_EQ(ended_elsewhere(), 0);
  EXPECT_EQ(cnrtTaskTopoDestroy(topology), 0);
}

TEST_F(CnrtCaptures, HaveNumbersAndATopologyThatIsNotTouchedMeanwhile) {
  uint64_t numbers[2] = {};
  for (uint64_t& number : numbers) {
    begin();
    int status = -1;
    void* told = nullptr;
    ASSERT_EQ(cnrtQueueGetCaptureInfo(queue, &status, &number, &told, nullptr, nullptr), 0);
    EXPECT_EQ(status, kActive);
    void* entity = nullptr;
    EXPECT_DEATH(cnrtTaskTopoDestroy(told), "CAPTURING: cnrtTaskTopoDestroy");
    EXPECT_DEATH(cnrtTaskTopoInstantiate(&entity, told, nullptr, nullptr, 0), "CAPTURING: cnrtTaskTopoInstantiate");
    ASSERT_EQ(end(), 0);
    EXPECT_EQ(topology, told);
    EXPECT_EQ(cnrtTaskTopoDestroy(topology), 0);
  }
  EXPECT_NE(numbers[0], numbers[1]);
}

TEST_F(CnrtCaptures, QueuesThatJoinMustComeBack) {
  void *side = nullptr, *out = nullptr, *back = nullptr, *before = nullptr;
  ASSERT_EQ(cnrtQueueCreate(&side), 0);
  for (void** notifier : {&out, &back, &before}) ASSERT_EQ(cnrtNotifierCreateWithFlags(notifier, 4), 0);
  ASSERT_EQ(cnrtPlaceNotifier(before, side), 0);
  for (const bool comes_back : {false, true}) {
    begin();
    EXPECT_EQ(cnrtQueueWaitNotifier(before, queue, 0), kIsolation);
    ASSERT_EQ(cnrtPlaceNotifier(out, queue), 0);
    ASSERT_EQ(cnrtQueueWaitNotifier(out, side, 0), 0);
    EXPECT_EQ(status_of(side), kActive);
    EXPECT_EQ(cnrtQueryNotifier(out), kUnsupported);
    EXPECT_EQ(cnrtQueueEndCapture(side, &topology), kUnmatched);
    EXPECT_EQ(cnrtMemsetAsync(memory, 5, 64, side), 0);
    if (comes_back) {
      ASSERT_EQ(cnrtPlaceNotifier(back, side), 0);
      ASSERT_EQ(cnrtQueueWaitNotifier(back, queue, 0), 0);
    }
    EXPECT_EQ(end(), comes_back ? 0 : kUnjoined);
    EXPECT_EQ(status_of(side), kNone);
  }
  EXPECT_EQ(cnrtTaskTopoDestroy(topology), 0);
  for (void* notifier : {out, back, before}) EXPECT_EQ(cnrtNotifierDestroy(notifier), 0);
  EXPECT_EQ(cnrtQueueDestroy(side), 0);
}

// One after the other, wherever they are; and what still runs when its entity is destroyed comes to its end.
TEST_F(CnrtCaptures, InvocationsOfOneEntityAreInOrder) {
  setenv("RLK_FAKE_CNRT_DELAY_US", "20000", 1);
  void* slow = nullptr;
  ASSERT_EQ(cnrtQueueCreate(&slow), 0);
  unsetenv("RLK_FAKE_CNRT_DELAY_US");
  ASSERT_EQ(cnrtMemset(memory, 1, 64), 0);
  begin();
  EXPECT_EQ(cnrtMemsetAsync(memory, 7, 64, queue), 0);
  ASSERT_EQ(end(), 0);
  void* entity = entity_of(topology);
  EXPECT_EQ(cnrtTaskTopoDestroy(topology), 0);
  void* other = nullptr;
  ASSERT_EQ(cnrtMalloc(&other, 64), 0);
  ASSERT_EQ(cnrtMemset(other, 1, 64), 0);
  ASSERT_EQ(cnrtMemsetAsync(other, 9, 64, slow), 0);
  ASSERT_EQ(cnrtTaskTopoEntityInvoke(entity, slow), 0);
  ASSERT_EQ(cnrtTaskTopoEntityInvoke(entity, queue), 0);
  EXPECT_EQ(cnrtTaskTopoEntityDestroy(entity), 0);
  ASSERT_EQ(cnrtQueueSync(queue), 0);
  uint8_t value = 0;
  EXPECT_EQ(cnrtMemcpy(&value, other, 1, cambricon::kToHost), 0);
  EXPECT_EQ(value, 9) << "the second waits for the first, and that for its queue";
  EXPECT_EQ(byte(), 7);
  EXPECT_EQ(cnrtQueueSync(slow), 0);
  EXPECT_EQ(cnrtQueueDestroy(slow), 0);
  EXPECT_EQ(cnrtFree(other), 0);
}

TEST_F(CnrtCaptures, TopologiesAndEntitiesAreDestroyedOnceAndNotUsedAfterwards) {
  begin();
  ASSERT_EQ(end(), 0);
  void* entity = entity_of(topology);
  EXPECT_EQ(cnrtTaskTopoDestroy(topology), 0);
  EXPECT_DEATH(cnrtTaskTopoDestroy(topology), "DESTROYED_HANDLE: cnrtTaskTopoDestroy");
  EXPECT_DEATH(entity_of(topology), "DESTROYED_HANDLE: cnrtTaskTopoInstantiate");
  EXPECT_DEATH(cnrtTaskTopoEntityInvoke(topology, queue), "INVALID_HANDLE: cnrtTaskTopoEntityInvoke");
  EXPECT_EQ(cnrtTaskTopoEntityDestroy(entity), 0);
  EXPECT_DEATH(cnrtTaskTopoEntityInvoke(entity, queue), "DESTROYED_HANDLE: cnrtTaskTopoEntityInvoke");
  EXPECT_DEATH(cnrtTaskTopoEntityDestroy(entity), "DESTROYED_HANDLE: cnrtTaskTopoEntityDestroy");
}

TEST_F(CnrtCaptures, HoldTheirMemory) {
  begin();
  ASSERT_EQ(cnrtMemsetAsync(memory, 7, 64, queue), 0);
  ASSERT_EQ(end(), 0);
  EXPECT_DEATH(cnrtFree(memory), "FREED_IN_USE.*live graph");
  void* entity = entity_of(topology);
  EXPECT_EQ(cnrtTaskTopoDestroy(topology), 0);
  EXPECT_DEATH(cnrtFree(memory), "FREED_IN_USE.*live graph");
  EXPECT_EQ(cnrtTaskTopoEntityDestroy(entity), 0);
}

TEST_F(CnrtCaptures, KeepTheHandleOfCnnlAndNoDescriptor) {
  const int size = 4;
  void *handle = nullptr, *four = nullptr;
  ASSERT_EQ(cnnlCreate(&handle), 0);
  ASSERT_EQ(cnnlSetQueue(handle, queue), 0);
  ASSERT_EQ(cnnlCreateTensorDescriptor(&four), 0);
  ASSERT_EQ(cnnlSetTensorDescriptor(four, 4, 2, 1, &size), 0);
  begin();
  ASSERT_EQ(cnnlAbs(handle, four, memory, four, memory), 0);
  EXPECT_EQ(cnnlDestroyTensorDescriptor(four), 0);
  ASSERT_EQ(end(), 0);
  void* entity = entity_of(topology);
  EXPECT_EQ(cnrtTaskTopoDestroy(topology), 0);
  ASSERT_EQ(cnrtTaskTopoEntityInvoke(entity, queue), 0);
  ASSERT_EQ(cnrtQueueSync(queue), 0);
  EXPECT_DEATH(cnnlDestroy(handle), "HANDLE_IN_GRAPH.*cnnlAbs");
  EXPECT_EQ(cnrtTaskTopoEntityDestroy(entity), 0);
  EXPECT_EQ(cnnlDestroy(handle), 0);
}

}  // namespace
