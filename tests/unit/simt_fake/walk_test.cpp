// A SIMT plugin when the n-th call of its runtime fails, for every n: each entry returns a status with the runtime's
// own words, nothing is used after it is gone (the simulated runtime would abort), and afterwards everything works.
// RLK_TEST_PREFIX: of the simulated runtime's variables.
#include <cstring>
#include <string>
#include <vector>

#include "framework/plugin_fixture.hpp"

extern "C" void fakeResetCalls();

namespace {

using Walk = rlk::test::PluginFixture;

struct Step {
  rlk_status worst = RLK_OK;
  std::string text;
  bool done = false;  // every step was taken
};

// What a host does with a device, until something fails; what was made is taken down in any case.
class Tour {
public:
  Tour(const rlk_plugin& api, rlk_plugin_instance* instance, const rlk_graph_api& graphs)
      : api_(api), graphs_(graphs), instance_(instance) {}

  Step run() {
    step_.done = tour();
    if (graph_ != nullptr) graphs_.destroy(graph_, &error_);
    if (event_ != nullptr) api_.event->destroy(event_, &error_);
    if (pinned_ != nullptr) api_.device->deallocate(device_, RLK_MEMORY_PINNED, pinned_, &error_);
    if (memory_ != nullptr) api_.device->deallocate(device_, RLK_MEMORY_DEVICE, memory_, &error_);
    if (stream_ != nullptr) api_.stream->destroy(stream_, &error_);
    if (device_ != nullptr) api_.device_close(device_, &error_);
    return step_;
  }

private:
  bool good(rlk_status status) {
    if (status == RLK_OK) return true;
    step_.worst = status;
    step_.text = error_.text;
    return false;
  }
  bool tour() {
    rlk_device_properties properties{};
    properties.struct_size = sizeof(properties);
    uint64_t available = 0, total = 0;
    if (!good(api_.device_describe(instance_, 0, &properties, &error_)) ||
        !good(api_.device_open(instance_, 0, &device_, &error_)) ||
        !good(api_.stream->create(device_, 0, &stream_, &error_)) ||
        !good(api_.device->memory_info(device_, &available, &total, &error_)) ||
        !good(api_.device->allocate(device_, RLK_MEMORY_DEVICE, 64, &memory_, &error_)) ||
        !good(api_.device->allocate(device_, RLK_MEMORY_PINNED, 64, &pinned_, &error_)) ||
        !good(api_.event->create(device_, RLK_EVENT_TIMING, &event_, &error_)) ||
        !good(api_.stream->fill(stream_, memory_, 0x5a, 64, &error_)) ||
        !good(graphs_.begin_capture(stream_, &error_))) {
      return false;
    }
    const bool copied = good(api_.stream->copy(stream_, pinned_, memory_, 64, RLK_COPY_DEVICE_TO_HOST, &error_));
    const bool ended = good(graphs_.end_capture(stream_, &graph_, &error_));
    if (!copied || !ended || !good(graphs_.launch(graph_, stream_, &error_)) ||
        !good(api_.event->record(event_, stream_, &error_)) ||
        !good(api_.event->synchronize(event_, UINT64_MAX, &error_)) ||
        !good(api_.stream->synchronize(stream_, UINT64_MAX, nullptr, &error_))) {
      return false;
    }
    EXPECT_EQ(static_cast<char*>(pinned_)[63], 0x5a);
    return true;
  }

  const rlk_plugin& api_;
  const rlk_graph_api& graphs_;
  rlk_plugin_instance* instance_;
  rlk_error error_ = rlk::test::no_error();
  rlk_plugin_device* device_ = nullptr;
  rlk_plugin_stream* stream_ = nullptr;
  rlk_plugin_event* event_ = nullptr;
  rlk_plugin_graph* graph_ = nullptr;
  void *memory_ = nullptr, *pinned_ = nullptr;
  Step step_;
};

void walk(const rlk_plugin& api, rlk_plugin_instance* instance, const rlk_graph_api& graphs, int code,
          rlk_status expected) {
  int failures = 0;
  for (int n = 1; n < 400; ++n) {
    fakeResetCalls();
    const std::string list = "*:" + std::to_string(n) + ":" + std::to_string(code);
    const rlk::test::Variable fail(RLK_TEST_PREFIX "FAIL", list.c_str());
    const Step step = Tour(api, instance, graphs).run();
    if (step.done) continue;  // the call was one that may fail, or came after the tour
    ++failures;
    // A device that is not counted is absent: every other failure keeps its code's meaning.
    EXPECT_TRUE(step.worst == expected || step.worst == RLK_ABSENT) << n << ": " << step.worst << " " << step.text;
    EXPECT_FALSE(step.text.empty()) << n;
  }
  EXPECT_GT(failures, 20);
  fakeResetCalls();
  EXPECT_TRUE(Tour(api, instance, graphs).run().done);
}

TEST_F(Walk, EveryCallThatRunsOutOfMemorySaysSo) {
  walk(*api, instance, graphs(), 2, RLK_OUT_OF_MEMORY);
}
TEST_F(Walk, AfterALostDeviceEveryEntrySaysSo) {
  walk(*api, instance, graphs(), 719, RLK_DEVICE_LOST);
}
#if defined(RLK_TEST_MACA)
TEST_F(Walk, CodesOfMacasOwnMeanTheSame) {
  walk(*api, instance, graphs(), 10007, RLK_OUT_OF_MEMORY);
  walk(*api, instance, graphs(), 10030, RLK_DEVICE_LOST);
}
#endif

}  // namespace
