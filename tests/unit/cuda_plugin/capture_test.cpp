// Does the plugin leave other people's captures whole, number them, and hold what they need as long as they live?
#include <functional>
#include <thread>

#include "fixture.hpp"

namespace {

using namespace cuda_plugin;

constexpr int kGlobal = 0, kThreadLocal = 1;
constexpr int kRefused = 900, kBroken = 901;

// A capture of an embedder on a thread of its own. `meanwhile` runs on this one.
int end_of_capture(int mode, const std::function<void()>& meanwhile) {
  const EmbeddersContext context;
  void *stream = nullptr, *graph = nullptr;
  cuStreamCreateWithPriority(&stream, 1, 0);
  std::thread([&] {
    const EmbeddersContext of_the_thread;
    cuStreamBeginCapture_v2(stream, mode);
  }).join();
  meanwhile();
  const int code = cuStreamEndCapture(stream, &graph);
  if (graph != nullptr) cuGraphDestroy(graph);
  cuStreamDestroy_v2(stream);
  return code;
}

class CaptureTest : public Fixture {
protected:
  void SetUp() override {
    Fixture::SetUp();
    open();
  }
  uint64_t capture_id() {
    uint64_t id = UINT64_MAX;
    EXPECT_EQ(api->stream->capture_id(stream, &id, &error), RLK_OK) << error.text;
    return id;
  }
  rlk_status retain() {
    return api->stream->capture_retain(
        stream, [](void* count) { ++*static_cast<int*>(count); }, &released_, &error);
  }
  int released_ = 0;
};

// The emulation enforces the rule: without this the next test would prove nothing.
TEST_F(CaptureTest, AnAllocationByOthersBreaksACaptureInGlobalMode) {
  void* memory = nullptr;
  EXPECT_EQ(end_of_capture(kGlobal, [&] { EXPECT_EQ(cuMemAlloc_v2(&memory, 64), kRefused); }), kBroken);
  EXPECT_EQ(end_of_capture(kThreadLocal, [] {}), 0);
}

TEST_F(CaptureTest, NoCallOfThePluginBreaksACaptureInGlobalMode) {
  const auto everything = [&] {
    for (const int32_t kind : {RLK_MEMORY_DEVICE, RLK_MEMORY_PINNED}) {
      void* memory = nullptr;
      EXPECT_EQ(api->device->allocate(device, kind, 64, &memory, &error), RLK_OK) << error.text;
      EXPECT_EQ(api->device->deallocate(device, kind, memory, &error), RLK_OK) << error.text;
    }
    uint64_t free_bytes = 0, total_bytes = 0;
    EXPECT_EQ(api->device->memory_info(device, &free_bytes, &total_bytes, &error), RLK_OK) << error.text;
    rlk_plugin_stream* other = nullptr;
    EXPECT_EQ(api->stream->create(device, 0, &other, &error), RLK_OK) << error.text;
    EXPECT_EQ(api->stream->query(other, nullptr, &error), RLK_OK) << error.text;
    rlk_plugin_event *start = nullptr, *end = nullptr;
    for (rlk_plugin_event** event : {&start, &end}) {
      EXPECT_EQ(api->event->create(device, RLK_EVENT_TIMING, event, &error), RLK_OK) << error.text;
      EXPECT_EQ(api->event->record(*event, other, &error), RLK_OK) << error.text;
      const rlk_status now = api->event->query(*event, &error);
      EXPECT_TRUE(now == RLK_OK || now == RLK_NOT_READY) << error.text;
      EXPECT_EQ(api->event->synchronize(*event, UINT64_MAX, &error), RLK_OK) << error.text;
    }
    double ms = 0;
    EXPECT_EQ(api->event->elapsed_ms(start, end, &ms, &error), RLK_OK) << error.text;
    EXPECT_EQ(api->event->destroy(start, &error), RLK_OK) << error.text;
    EXPECT_EQ(api->event->destroy(end, &error), RLK_OK) << error.text;
    for (const uint64_t timeout_ns : {UINT64_MAX, uint64_t{1000}, uint64_t{0}}) {
      EXPECT_EQ(api->stream->synchronize(other, timeout_ns, nullptr, &error), RLK_OK) << error.text;
    }
    // A capture of the plugin's own beside it.
    rlk_plugin_graph* graph = nullptr;
    EXPECT_EQ(graphs().begin_capture(other, &error), RLK_OK) << error.text;
    EXPECT_EQ(graphs().end_capture(other, &graph, &error), RLK_OK) << error.text;
    EXPECT_EQ(graphs().launch(graph, other, &error), RLK_OK) << error.text;
    EXPECT_EQ(graphs().destroy(graph, &error), RLK_OK) << error.text;
    EXPECT_EQ(api->stream->destroy(other, &error), RLK_OK) << error.text;
  };
  EXPECT_EQ(end_of_capture(kGlobal, everything), 0);
}

TEST_F(CaptureTest, OpeningADeviceBreaksNoCaptureEither) {
  const Variable devices("RLK_FAKE_CUDA_DEVICES", "2");
  EXPECT_EQ(end_of_capture(kGlobal,
                           [&] {
                             rlk_plugin_device* second = nullptr;
                             EXPECT_EQ(api->device_open(instance, 1, &second, &error), RLK_OK) << error.text;
                             EXPECT_EQ(api->device_close(second, &error), RLK_OK) << error.text;
                           }),
            0);
}

// A plan loads its kernels when it is made.
TEST_F(CaptureTest, LoadingKernelsBreaksNoCaptureInGlobalMode) {
  float value = 1;
  const int64_t shape[] = {1}, strides[] = {1};
  const rlk_tensor tensor = {sizeof(rlk_tensor), 256, &value, 0, shape, strides, 1, {RLK_DTYPE_FLOAT, 32, 1}};
  const rlk_tensor* const tensors[] = {&tensor, &tensor};
  const int32_t alias[] = {-1};
  const struct {
    uint32_t struct_size, reserved;
    double alpha;
  } params = {16, 0, 1.0};
  rlk_call_desc desc{};
  desc.struct_size = sizeof(desc);
  desc.op = "add";
  desc.op_revision = 1;
  desc.params = &params;
  desc.n_inputs = 2;
  desc.n_outputs = 1;
  desc.inputs = desc.outputs = tensors;
  desc.output_alias = alias;
  const rlk_implementation* add = nullptr;
  for (uint32_t i = 0; i < api->n_implementations; ++i) {
    if (std::string(api->implementations[i]->op) == "add") add = api->implementations[i];
  }
  ASSERT_NE(add, nullptr);
  rlk_support support{};
  support.struct_size = sizeof(support);
  ASSERT_EQ(add->query(add, device, &desc, &support, &error), RLK_OK) << error.text;
  if (std::string(support.reason_code) == "KERNELS_NOT_BUILT") GTEST_SKIP() << support.reason;
  const auto plan = [&] {
    rlk_plugin_plan* made = nullptr;
    rlk_plan_info info{};
    info.struct_size = sizeof(info);
    EXPECT_EQ(add->plan_create(add, device, &desc, &made, &info, &error), RLK_OK) << error.text;
    EXPECT_TRUE(made != nullptr && add->plan_destroy(made, &error) == RLK_OK);
  };
  EXPECT_EQ(end_of_capture(kGlobal, plan), 0);
}

TEST_F(CaptureTest, EveryCaptureHasANumberOfItsOwn) {
  EXPECT_EQ(capture_id(), 0u);
  rlk_plugin_graph *first = nullptr, *second = nullptr;
  ASSERT_EQ(graphs().begin_capture(stream, &error), RLK_OK);
  const uint64_t number = capture_id();
  EXPECT_NE(number, 0u);
  EXPECT_EQ(capture_id(), number);
  ASSERT_EQ(graphs().end_capture(stream, &first, &error), RLK_OK);
  EXPECT_EQ(capture_id(), 0u);
  // Begun by the embedder, not by the plugin.
  const EmbeddersContext context;
  ASSERT_EQ(cuStreamBeginCapture_v2(api->stream->native(stream), kThreadLocal), 0);
  EXPECT_NE(capture_id(), 0u);
  EXPECT_NE(capture_id(), number);
  ASSERT_EQ(graphs().end_capture(stream, &second, &error), RLK_OK);
  EXPECT_EQ(graphs().destroy(first, &error), RLK_OK);
  EXPECT_EQ(graphs().destroy(second, &error), RLK_OK);
}

TEST_F(CaptureTest, WhatAGraphNeedsIsReleasedOnceWhenNothingCanRunItAnyMore) {
  const EmbeddersContext context;
  void *native = api->stream->native(stream), *graph = nullptr, *exec = nullptr;
  ASSERT_EQ(cuStreamBeginCapture_v2(native, kThreadLocal), 0);
  ASSERT_EQ(retain(), RLK_OK) << error.text;
  ASSERT_EQ(cuStreamEndCapture(native, &graph), 0);
  ASSERT_EQ(cuGraphInstantiateWithFlags(&exec, graph, 0), 0);
  EXPECT_EQ(cuGraphDestroy(graph), 0);
  EXPECT_EQ(released_, 0);  // the executable graph can still be launched
  EXPECT_EQ(cuGraphExecDestroy(exec), 0);
  EXPECT_EQ(released_, 1);
}

TEST_F(CaptureTest, ABrokenCaptureReleasesWhatItHeld) {
  const EmbeddersContext context;
  void *native = api->stream->native(stream), *graph = nullptr, *memory = nullptr;
  ASSERT_EQ(cuStreamBeginCapture_v2(native, kGlobal), 0);
  ASSERT_EQ(retain(), RLK_OK) << error.text;
  EXPECT_EQ(cuMemAlloc_v2(&memory, 64), kRefused);
  uint64_t id = 0;
  EXPECT_EQ(api->stream->capture_id(stream, &id, &error), RLK_CAPTURE_FORBIDS);
  EXPECT_EQ(cuStreamEndCapture(native, &graph), kBroken);
  EXPECT_EQ(released_, 1);
}

TEST_F(CaptureTest, NothingIsRetainedOutsideACapture) {
  EXPECT_EQ(retain(), RLK_INVALID_ARGUMENT);
  EXPECT_EQ(released_, 0);
}

TEST_F(CaptureTest, AQueryOfACapturingStreamIsRefusedAndBreaksNothing) {
  rlk_plugin_graph* graph = nullptr;
  ASSERT_EQ(graphs().begin_capture(stream, &error), RLK_OK);
  EXPECT_EQ(api->stream->query(stream, nullptr, &error), RLK_CAPTURE_FORBIDS);
  EXPECT_EQ(api->stream->synchronize(stream, UINT64_MAX, nullptr, &error), RLK_CAPTURE_FORBIDS);
  ASSERT_EQ(graphs().end_capture(stream, &graph, &error), RLK_OK) << error.text;
  EXPECT_EQ(graphs().destroy(graph, &error), RLK_OK);
}

}  // namespace
