// Which streams tell the data errors of captured calls, and what do graphs keep alive? Of every vendor, as
// captures_test.cpp.
#include "graphs.hpp"

namespace {

using namespace rlk::test;
using Vendor = CapturesVendor;
using GraphErrorsTest = GraphFixture<Vendor>;

TEST_F(GraphErrorsTest, a_replay_tells_once_with_the_tag_of_the_captured_call) {
  const auto fine = logp_of({0, 1}), wrong = logp_of({1, 2, 7});
  begin();
  run(*fine, 41);
  run(*wrong, 42);
  rlk_plugin_graph* graph = end();
  expect_nothing_told(stream);
  for (int i = 0; i < 2; ++i) {
    launch(graph);
    launch(graph);
    expect_told(stream, 42, 2, 7);
    expect_nothing_told(stream);
  }
  // Calls beside it have the stream's own record.
  launch(graph);
  run(*wrong, 43);
  expect_told(stream, 43, 2, 7);
  expect_told(stream, 42, 2, 7);
  expect_nothing_told(stream);
  destroy(graph);
}

TEST_F(GraphErrorsTest, the_stream_that_launched_tells_and_no_other) {
  const auto wrong = logp_of({7});
  rlk_plugin_stream* captured_on = new_stream();
  begin(captured_on);
  run(*wrong, 9, captured_on);
  rlk_plugin_graph* graph = end(captured_on);
  launch(graph);
  expect_nothing_told(captured_on);
  destroy(captured_on);
  expect_told(stream, 9, 0, 7);
  // Of one that is launched on two the first to ask tells, once all is done.
  rlk_plugin_stream* slow = new_stream("2000");
  launch(graph);
  launch(graph, slow);
  rlk_data_error told{};
  told.struct_size = sizeof(told);
  const rlk_status early = synchronize(&told);
  EXPECT_TRUE(early == RLK_OK || early == RLK_DATA_ERROR);
  if (early == RLK_OK) expect_told(slow, 9, 0, 7);
  expect_nothing_told(slow);
  expect_nothing_told(stream);
  destroy(graph);
  destroy(slow);
}

TEST_F(GraphErrorsTest, an_error_outlives_its_graph) {
  const auto wrong = logp_of({7});
  begin();
  run(*wrong, 9);
  rlk_plugin_graph* graph = end();
  launch(graph);
  destroy(graph);
  expect_told(stream, 9, 0, 7);
  expect_nothing_told(stream);
}

TEST_F(GraphErrorsTest, every_stream_tells_what_a_graph_of_the_embedder_met) {
  const auto wrong = logp_of({3, 4});
  void* native = plugin.api->stream->native(stream);
  for (const uint32_t tag : {5u, 6u}) {
    Vendor::begin(native);
    capturing_ = true;
    run(*wrong, tag);
    capturing_ = false;
    const Vendor::Graph graph = Vendor::end(native);
    rlk_plugin_stream* other = new_stream();
    expect_nothing_told(other);
    Vendor::run(graph, native);
    expect_told(other, tag, 1, 4);
    expect_nothing_told(stream);
    Vendor::destroy(graph);
    destroy(other);
  }
}

// The plugin ends its own, and knows; of an embedder's, some runtimes tell nothing.
TEST_F(GraphErrorsTest, what_is_tied_to_a_graph_is_released_with_it_or_refused) {
  int released = 0;
  rlk_error error = no_error();
  const auto retain = [&] {
    return plugin.api->stream->capture_retain(
        stream, [](void* count) { ++*static_cast<int*>(count); }, &released, &error);
  };
  EXPECT_EQ(retain(), RLK_INVALID_ARGUMENT);
  begin();
  EXPECT_EQ(retain(), RLK_OK);
  EXPECT_EQ(retain(), RLK_OK);
  rlk_plugin_graph* graph = end();
  launch(graph);
  EXPECT_EQ(released, 0);
  destroy(graph);
  EXPECT_EQ(released, 2);
  void* native = plugin.api->stream->native(stream);
  Vendor::begin(native);
  EXPECT_EQ(retain(), RLK_UNSUPPORTED);
  EXPECT_NE(std::string(error.text).find(Vendor::kNoEnd), std::string::npos) << error.text;
  Vendor::destroy(Vendor::end(native));
  EXPECT_EQ(released, 2);
}

// A stream that an event takes into a capture writes to that capture's record, which every stream tells.
TEST_F(GraphErrorsTest, a_stream_that_joined_a_capture_has_its_errors_told) {
  const rlk_event_api& events = *plugin.api->event;
  const auto wrong = logp_of({1, 8});
  rlk_plugin_stream* side = new_stream();
  rlk_plugin_event *out = nullptr, *back = nullptr;
  for (rlk_plugin_event** event : {&out, &back}) ASSERT_EQ(events.create(device, 0, event, nullptr), RLK_OK);
  begin();
  ASSERT_EQ(events.record(out, stream, nullptr), RLK_OK);
  ASSERT_EQ(plugin.api->stream->wait_event(side, out, nullptr), RLK_OK);
  run(*wrong, 11, side);
  ASSERT_EQ(events.record(back, side, nullptr), RLK_OK);
  ASSERT_EQ(plugin.api->stream->wait_event(stream, back, nullptr), RLK_OK);
  rlk_plugin_graph* graph = end();
  for (int i = 0; i < 2; ++i) {
    launch(graph);
    expect_told(stream, 11, 1, 8);
    expect_nothing_told(stream);
  }
  destroy(graph);
  for (rlk_plugin_event* event : {out, back}) EXPECT_EQ(events.destroy(event, nullptr), RLK_OK);
  destroy(side);
}

}  // namespace
