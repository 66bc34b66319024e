// Captures by a plugin's graph table, and calls in them.
#pragma once

#include <rlk/abi/ext/draft/graph.h>
#include <rlk/ops/logp.h>

#include "framework/device_calls.hpp"

namespace rlk::test {

// Vendor: as a CallFixture's, and kDelay, the variable of a slow stream.
template <class Vendor>
class GraphFixture : public CallFixture<Vendor> {
protected:
  using CallFixture<Vendor>::plugin;
  using CallFixture<Vendor>::device;
  using CallFixture<Vendor>::stream;
  using CallFixture<Vendor>::allocate;
  using CallFixture<Vendor>::tensor;

  void SetUp() override {
    CallFixture<Vendor>::SetUp();
    graphs = static_cast<const rlk_graph_api*>(plugin.api->get_extension(plugin.instance, RLK_EXT_GRAPH));
    ASSERT_NE(graphs, nullptr);
  }
  void begin(rlk_plugin_stream* on = nullptr) {
    rlk_error error = no_error();
    ASSERT_EQ(graphs->begin_capture(on != nullptr ? on : stream, &error), RLK_OK) << error.text;
    capturing_ = true;
  }
  rlk_plugin_graph* end(rlk_plugin_stream* on = nullptr) {
    rlk_error error = no_error();
    rlk_plugin_graph* graph = nullptr;
    EXPECT_EQ(graphs->end_capture(on != nullptr ? on : stream, &graph, &error), RLK_OK) << error.text;
    capturing_ = false;
    return graph;
  }
  void launch(rlk_plugin_graph* graph, rlk_plugin_stream* on = nullptr) {
    rlk_error error = no_error();
    ASSERT_EQ(graphs->launch(graph, on != nullptr ? on : stream, &error), RLK_OK) << error.text;
  }
  void destroy(rlk_plugin_graph* graph) { EXPECT_EQ(graphs->destroy(graph, nullptr), RLK_OK); }

  // Prepares and enqueues what has been planned, captured between begin() and end(); a workspace for good.
  rlk_status enqueue(Call& call, rlk_error* error, uint32_t tag = 1, rlk_plugin_stream* on = nullptr) {
    call.set_capturing(capturing_);
    uint64_t bytes = 0;
    if (const rlk_status status = call.prepare(&bytes, error, tag); status != RLK_OK) return status;
    return call.enqueue(on != nullptr ? on : stream, bytes > 0 ? allocate(bytes) : nullptr, bytes, error);
  }
  void run(Call& call, uint32_t tag = 1, rlk_plugin_stream* on = nullptr) {
    rlk_error error = no_error();
    ASSERT_EQ(enqueue(call, &error, tag, on), RLK_OK) << error.text;
  }
  // logp of [N, 4] with logits of 0.
  std::unique_ptr<Call> logp_of(const std::vector<int64_t>& ids) {
    const auto n = static_cast<int64_t>(ids.size());
    auto call = std::make_unique<Call>(
        plugin, device, "logp", &logp_params_,
        std::vector<Tensor*>{tensor(kF32, {n, 4}, std::vector<float>(ids.size() * 4, 0.0F)), tensor(kI64, {n}, ids),
                             nullptr, nullptr, nullptr},
        std::vector<Tensor*>{tensor(kF32, {n}), nullptr, nullptr}, std::vector<int64_t>{n, n, 4});
    rlk_error error = no_error();
    EXPECT_EQ(call->plan(&error), RLK_OK) << error.text;
    return call;
  }
  rlk_plugin_stream* new_stream(const char* us = "0") {
    setenv(Vendor::kDelay, us, 1);
    rlk_plugin_stream* made = nullptr;
    EXPECT_EQ(plugin.api->stream->create(device, 0, &made, nullptr), RLK_OK);
    unsetenv(Vendor::kDelay);
    return made;
  }
  void destroy(rlk_plugin_stream* made) { EXPECT_EQ(plugin.api->stream->destroy(made, nullptr), RLK_OK); }
  void expect_told(rlk_plugin_stream* by, uint32_t tag, int64_t row, int64_t value) {
    rlk_data_error told{};
    told.struct_size = sizeof(told);
    EXPECT_EQ(plugin.api->stream->synchronize(by, UINT64_MAX, &told, nullptr), RLK_DATA_ERROR);
    EXPECT_EQ(told.kind, RLK_DATA_ID_OUT_OF_RANGE);
    EXPECT_EQ(told.tag, tag);
    EXPECT_EQ(told.row, row);
    EXPECT_EQ(told.value, value);
  }
  void expect_nothing_told(rlk_plugin_stream* by) {
    rlk_data_error told{};
    told.struct_size = sizeof(told);
    EXPECT_EQ(plugin.api->stream->synchronize(by, UINT64_MAX, &told, nullptr), RLK_OK) << told.tag;
  }

  uint64_t capture_of(rlk_plugin_stream* asked) {
    uint64_t id = UINT64_MAX;
    rlk_error error = no_error();
    EXPECT_EQ(plugin.api->stream->capture_id(asked, &id, &error), RLK_OK) << error.text;
    return id;
  }

  const rlk_graph_api* graphs = nullptr;
  bool capturing_ = false;

private:
  const rlk_logp_params logp_params_ = RLK_LOGP_PARAMS_INIT;
};

}  // namespace rlk::test
