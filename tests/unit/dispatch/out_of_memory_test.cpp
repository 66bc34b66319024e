// Host memory runs out, at each allocation in turn: a status, and afterwards everything works and ends.
#include "framework/failing_allocations.hpp"

#include <unistd.h>

#include <cstdio>
#include <functional>

#include "core/declaration/error.hpp"
#include "unit/dispatch/world.hpp"

namespace rlk::test {
namespace {

using rlk::testing::FailingAllocations;
using sdk::ops::Logp;

// What is tried; made anew for every allocation that fails.
struct Stage {
  explicit Stage(int parts = World::kAll) : world(parts) {}
  World world;
  std::unique_ptr<Stream> stream;
  OpCall* call = nullptr;
};

struct Story {
  const char* name;
  std::function<void(Stage&)> prepare;
  std::function<rlk_status(Stage&)> act;
  bool fake_keeps_work = false;  // of a capture that could not be ended, which never runs
};

// As the functions of rlk.h do.
template <class Act>
rlk_status guarded(const Act& act) {
  try {
    return act();
  } catch (const std::bad_alloc&) {
    return RLK_OUT_OF_MEMORY;
  }
}

rlk_status first_of(rlk_status first, rlk_status second) {
  return first != RLK_OK ? first : second;
}

rlk_status call_and_wait(Stage& stage, const core::CallOptions& options = {}) {
  const rlk_status called = guarded([&] { return stage.world.call(*stage.stream, *stage.call, options); });
  return first_of(called, guarded([&] { return stage.world.synchronize(*stage.stream); }));
}

core::CallOptions by_cpu() {
  core::CallOptions options;
  options.pin = "cpu";
  return options;
}

void on_device(Stage& stage) {
  stage.stream = stage.world.stream();
  stage.call = &stage.world.make("logp");
}

void with_a_plan_that_asks_for_everything(Stage& stage) {
  Script& script = fake_script<Logp>();
  script.plan_flags = RLK_PLAN_PREPARE;  // neither shareable nor capturable
  script.persistent = 512;
  script.workspace = 1024;
  script.prepared = [](int64_t) { return uint64_t{1024}; };
  on_device(stage);
}

const std::vector<Story>& stories() {
  static const std::vector<Story> all = {
      {"a call on the CPU",
       [](Stage& stage) {
         stage.stream = stage.world.stream("cpu");
         stage.call = &stage.world.make("logp");
       },
       [](Stage& stage) { return call_and_wait(stage); }},
      {"a call on an asynchronous device", on_device, [](Stage& stage) { return call_and_wait(stage); }},
      {"calls through a plan with instances and memory", with_a_plan_that_asks_for_everything,
       [](Stage& stage) {
         const rlk_status first = guarded([&] { return stage.world.call(*stage.stream, *stage.call); });
         return first_of(first, call_and_wait(stage));
       }},
      {"a call staged on the CPU", on_device, [](Stage& stage) { return call_and_wait(stage, by_cpu()); }},
      {"an explanation", on_device,
       [](Stage& stage) {
         core::Explanation explanation;
         OpCall& call = *stage.call;
         stage.world.last = core::fresh_error();
         return stage.world.dispatcher->explain(*stage.stream, *call.decl, call.params.data(), call.input_pointers,
                                                call.output_pointers, {}, &explanation, &stage.world.last);
       }},
      {"the opening of a device",
       [](Stage& stage) {
         stage.world.plugins = World::unopened(1);
         stage.world.publish();
       },
       [](Stage& stage) {
         core::DeviceState* device = nullptr;
         return stage.world.dispatcher->device("fake", 0, &device, &stage.world.last);
       }},
      {"a stream and memory",
       [](Stage& stage) {
         on_device(stage);
         EXPECT_EQ(call_and_wait(stage), RLK_OK);
       },
       [](Stage& stage) {
         rlk_error* error = &stage.world.last;
         std::unique_ptr<Stream> other;
         core::DeviceState& device = stage.stream->device();
         rlk_status status = Stream::create(device, stage.world.dispatcher->counters(), 0, &other, error);
         void* memory = nullptr;
         if (status == RLK_OK) status = device.memory.allocate(*other->clock(), 4096, &memory, error);
         if (status == RLK_OK) status = device.memory.record_use(memory, stage.stream->fence(true), error);
         if (memory != nullptr) device.memory.deallocate(memory, other->fence(true), nullptr);
         if (other != nullptr && status == RLK_OK) status = other->finish(error);
         return status;
       }},
      {"a graph",
       [](Stage& stage) {
         on_device(stage);
         EXPECT_EQ(call_and_wait(stage), RLK_OK);
       },
       [](Stage& stage) {
         rlk_error* error = &stage.world.last;
         rlk_status status = stage.stream->begin_capture(error);
         if (status != RLK_OK) return status;
         const rlk_status called = guarded([&] { return stage.world.call(*stage.stream, *stage.call); });
         std::unique_ptr<core::Graph> graph;
         status = guarded([&] { return core::Graph::end_capture(*stage.stream, &graph, error); });
         if (bool capturing = false; stage.stream->is_capturing(&capturing, error) == RLK_OK && capturing) {
           FailingAllocations::relent();  // nothing was asked of the device yet: a second attempt ends the capture
           static_cast<void>(core::Graph::end_capture(*stage.stream, &graph, error));
         }
         status = first_of(called, status);
         if (status == RLK_OK) status = guarded([&] { return graph->launch(*stage.stream, error); });
         return first_of(status, guarded([&] { return stage.world.synchronize(*stage.stream); }));
       },
       true},
      {"the end of a stream and of the dispatcher",
       [](Stage& stage) {
         on_device(stage);
         EXPECT_EQ(stage.world.call(*stage.stream, *stage.call), RLK_OK);
         EXPECT_EQ(stage.world.call(*stage.stream, stage.world.make("logp"), by_cpu()), RLK_OK);
       },
       [](Stage& stage) {
         stage.stream = nullptr;
         stage.world.dispatcher = nullptr;
         return RLK_OK;
       }},
  };
  return all;
}

class OutOfMemory : public ::testing::TestWithParam<std::tuple<size_t, FailingAllocations::Mode>> {};

TEST_P(OutOfMemory, IsAStatusAndNothingStays) {
  const auto [index, mode] = GetParam();
  const Story& story = stories()[index];
  uint64_t n = 1, served = 0;
  for (bool failed = true; failed; ++n) {
    SCOPED_TRACE(std::string(story.name) + ", allocation " + std::to_string(n));
    alarm(120);  // what never returns is a failure too
    Stage stage;
    story.prepare(stage);
    stage.world.last = core::fresh_error();
    FailingAllocations::arm(n, mode);
    const rlk_status status = guarded([&] { return story.act(stage); });
    failed = FailingAllocations::disarm();
    served += status == RLK_OK;
    ASSERT_TRUE(status == RLK_OK || (failed && status == RLK_OUT_OF_MEMORY))
        << core::name_of_status(status) << ": " << stage.world.text();
    // No implementation is blamed for it, and the next call is served.
    EXPECT_TRUE(stage.world.registry.current()->quarantined.empty());
    if (stage.stream == nullptr && stage.world.dispatcher != nullptr) stage.stream = stage.world.stream();
    if (stage.stream != nullptr) {
      if (stage.call == nullptr) stage.call = &stage.world.make("logp");
      ASSERT_EQ(call_and_wait(stage), RLK_OK) << stage.world.text();
      EXPECT_GT(static_cast<float*>(stage.call->outputs[0].data)[0], 0);
    }
    stage.stream = nullptr;
    if (stage.world.dispatcher != nullptr) {
      EXPECT_EQ(stage.world.dispatcher->live_streams(), 0u);
      EXPECT_EQ(stage.world.dispatcher->live_graphs(), 0u);
    }
    stage.world.dispatcher = nullptr;
    EXPECT_EQ(fake_log().live_bytes, 0u);
    EXPECT_TRUE(fake_log().violations == 0 || story.fake_keeps_work);
    if (::testing::Test::HasFailure()) break;
  }
  alarm(0);
  std::printf("| %-48s | %4llu allocations, %4llu served all the same |\n", story.name,
              static_cast<unsigned long long>(n - 2), static_cast<unsigned long long>(served - 1));
}
INSTANTIATE_TEST_SUITE_P(Everywhere, OutOfMemory,
                         ::testing::Combine(::testing::Range(size_t{0}, stories().size()),
                                            ::testing::Values(FailingAllocations::Mode::once,
                                                              FailingAllocations::Mode::from_there_on)),
                         [](const auto& instance) {
                           std::string name;
                           for (const char c : std::string(stories()[std::get<0>(instance.param)].name))
                             name += c == ' ' ? '_' : c;
                           const bool once = std::get<1>(instance.param) == FailingAllocations::Mode::once;
                           return name + (once ? "_once" : "_from_there_on");
                         });

}  // namespace
}  // namespace rlk::test
