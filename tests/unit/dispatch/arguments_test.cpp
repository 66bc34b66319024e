// An in-out argument of a device's call that the CPU serves: what is not written comes back as it was, and so do the
// gaps.
#include <gtest/gtest.h>

#include <cstring>

#include "conformance/arguments/plugin.hpp"
#include "core/dispatch/call/data_error.hpp"
#include "core/dispatch/call/dispatcher.hpp"
#include "framework/op_call.hpp"
#include "loader/host/services.hpp"
#include "unit/dispatch/fake_device.hpp"

namespace rlk::test {
namespace {

// The device's own implementation takes nothing.
struct Declining {
  using Op = sdk::ops::CacheAppend;
  static constexpr const char* kName = "none";
  static sdk::Support query(FakeDevice&, const sdk::Call<Op>&) { return sdk::Support::no("NONE", "nothing is taken"); }
  static std::unique_ptr<sdk::Plan> plan(FakeDevice&, const sdk::Call<Op>&) {
    throw sdk::Error(RLK_UNSUPPORTED, "nothing is taken");
  }
};

class DevicePlugin : public sdk::Plugin {
public:
  using Device = FakeDevice;
  using Stream = FakeStreamWithHostFunctions;
  using Event = FakeEvent;
  using Implementations = std::tuple<Declining>;
  explicit DevicePlugin(const sdk::Host&) {}
  sdk::Verdict probe(sdk::Evidence&) override { return sdk::Verdict::mine("fake"); }
  uint32_t device_count() override { return 1; }
  void describe_device(uint32_t ordinal, rlk_device_properties& out) override { FakeDevice::describe(ordinal, out); }
  std::unique_ptr<sdk::Device> open_device(uint32_t) override { return std::make_unique<FakeDevice>(); }
};

template <class P>
core::PluginBinding bind(const char* id, bool built_in) {
  rlk_error error = {sizeof(rlk_error), 0, 0, {}, {}};
  core::PluginBinding binding;
  binding.id = binding.backend = id;
  binding.built_in = built_in;
  binding.api = sdk::detail::PluginThunks<P>::entry(loader::host_services(), &error, id, id, "1.0", "test");
  EXPECT_NE(binding.api, nullptr) << error.text;
  EXPECT_EQ(binding.api->create(loader::host_services(), &binding.instance, &error), RLK_OK) << error.text;
  rlk_device_properties properties{};
  properties.struct_size = sizeof(properties);
  EXPECT_EQ(binding.api->device_describe(binding.instance, 0, &properties, &error), RLK_OK) << error.text;
  binding.devices.push_back(std::make_shared<core::PluginDevice>(binding.api, binding.instance, 0, properties));
  return binding;
}

TEST(StagedInOut, KeepsWhatIsNotWrittenAndTheGaps) {
  core::Registry registry;
  registry.publish({bind<arguments::ArgumentsPlugin>("cpu", true), bind<DevicePlugin>("fake", false)}, {});
  core::Policy policy;
  rlk_error error = {sizeof(rlk_error), 0, 0, {}, {}};
  const auto nothing = [](const char*) -> const char* { return nullptr; };
  ASSERT_EQ(core::Policy::make(nothing, {}, {}, &policy, &error), RLK_OK) << error.text;
  core::Dispatcher dispatcher(registry, std::move(policy), 16);

  // 11 slots of 4 numbers, with a gap of 3 behind each; two of five rows are put into one slot.
  OpCall call(*core::find_declaration("cache_append"));
  constexpr int64_t kSlots = 11, kSize = 4, kStride = 7;
  auto* cache = static_cast<uint32_t*>(call.allocate(kSlots * kStride * sizeof(uint32_t)));
  for (Argument* a : {&call.inputs[RLK_CACHE_APPEND_IN_CACHE], &call.outputs[RLK_CACHE_APPEND_OUT_CACHE]}) {
    a->data = cache;
    a->strides = {kStride, 1};
  }
  auto* rows = static_cast<float*>(call.inputs[RLK_CACHE_APPEND_IN_ROWS].data);
  auto* slots = static_cast<int64_t*>(call.inputs[RLK_CACHE_APPEND_IN_SLOTS].data);
  const int64_t named[] = {7, 0, 3, 7, 10};
  std::memcpy(slots, named, sizeof(named));
  call.refresh();

  core::DeviceState* device = nullptr;
  ASSERT_EQ(dispatcher.device("fake", 0, &device, &error), RLK_OK) << error.text;
  std::unique_ptr<core::Stream> stream;
  ASSERT_EQ(core::Stream::create(*device, dispatcher.counters(), 0, &stream, &error), RLK_OK) << error.text;
  for (uint32_t round = 0; round < 2; ++round) {
    // A NaN with a payload of its own in every place: any arithmetic would show.
    for (uint32_t i = 0; i < kSlots * kStride; ++i) cache[i] = 0x7fa00000u + 1000 * round + i;
    for (int i = 0; i < 20; ++i) rows[i] = static_cast<float>(i) + 100.0f * static_cast<float>(round);
    ASSERT_EQ(
        dispatcher.call(*stream, *call.decl, call.params.data(), call.input_pointers, call.output_pointers, {}, &error),
        RLK_OK)
        << error.text;
    ASSERT_EQ(dispatcher.synchronize(*stream, UINT64_MAX, &error), RLK_OK) << error.text;
    for (uint32_t i = 0; i < kSlots * kStride; ++i) {
      const int64_t slot = i / kStride, d = i % kStride;
      int row = -1;
      for (int n = 0; n < 5; ++n) {
        if (named[n] == slot && d < kSize) row = n;  // the last one stays
      }
      uint32_t expected = 0x7fa00000u + 1000 * round + i;
      if (row >= 0) std::memcpy(&expected, &rows[row * kSize + d], sizeof(expected));
      EXPECT_EQ(cache[i], expected) << "slot " << slot << ", element " << d << ", round " << round;
    }
  }
  EXPECT_EQ(dispatcher.counters().of(*call.decl).staged, 2u);
}

TEST(DispatchArguments, DataErrorsOfABlockTableHaveWords) {
  const core::OpDecl& decl = *core::find_declaration("paged_rows");
  const auto text = [&](int32_t kind) {
    return core::describe(rlk_data_error{sizeof(rlk_data_error), kind, core::make_tag(decl, 1), 0, 2, -1}, "cpu");
  };
  const std::string block = text(RLK_DATA_ID_OUT_OF_RANGE), length = text(RLK_DATA_BAD_SEQLENS);
  EXPECT_NE(block.find("row 2 names the block -1 in 'block_table'; expected 0 <= block < NB"), std::string::npos)
      << block;
  EXPECT_NE(length.find("row 2 has the length -1 in 'lengths'; expected 0 <= length <= (M * BS)"), std::string::npos)
      << length;
}

}  // namespace
}  // namespace rlk::test
