// What do captures by AscendCL's own calls keep alive?
#include "graphs.hpp"

namespace {

using namespace ascend_plugin;

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
