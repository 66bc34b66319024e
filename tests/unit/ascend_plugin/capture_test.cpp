// What a stream of the Ascend plugin records, refuses and replays while it captures; and does the plugin leave the
// captures of others whole?
#include <rlk/ops/add.h>
#include <rlk/ops/attention.h>

#include <cmath>
#include <functional>
#include <thread>

#include "graphs.hpp"

namespace {

using namespace ascend_plugin;

class CaptureTest : public GraphFixture {
protected:
  const rlk_add_params add_params_ = RLK_ADD_PARAMS_INIT;
};

TEST_F(CaptureTest, a_plan_is_captured_many_times_and_serves_other_calls_beside) {
  Tensor* in = tensor<float>(kF32, {3}, {1, 2, 3});
  Tensor* first = tensor(kF32, {3});
  Tensor* second = tensor<float>(kF32, {3}, {0, 0, 0});
  Tensor* beside = tensor(kF32, {3});
  Tensor out = *first;
  Call call(plugin, device, "add", &add_params_, {in, tensor<float>(kF32, {1}, {10})}, {&out}, {});
  ASSERT_EQ(call.plan(nullptr), RLK_OK);
  run(call);
  ASSERT_EQ(synchronize(), RLK_OK);
  ASSERT_EQ(aclrtMemset(first->tensor.data, 12, 0, 12), ACL_SUCCESS);
  const uint64_t rebound = fakeAscendCallCount("aclSetOutputTensorAddr");
  begin();
  run(call);
  out.tensor.data = second->tensor.data;
  run(call);
  rlk_plugin_graph* graph = end();
  EXPECT_EQ(fakeAscendCallCount("aclSetOutputTensorAddr"), rebound) << "executors of their own";
  out.tensor.data = beside->tensor.data;
  run(call);
  ASSERT_EQ(synchronize(), RLK_OK);
  EXPECT_EQ(read<float>(beside), (std::vector<float>{11, 12, 13}));
  EXPECT_EQ(read<float>(first), (std::vector<float>{0, 0, 0})) << "nothing runs before the launch";
  for (const float added : {10.0F, 20.0F}) {
    const std::vector<float> values{added - 9, added - 8, added - 7};
    ASSERT_EQ(aclrtMemcpy(in->tensor.data, 12, values.data(), 12, ACL_MEMCPY_HOST_TO_DEVICE), ACL_SUCCESS);
    launch(graph);
    ASSERT_EQ(synchronize(), RLK_OK);
    for (const Tensor* written : {first, second}) {
      EXPECT_EQ(read<float>(written), (std::vector<float>{added + 1, added + 2, added + 3}));
    }
  }
  EXPECT_EQ(read<float>(beside), (std::vector<float>{11, 12, 13}));
  destroy(graph);
}

// Sizes that the plan has not seen are prepared in the capture: the constants that they take are there at once.
TEST_F(CaptureTest, a_plan_may_be_prepared_for_other_sizes_meanwhile) {
  const auto call = logp_of({0, 1, 2});
  const uint64_t copies = fakeAscendCallCount("aclrtMemcpy");
  begin();
  run(*call);
  EXPECT_GT(fakeAscendCallCount("aclrtMemcpy"), copies);
  rlk_plugin_graph* graph = end();
  ASSERT_NE(graph, nullptr);
  launch(graph);
  expect_nothing_told(stream);
  destroy(graph);
}

TEST_F(CaptureTest, the_fused_attention_is_captured_with_the_lengths_of_the_call) {
  rlk_attention_params params = RLK_ATTENTION_PARAMS_INIT;
  params.layout = RLK_ATTENTION_LAYOUT_PACKED;
  params.window_left = 1;
  const std::vector<uint16_t> zeros(3 * 16, 0);
  Tensor* q = tensor(kF16, {3, 1, 16}, zeros);
  Tensor* lse = tensor<float>(kF32, {3, 1}, {0, 0, 0});
  Call call(plugin, device, "attention", &params, {q, q, q, tensor(kI32, {2}), tensor(kI32, {2})},
            {tensor(kF16, {3, 1, 16}), lse}, {1, -1, -1, 3, 3, 1, 1, 16});
  int32_t starts[2] = {0, 3};
  call.host_input(RLK_ATTENTION_IN_CU_SEQLENS_Q, starts);
  call.host_input(RLK_ATTENTION_IN_CU_SEQLENS_K, starts);
  ASSERT_EQ(call.plan(nullptr), RLK_OK);
  begin();
  run(call);
  rlk_plugin_graph* graph = end();
  starts[1] = 0;  // the graph keeps those that it was captured with
  EXPECT_EQ(read<float>(lse), (std::vector<float>{0, 0, 0}));
  launch(graph);
  expect_nothing_told(stream);
  std::vector<long> keys;
  for (const float value : read<float>(lse)) keys.push_back(std::lround(std::exp(value)));
  EXPECT_EQ(keys, (std::vector<long>{3, 3, 2}));
  destroy(graph);
}

TEST_F(CaptureTest, a_capture_that_was_broken_off_leaves_nothing) {
  const auto call = logp_of({9});
  begin();
  run(*call);
  // What only other code would do: the vendor forbids it, and the capture is lost.
  ASSERT_EQ(aclrtSetDevice(0), ACL_SUCCESS);
  EXPECT_EQ(aclrtSynchronizeStream(plugin.api->stream->native(stream)), ACL_ERROR_RT_STREAM_CAPTURED);
  rlk_error error = no_error();
  uint64_t id = 0;
  EXPECT_EQ(plugin.api->stream->capture_id(stream, &id, &error), RLK_CAPTURE_FORBIDS);
  EXPECT_EQ(enqueue(*call, &error), RLK_CAPTURE_FORBIDS);
  EXPECT_NE(std::string(error.text).find("361001"), std::string::npos) << error.text;
  EXPECT_NE(std::string(error.text).find("broken the capture"), std::string::npos) << error.text;
  rlk_plugin_graph* graph = nullptr;
  EXPECT_EQ(graphs->end_capture(stream, &graph, &error), RLK_CAPTURE_FORBIDS);
  EXPECT_EQ(error.native_code, ACL_ERROR_RT_STREAM_CAPTURE_INVALIDATED);
  EXPECT_EQ(graph, nullptr);
  EXPECT_EQ(capture_of(stream), 0u);
  expect_nothing_told(stream);
  capturing_ = false;
  run(*call, 5);
  expect_told(stream, 5, 0, 9);
}

TEST_F(CaptureTest, a_capture_ends_on_the_thread_that_began_it_and_a_stream_may_leave_in_one) {
  rlk_plugin_stream* other = new_stream();
  begin(other);
  std::thread([&] {
    rlk_error error = no_error();
    rlk_plugin_graph* graph = nullptr;
    EXPECT_EQ(graphs->end_capture(other, &graph, &error), RLK_CAPTURE_FORBIDS);
    EXPECT_EQ(error.native_code, ACL_ERROR_RT_STREAM_CAPTURE_WRONG_THREAD);
  }).join();
  EXPECT_EQ(capture_of(other), 0u);
  begin(other);
  destroy(other);
  capturing_ = false;
}

// A capture of an embedder in global mode, which every call that is done at once on another thread breaks.
int end_of_capture(const std::function<void()>& meanwhile) {
  EXPECT_EQ(aclrtSetDevice(0), ACL_SUCCESS);
  aclrtStream stream = nullptr;
  aclmdlRI model = nullptr;
  EXPECT_EQ(aclrtCreateStream(&stream), ACL_SUCCESS);
  EXPECT_EQ(aclmdlRICaptureBegin(stream, ACL_MODEL_RI_CAPTURE_MODE_GLOBAL), ACL_SUCCESS);
  std::thread([&] {
    EXPECT_EQ(aclrtSetDevice(0), ACL_SUCCESS);
    meanwhile();
  }).join();
  const int code = aclmdlRICaptureEnd(stream, &model);
  if (code == ACL_SUCCESS) {
    EXPECT_EQ(aclmdlRIDestroy(model), ACL_SUCCESS);
  }
  EXPECT_EQ(aclrtDestroyStream(stream), ACL_SUCCESS);
  return code;
}

// The emulation enforces the rule: without this the next test would prove nothing.
TEST_F(CaptureTest, a_fill_by_others_breaks_a_capture_in_global_mode) {
  void* memory = allocate(64);
  const auto fill = [&] { EXPECT_EQ(aclrtMemset(memory, 64, 0, 64), ACL_ERROR_RT_CAPTURE_MODE_NOT_SUPPORT); };
  EXPECT_EQ(end_of_capture(fill), ACL_ERROR_RT_STREAM_CAPTURE_INVALIDATED);
  EXPECT_EQ(end_of_capture([] {}), ACL_SUCCESS);
}

TEST_F(CaptureTest, no_call_of_the_plugin_breaks_a_capture_in_global_mode) {
  Tensor* in = tensor<int64_t>(kI64, {1}, {9});
  Tensor* logits = tensor<float>(kF32, {1, 4}, {0, 0, 0, 0});
  const rlk_logp_params params = RLK_LOGP_PARAMS_INIT;
  Call call(plugin, device, "logp", &params, {logits, in, nullptr, nullptr, nullptr},
            {tensor(kF32, {1}), nullptr, nullptr}, {1, 1, 4});
  const auto everything = [&] {
    rlk_plugin_device* again = nullptr;
    EXPECT_EQ(plugin.api->device_open(plugin.instance, 0, &again, nullptr), RLK_OK);
    rlk_plugin_stream* other = nullptr;
    ASSERT_EQ(plugin.api->stream->create(device, 0, &other, nullptr), RLK_OK);
    ASSERT_EQ(call.plan(nullptr), RLK_OK);
    run(call, 3, other);
    expect_told(other, 3, 0, 9);
    EXPECT_EQ(graphs->begin_capture(other, nullptr), RLK_OK);
    capturing_ = true;
    run(call, 4, other);
    rlk_plugin_graph* graph = end(other);
    launch(graph, other);
    expect_told(other, 4, 0, 9);
    destroy(graph);
    destroy(other);
    EXPECT_EQ(plugin.api->device_close(again, nullptr), RLK_OK);
  };
  EXPECT_EQ(end_of_capture(everything), ACL_SUCCESS);
}

// In a process of its own, with another CANN or another chip.
void expect_no_captures(const char* variable, const char* value) {
  setenv(variable, value, 1);
  const auto run = [] {
    Loaded plugin;
    rlk_plugin_device* device = nullptr;
    rlk_plugin_stream* stream = nullptr;
    uint64_t id = 0;
    const bool opened = plugin.api->device_open(plugin.instance, 0, &device, nullptr) == RLK_OK &&
                        plugin.api->stream->create(device, 0, &stream, nullptr) == RLK_OK;
    const bool none = plugin.api->get_extension(plugin.instance, RLK_EXT_GRAPH) == nullptr &&
                      plugin.api->stream->capture_id(stream, &id, nullptr) == RLK_UNSUPPORTED;
    const bool works = plugin.api->stream->synchronize(stream, UINT64_MAX, nullptr, nullptr) == RLK_OK;
    _exit(opened && none && works ? 0 : 1);
  };
  EXPECT_EXIT(run(), ::testing::ExitedWithCode(0), "") << value;
  unsetenv(variable);
}

TEST(CaptureTestElsewhere, an_old_cann_and_other_chips_capture_nothing) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  expect_no_captures("RLK_FAKE_ASCEND_VERSION", "8.0");
  for (const char* soc : {"Ascend910A", "Ascend310P3"}) expect_no_captures("RLK_FAKE_ASCEND_SOC", soc);
}

}  // namespace
