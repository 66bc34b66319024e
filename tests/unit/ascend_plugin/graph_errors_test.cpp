// Which streams tell the data errors of captured calls, and what do captures by the vendor's own calls keep alive?
#include "graphs.hpp"

namespace {

using namespace ascend_plugin;

using GraphErrorsTest = GraphFixture;

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
  ASSERT_EQ(aclrtSetDevice(0), ACL_SUCCESS);
  void* native = plugin.api->stream->native(stream);
  for (const uint32_t tag : {5u, 6u}) {
    ASSERT_EQ(aclmdlRICaptureBegin(native, ACL_MODEL_RI_CAPTURE_MODE_THREAD_LOCAL), ACL_SUCCESS);
    capturing_ = true;
    run(*wrong, tag);
    capturing_ = false;
    aclmdlRI model = nullptr;
    ASSERT_EQ(aclmdlRICaptureEnd(native, &model), ACL_SUCCESS);
    rlk_plugin_stream* other = new_stream();
    expect_nothing_told(other);
    ASSERT_EQ(aclmdlRIExecuteAsync(model, native), ACL_SUCCESS);
    ASSERT_EQ(aclrtSynchronizeStream(native), ACL_SUCCESS);
    expect_told(other, tag, 1, 4);
    expect_nothing_told(stream);
    ASSERT_EQ(aclmdlRIDestroy(model), ACL_SUCCESS);
    destroy(other);
  }
}

TEST_F(GraphErrorsTest, a_cann_that_does_not_tell_when_a_graph_dies_says_so) {
  int released = 0;
  rlk_error error = no_error();
  const auto retain = [&] {
    return plugin.api->stream->capture_retain(
        stream, [](void* count) { ++*static_cast<int*>(count); }, &released, &error);
  };
  EXPECT_EQ(retain(), RLK_INVALID_ARGUMENT);
  begin();
  EXPECT_EQ(retain(), RLK_UNSUPPORTED);
  EXPECT_NE(std::string(error.text).find("since 9"), std::string::npos) << error.text;
  destroy(end());
  EXPECT_EQ(released, 0);
}

// What a graph of the embedder's holds, and a number, end with it; and so does the record of its data errors.
TEST(GraphErrorsTestOf9, what_a_graph_keeps_is_released_once_when_it_dies) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  setenv("RLK_FAKE_ASCEND_VERSION", "9.0", 1);
  const auto run = [] {
    Loaded plugin;
    rlk_plugin_device* device = nullptr;
    rlk_plugin_stream* stream = nullptr;
    bool ok = plugin.api->device_open(plugin.instance, 0, &device, nullptr) == RLK_OK &&
              plugin.api->stream->create(device, 0, &stream, nullptr) == RLK_OK && aclrtSetDevice(0) == ACL_SUCCESS;
    int released = 0;
    const auto retain = [&] {
      return plugin.api->stream->capture_retain(
          stream, [](void* count) { ++*static_cast<int*>(count); }, &released, nullptr);
    };
    void* native = plugin.api->stream->native(stream);
    aclmdlRI model = nullptr;
    ok = ok && aclmdlRICaptureBegin(native, ACL_MODEL_RI_CAPTURE_MODE_THREAD_LOCAL) == ACL_SUCCESS &&
         retain() == RLK_OK && retain() == RLK_OK && aclmdlRICaptureEnd(native, &model) == ACL_SUCCESS &&
         released == 0 && aclmdlRIDestroy(model) == ACL_SUCCESS && released == 2;
    // A broken one runs never.
    ok = ok && aclmdlRICaptureBegin(native, ACL_MODEL_RI_CAPTURE_MODE_THREAD_LOCAL) == ACL_SUCCESS &&
         retain() == RLK_OK && aclrtSynchronizeStream(native) != ACL_SUCCESS &&
         aclmdlRICaptureEnd(native, &model) != ACL_SUCCESS && released == 3;
    // The plugin's own.
    const auto* graphs = static_cast<const rlk_graph_api*>(plugin.api->get_extension(plugin.instance, RLK_EXT_GRAPH));
    rlk_plugin_graph* graph = nullptr;
    ok = ok && graphs->begin_capture(stream, nullptr) == RLK_OK && retain() == RLK_OK &&
         graphs->end_capture(stream, &graph, nullptr) == RLK_OK && released == 3 &&
         graphs->destroy(graph, nullptr) == RLK_OK && released == 4;
    _exit(ok ? 0 : 1);
  };
  EXPECT_EXIT(run(), ::testing::ExitedWithCode(0), "");
  unsetenv("RLK_FAKE_ASCEND_VERSION");
}

}  // namespace
