// What of captures is Cambricon's own: which CNRT has them, what CNNL's handle is kept for, and does the plugin leave
// the captures of others whole?
#include <rlk/ops/add.h>

#include <functional>
#include <thread>

#include "graphs.hpp"

namespace {

using namespace rlk::test;
using cambricon::Cnrt;
using cambricon::kGlobal;
using cambricon::kRelaxed;

constexpr int kUnsupported = 100360, kInvalidated = 100361;

class CambriconCaptureTest : public GraphFixture<Cnrt> {
protected:
  // The number of calls from now on.
  static std::function<uint64_t()> calls_of(const char* name) {
    return [name, before = fakeCallCount(name)] { return fakeCallCount(name) - before; };
  }
  std::unique_ptr<Call> add_of(Tensor* out) {
    auto call = std::make_unique<Call>(
        plugin, device, "add", &params_,
        std::vector<Tensor*>{tensor<float>(kF32, {3}, {1, 2, 3}), tensor<float>(kF32, {1}, {10})},
        std::vector<Tensor*>{out}, std::vector<int64_t>{});
    EXPECT_EQ(call->plan(nullptr), RLK_OK);
    return call;
  }

private:
  const rlk_add_params params_ = RLK_ADD_PARAMS_INIT;
};

TEST_F(CambriconCaptureTest, the_handle_and_the_queue_of_what_was_captured_end_with_the_graph) {
  const auto call = add_of(tensor<float>(kF32, {3}, {0, 0, 0}));
  rlk_plugin_stream* captured = new_stream();
  begin(captured);
  run(*call, 1, captured);
  run(*call, 1, captured);
  rlk_plugin_graph* graph = end(captured);
  const auto handles = calls_of("cnnlDestroy"), queues = calls_of("cnrtQueueDestroy");
  destroy(captured);
  EXPECT_EQ(handles(), 0u);
  EXPECT_EQ(queues(), 0u);
  const auto entities = calls_of("cnrtTaskTopoEntityDestroy");
  destroy(graph);
  EXPECT_EQ(entities(), 1u);
  EXPECT_EQ(handles(), 1u);
  EXPECT_EQ(queues(), 1u);
  // Without captured calls they end with the stream.
  captured = new_stream();
  destroy(captured);
  EXPECT_EQ(handles(), 2u);
  EXPECT_EQ(queues(), 2u);
}

TEST_F(CambriconCaptureTest, a_graph_keeps_no_topology) {
  const auto made = calls_of("cnrtTaskTopoInstantiate"), gone = calls_of("cnrtTaskTopoDestroy");
  begin();
  rlk_plugin_graph* graph = end();
  EXPECT_EQ(made(), 1u);
  EXPECT_EQ(gone(), 1u);
  destroy(graph);
}

TEST_F(CambriconCaptureTest, a_capture_that_was_broken_off_leaves_nothing) {
  const auto call = logp_of({9});
  begin();
  run(*call);
  // What only other code would do: CNRT forbids it, and the capture is lost.
  ASSERT_EQ(cnrtSetDevice(0), 0);
  EXPECT_EQ(cnrtQueueSync(plugin.api->stream->native(stream)), kUnsupported);
  rlk_error error = no_error();
  uint64_t id = 0;
  EXPECT_EQ(plugin.api->stream->capture_id(stream, &id, &error), RLK_CAPTURE_FORBIDS);
  EXPECT_EQ(enqueue(*call, &error), RLK_CAPTURE_FORBIDS);
  EXPECT_NE(std::string(error.text).find("broken"), std::string::npos) << error.text;
  rlk_plugin_graph* graph = nullptr;
  EXPECT_EQ(graphs->end_capture(stream, &graph, &error), RLK_CAPTURE_FORBIDS);
  EXPECT_EQ(error.native_code, kInvalidated);
  EXPECT_EQ(graph, nullptr);
  EXPECT_EQ(capture_of(stream), 0u);
  expect_nothing_told(stream);
  capturing_ = false;
  run(*call, 5);
  expect_told(stream, 5, 0, 9);
}

TEST_F(CambriconCaptureTest, a_capture_ends_on_any_thread_and_forbids_nothing_to_others) {
  const auto call = logp_of({9});
  begin();
  std::thread([&] {
    ASSERT_EQ(cnrtSetDevice(0), 0);
    void* memory = nullptr;
    EXPECT_EQ(cnrtMalloc(&memory, 64), 0);
    EXPECT_EQ(cnrtMemset(memory, 1, 64), 0);
    EXPECT_EQ(cnrtFree(memory), 0);
    rlk_plugin_stream* other = new_stream();
    expect_nothing_told(other);
    destroy(other);
    run(*call, 3);
    rlk_plugin_graph* graph = end();
    launch(graph);
    expect_told(stream, 3, 0, 9);
    destroy(graph);
  }).join();
}

TEST_F(CambriconCaptureTest, memory_in_stream_order_is_no_part_of_a_capture) {
  void* memory = nullptr;
  begin();
  rlk_error error = no_error();
  EXPECT_EQ(plugin.api->stream->allocate_async(stream, 64, &memory, &error), RLK_CAPTURE_FORBIDS) << error.text;
  destroy(end());
  ASSERT_EQ(plugin.api->stream->allocate_async(stream, 64, &memory, &error), RLK_OK) << error.text;
  begin();
  EXPECT_EQ(plugin.api->stream->deallocate_async(stream, memory, &error), RLK_CAPTURE_FORBIDS) << error.text;
  destroy(end());
  EXPECT_EQ(plugin.api->stream->deallocate_async(stream, memory, &error), RLK_OK) << error.text;
}

// A capture of an embedder in global mode, which every question and every call that is done at once breaks.
int end_of_capture(const std::function<void()>& meanwhile) {
  EXPECT_EQ(cnrtSetDevice(0), 0);
  void *queue = nullptr, *topology = nullptr;
  EXPECT_EQ(cnrtQueueCreate(&queue), 0);
  EXPECT_EQ(cnrtQueueBeginCapture(queue, kGlobal), 0);
  std::thread([&] {
    EXPECT_EQ(cnrtSetDevice(0), 0);
    meanwhile();
  }).join();
  const int code = cnrtQueueEndCapture(queue, &topology);
  if (code == 0) {
    EXPECT_EQ(cnrtTaskTopoDestroy(topology), 0);
  }
  EXPECT_EQ(cnrtQueueDestroy(queue), 0);
  return code;
}

// The simulation enforces the rule: without this the next test would prove nothing.
TEST_F(CambriconCaptureTest, a_fill_by_others_breaks_a_capture_in_global_mode) {
  void* memory = allocate(64);
  EXPECT_EQ(end_of_capture([&] { EXPECT_EQ(cnrtMemset(memory, 0, 64), kUnsupported); }), kInvalidated);
  EXPECT_EQ(end_of_capture([] {}), 0);
}

TEST_F(CambriconCaptureTest, no_call_of_the_plugin_breaks_a_capture_in_global_mode) {
  const auto call = logp_of({9});
  const rlk_event_api& events = *plugin.api->event;
  const auto everything = [&] {
    rlk_plugin_device* again = nullptr;
    EXPECT_EQ(plugin.api->device_open(plugin.instance, 0, &again, nullptr), RLK_OK);
    rlk_plugin_stream* other = new_stream();
    run(*call, 3, other);
    expect_told(other, 3, 0, 9);
    EXPECT_EQ(plugin.api->stream->query(other, nullptr, nullptr), RLK_OK);
    rlk_plugin_event* event = nullptr;
    EXPECT_EQ(events.create(device, 0, &event, nullptr), RLK_OK);
    EXPECT_EQ(events.record(event, other, nullptr), RLK_OK);
    EXPECT_EQ(events.synchronize(event, UINT64_MAX, nullptr), RLK_OK);
    EXPECT_EQ(events.query(event, nullptr), RLK_OK);
    EXPECT_EQ(events.destroy(event, nullptr), RLK_OK);
    begin(other);
    run(*call, 4, other);
    rlk_plugin_graph* graph = end(other);
    launch(graph, other);
    expect_told(other, 4, 0, 9);
    destroy(graph);
    destroy(other);
    EXPECT_EQ(plugin.api->device_close(again, nullptr), RLK_OK);
  };
  EXPECT_EQ(end_of_capture(everything), 0);
  int mode = kRelaxed;
  ASSERT_EQ(cnrtThreadExchangeQueueCaptureMode(&mode), 0);
  EXPECT_EQ(mode, kGlobal) << "the thread has its own mode back";
  ASSERT_EQ(cnrtThreadExchangeQueueCaptureMode(&mode), 0);
}

TEST_F(CambriconCaptureTest, a_call_in_a_capture_of_an_embedder_in_global_mode_leaves_it_whole) {
  const auto call = logp_of({9});
  void* native = plugin.api->stream->native(stream);
  Cnrt::begin(native, kGlobal);
  capturing_ = true;
  run(*call, 8);
  capturing_ = false;
  const Cnrt::Graph graph = Cnrt::end(native);
  Cnrt::run(graph, native);
  expect_told(stream, 8, 0, 9);
  Cnrt::destroy(graph);
}

}  // namespace
