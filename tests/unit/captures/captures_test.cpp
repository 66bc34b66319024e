// What a stream records, refuses and replays while it captures, of every vendor with plugins/composed/captures.hpp:
// compiled with the vendor's graphs.hpp, which says what its runtime is (CapturesVendor).
#include <rlk/ops/add.h>

#include <functional>

#include "graphs.hpp"

namespace {

using namespace rlk::test;
using Vendor = CapturesVendor;
using CapturesTest = GraphFixture<Vendor>;

TEST_F(CapturesTest, many_equal_calls_are_captured_beside_those_that_run) {
  constexpr int kCalls = 40;
  const rlk_add_params params = RLK_ADD_PARAMS_INIT;
  Tensor* in = tensor<float>(kF32, {3}, {1, 2, 3});
  Tensor* ones = tensor<float>(kF32, {1}, {1});
  Tensor* beside = tensor(kF32, {3});
  Tensor from = *in, to = *in;
  Call call(plugin, device, "add", &params, {&from, ones}, {&to}, {});
  ASSERT_EQ(call.plan(nullptr), RLK_OK);
  std::vector<Tensor*> chain{in};
  for (int i = 0; i < kCalls; ++i) chain.push_back(tensor<float>(kF32, {3}, {0, 0, 0}));
  begin();
  for (size_t i = 0; i < kCalls; ++i) {
    from.tensor.data = chain[i]->tensor.data;
    to.tensor.data = chain[i + 1]->tensor.data;
    run(call);
  }
  rlk_plugin_graph* graph = end();
  from.tensor.data = in->tensor.data;
  to.tensor.data = beside->tensor.data;
  run(call);
  ASSERT_EQ(synchronize(), RLK_OK);
  EXPECT_EQ(read<float>(beside), (std::vector<float>{2, 3, 4}));
  EXPECT_EQ(read<float>(chain.back()), (std::vector<float>{0, 0, 0})) << "nothing runs before the launch";
  call.destroy();  // the graph needs nothing of the plan's executions
  for (const float first : {1.0F, 100.0F}) {
    const std::vector<float> values{first, first + 1, first + 2};
    Vendor::upload(in->tensor.data, values.data(), sizeof(float) * values.size());
    launch(graph);
    ASSERT_EQ(synchronize(), RLK_OK);
    EXPECT_EQ(read<float>(chain.back()), (std::vector<float>{first + kCalls, first + 1 + kCalls, first + 2 + kCalls}));
  }
  EXPECT_EQ(read<float>(beside), (std::vector<float>{2, 3, 4}));
  destroy(graph);
}

// Its queue, and what its library keeps for the stream, too.
TEST_F(CapturesTest, a_graph_outlives_the_stream_that_was_captured) {
  const rlk_add_params params = RLK_ADD_PARAMS_INIT;
  Tensor* out = tensor<float>(kF32, {3}, {0, 0, 0});
  Call call(plugin, device, "add", &params, {tensor<float>(kF32, {3}, {1, 2, 3}), tensor<float>(kF32, {1}, {10})},
            {out}, {});
  ASSERT_EQ(call.plan(nullptr), RLK_OK);
  rlk_plugin_stream* captured = new_stream();
  begin(captured);
  run(call, 1, captured);
  rlk_plugin_graph* graph = end(captured);
  destroy(captured);
  launch(graph);
  ASSERT_EQ(synchronize(), RLK_OK);
  EXPECT_EQ(read<float>(out), (std::vector<float>{11, 12, 13}));
  destroy(graph);
}

TEST_F(CapturesTest, a_graph_whose_capture_nothing_was_in_runs) {
  begin();
  rlk_plugin_graph* graph = end();
  launch(graph);
  launch(graph);
  expect_nothing_told(stream);
  destroy(graph);
}

TEST_F(CapturesTest, a_stream_may_leave_in_a_capture) {
  rlk_plugin_stream* leaving = new_stream();
  begin(leaving);
  ASSERT_EQ(plugin.api->stream->fill(leaving, allocate(64), 7, 64, nullptr), RLK_OK);
  destroy(leaving);
  capturing_ = false;
}

TEST_F(CapturesTest, launches_wait_for_each_other) {
  void* memory = allocate(64);
  begin();
  ASSERT_EQ(plugin.api->stream->fill(stream, memory, 7, 64, nullptr), RLK_OK);
  rlk_plugin_graph* graph = end();
  rlk_plugin_stream* slow = new_stream("30000");
  const Tensor* before = tensor(kI64, {1}, std::vector<int64_t>{0});
  ASSERT_EQ(plugin.api->stream->fill(slow, before->tensor.data, 1, sizeof(int64_t), nullptr), RLK_OK);
  launch(graph, slow);
  launch(graph);
  ASSERT_EQ(synchronize(), RLK_OK);
  EXPECT_EQ(read<int64_t>(before)[0], 0x0101010101010101) << "one workspace, one run at a time";
  destroy(graph);
  destroy(slow);
}

TEST_F(CapturesTest, a_graph_is_destroyed_after_its_launches) {
  begin();
  ASSERT_EQ(plugin.api->stream->fill(stream, allocate(64), 7, 64, nullptr), RLK_OK);
  rlk_plugin_graph* graph = end();
  rlk_plugin_stream* slow = new_stream("10000");
  launch(graph, slow);
  destroy(graph);  // one that runs would not be destroyed, and its memory could not be freed
  destroy(slow);
}

TEST_F(CapturesTest, questions_are_refused_and_break_nothing) {
  begin();
  for (const auto& refused : {std::function<rlk_status(rlk_error*)>(
                                  [&](rlk_error* error) { return plugin.api->stream->query(stream, nullptr, error); }),
                              std::function<rlk_status(rlk_error*)>([&](rlk_error* error) {
                                return plugin.api->stream->synchronize(stream, UINT64_MAX, nullptr, error);
                              }),
                              std::function<rlk_status(rlk_error*)>(
                                  [&](rlk_error* error) { return graphs->begin_capture(stream, error); })}) {
    rlk_error error = no_error();
    EXPECT_EQ(refused(&error), RLK_CAPTURE_FORBIDS) << error.text;
  }
  destroy(end());
  EXPECT_EQ(synchronize(), RLK_OK);
}

TEST_F(CapturesTest, events_take_other_streams_into_a_capture_and_back) {
  const rlk_event_api& events = *plugin.api->event;
  rlk_plugin_stream* side = new_stream();
  rlk_plugin_event *out = nullptr, *back = nullptr;
  for (rlk_plugin_event** event : {&out, &back}) ASSERT_EQ(events.create(device, 0, event, nullptr), RLK_OK);
  void* memory = allocate(4);
  for (const bool comes_back : {false, true}) {
    begin();
    ASSERT_EQ(events.record(out, stream, nullptr), RLK_OK);
    ASSERT_EQ(plugin.api->stream->wait_event(side, out, nullptr), RLK_OK);
    EXPECT_EQ(capture_of(side), capture_of(stream));
    EXPECT_EQ(events.query(out, nullptr), RLK_CAPTURE_FORBIDS);
    ASSERT_EQ(plugin.api->stream->fill(side, memory, 3, 4, nullptr), RLK_OK);
    rlk_plugin_graph* graph = nullptr;
    rlk_error error = no_error();
    if (comes_back) {
      ASSERT_EQ(events.record(back, side, nullptr), RLK_OK);
      ASSERT_EQ(plugin.api->stream->wait_event(stream, back, nullptr), RLK_OK);
    }
    EXPECT_EQ(graphs->end_capture(stream, &graph, &error), comes_back ? RLK_OK : RLK_CAPTURE_FORBIDS) << error.text;
    EXPECT_EQ(capture_of(side), 0u);
    capturing_ = false;
    if (!comes_back) continue;
    launch(graph);
    ASSERT_EQ(synchronize(), RLK_OK);
    uint8_t value = 0;
    Vendor::download(&value, memory, 1);
    EXPECT_EQ(value, 3);
    destroy(graph);
  }
  for (rlk_plugin_event* event : {out, back}) EXPECT_EQ(events.destroy(event, nullptr), RLK_OK);
  destroy(side);
}

TEST_F(CapturesTest, every_capture_has_a_number_of_its_own) {
  EXPECT_EQ(capture_of(stream), 0u);
  begin();
  const uint64_t number = capture_of(stream);
  EXPECT_NE(number, 0u);
  EXPECT_EQ(capture_of(stream), number);
  destroy(end());
  EXPECT_EQ(capture_of(stream), 0u);
  // Begun by the embedder, not by the plugin.
  void* native = plugin.api->stream->native(stream);
  Vendor::begin(native);
  const uint64_t embedders = capture_of(stream);
  EXPECT_NE(embedders, 0u);
  EXPECT_NE(embedders, number);
  EXPECT_EQ(capture_of(stream), embedders);
  Vendor::destroy(Vendor::end(native));
}

TEST_F(CapturesTest, the_default_stream_is_not_captured_and_says_so) {
  rlk_plugin_stream* of_default = nullptr;
  ASSERT_EQ(plugin.api->stream->wrap(device, nullptr, &of_default, nullptr), RLK_OK);
  rlk_error error = no_error();
  EXPECT_EQ(graphs->begin_capture(of_default, &error), RLK_INVALID_ARGUMENT);
  EXPECT_NE(std::string(error.text).find("default stream"), std::string::npos) << error.text;
  EXPECT_EQ(capture_of(of_default), 0u);
  expect_nothing_told(of_default);
  destroy(of_default);
}

}  // namespace
