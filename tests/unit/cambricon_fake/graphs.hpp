// Captures on the simulated Neuware, and its functions that the tests call themselves.
#pragma once

#include <cstdint>

#include "framework/graph_calls.hpp"

extern "C" {
int cnrtSetDevice(int device);
int cnrtMalloc(void** pointer, size_t bytes);
int cnrtFree(void* pointer);
int cnrtMemcpy(void* to, void* from, size_t bytes, int direction);
int cnrtMemset(void* to, int value, size_t bytes);
int cnrtMemsetAsync(void* to, int value, size_t bytes, void* queue);
int cnrtSyncDevice();
int cnrtQueueCreate(void** queue);
int cnrtQueueDestroy(void* queue);
int cnrtQueueSync(void* queue);
int cnrtQueueQuery(void* queue);
int cnrtQueueWaitNotifier(void* notifier, void* queue, unsigned flag);
int cnrtNotifierCreateWithFlags(void** notifier, unsigned flags);
int cnrtNotifierDestroy(void* notifier);
int cnrtPlaceNotifier(void* notifier, void* queue);
int cnrtQueryNotifier(void* notifier);
int cnrtMemAllocAsync(void** pointer, size_t bytes, void* queue);
int cnrtThreadExchangeQueueCaptureMode(int* mode);
int cnrtQueueBeginCapture(void* queue, int mode);
int cnrtQueueEndCapture(void* queue, void** topology);
int cnrtQueueGetCaptureInfo(void* queue, int* status, uint64_t* number, void** topology, void* const** dependencies,
                            size_t* n_dependencies);
int cnrtTaskTopoInstantiate(void** entity, void* topology, void** error_node, char* log, size_t log_bytes);
int cnrtTaskTopoDestroy(void* topology);
int cnrtTaskTopoEntityInvoke(void* entity, void* queue);
int cnrtTaskTopoEntityDestroy(void* entity);
void fakeResetCalls();
uint64_t fakeCallCount(const char* call);
}

namespace cambricon {

constexpr int kGlobal = 0, kRelaxed = 2;
constexpr int kToDevice = 0, kToHost = 2;

struct Cnrt {
  static void upload(void* to, const void* from, size_t bytes) {
    EXPECT_EQ(cnrtSetDevice(0), 0);
    EXPECT_EQ(cnrtMemcpy(to, const_cast<void*>(from), bytes, kToDevice), 0);
  }
  static void download(void* to, const void* from, size_t bytes) {
    EXPECT_EQ(cnrtSetDevice(0), 0);
    EXPECT_EQ(cnrtMemcpy(to, const_cast<void*>(from), bytes, kToHost), 0);
  }
  // What was made was destroyed, but for what an embedder's graph may need: its end is not told.
  static void expect_nothing_left() {}

  // Captures by an embedder, and their graphs.
  static constexpr const char* kDelay = "RLK_FAKE_CNRT_DELAY_US";
  using Graph = void*;
  static void begin(void* queue, int mode = kRelaxed) {
    EXPECT_EQ(cnrtSetDevice(0), 0);
    EXPECT_EQ(cnrtQueueBeginCapture(queue, mode), 0);
  }
  static Graph end(void* queue) {
    void *topology = nullptr, *entity = nullptr;
    EXPECT_EQ(cnrtQueueEndCapture(queue, &topology), 0);
    EXPECT_EQ(cnrtTaskTopoInstantiate(&entity, topology, nullptr, nullptr, 0), 0);
    EXPECT_EQ(cnrtTaskTopoDestroy(topology), 0);
    return entity;
  }
  static void run(Graph entity, void* queue) {  // to its end
    EXPECT_EQ(cnrtTaskTopoEntityInvoke(entity, queue), 0);
    EXPECT_EQ(cnrtQueueSync(queue), 0);
  }
  static void destroy(Graph entity) { EXPECT_EQ(cnrtTaskTopoEntityDestroy(entity), 0); }
  // Part of what capture_retain says where the end of an embedder's capture is not told.
  static constexpr const char* kNoEnd = "user objects";
};

}  // namespace cambricon

using CapturesVendor = cambricon::Cnrt;  // of tests/unit/captures
