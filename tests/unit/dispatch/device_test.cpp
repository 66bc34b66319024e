// Devices: described without being opened, opened once when they are first used, lent to plugins that bring operators.
#include <thread>

#include "core/dispatch/device/copy.hpp"
#include "unit/dispatch/scripted.hpp"
#include "unit/dispatch/world.hpp"

namespace rlk::test {
namespace {

using sdk::ops::Add;

class UnopenedDevices : public ::testing::Test {
protected:
  UnopenedDevices() {
    fake_log().reset();
    world.plugins = World::unopened(8);
    world.publish();
    world.dispatcher = nullptr;
    world.make_dispatcher({}, {});
  }
  World world{World::kCpu};
};

TEST_F(UnopenedDevices, AreDescribedAndOnlyTheOneWithAStreamIsOpened) {
  for (uint32_t i = 0; i < 8; ++i) {
    const core::DeviceEntry* entry = nullptr;
    ASSERT_EQ(world.dispatcher->describe_device("fake", i, &entry, &world.last), RLK_OK) << world.text();
    EXPECT_STREQ(entry->properties().name, "Fake");
    EXPECT_EQ(entry->properties().uuid[15], i + 1);
    EXPECT_EQ(std::string(entry->properties().pci_bus_id), "00000000:0" + std::to_string(i) + ":00.0");
    EXPECT_EQ(world.dispatcher->open_device(*entry), nullptr);
  }
  EXPECT_EQ(fake_log().opens, 0);
  auto stream = world.stream("fake", 5);
  auto second = world.stream("fake", 5);
  EXPECT_EQ(fake_log().opens, 1);
  EXPECT_EQ(static_cast<FakeDevice&>(*reinterpret_cast<sdk::Device*>(stream->device().handle)).ordinal, 5u);
  world.publish();
  auto third = world.stream("fake", 5);
  EXPECT_EQ(fake_log().opens, 1) << "a new generation keeps the handles";
}

TEST_F(UnopenedDevices, AreOpenedOnceByThreadsThatComeTogether) {
  std::vector<std::thread> threads;
  std::atomic<int> failures{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      core::DeviceState* device = nullptr;
      failures += world.dispatcher->device("fake", 2, &device, nullptr) != RLK_OK;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failures, 0);
  EXPECT_EQ(fake_log().opens, 1);
}

TEST_F(UnopenedDevices, CopyToEachOtherOnAStreamOfOneOfThem) {
  core::Place places[4];
  char memory[4][64] = {};
  for (uint32_t i = 0; i < 4; ++i) {
    ASSERT_EQ(world.dispatcher->device("fake", i, &places[i].device, nullptr), RLK_OK);
    places[i].memory = memory[i];
  }
  auto stream = world.stream("fake", 1);
  auto& inside = static_cast<FakeStream&>(*reinterpret_cast<sdk::Stream*>(stream->handle()));
  const auto device = [&](int i) { return reinterpret_cast<sdk::Device*>(places[i].device->handle); };
  std::memset(memory[1], 7, 64);
  ASSERT_EQ(core::copy_peer(*stream, places[2], places[1], 64, &world.last), RLK_OK) << world.text();
  EXPECT_EQ(inside.peers, std::make_pair(device(1), device(2)));
  ASSERT_EQ(core::copy_peer(*stream, places[1], places[3], 64, &world.last), RLK_OK) << world.text();
  EXPECT_EQ(inside.peers, std::make_pair(device(3), device(1)));
  ASSERT_EQ(world.synchronize(*stream), RLK_OK);
  EXPECT_EQ(memory[2][63], 7);
  EXPECT_EQ(memory[1][63], 0);
  EXPECT_EQ(core::copy_peer(*stream, places[1], places[1], 64, &world.last), RLK_OK) << "one device is no peer";

  EXPECT_EQ(core::copy_peer(*stream, places[2], places[3], 64, &world.last), RLK_INVALID_ARGUMENT);
  for (const char* part : {"from fake:3 to fake:2", "fake:1"}) {
    EXPECT_NE(world.text().find(part), std::string::npos) << world.text();
  }
  EXPECT_EQ(core::copy_peer(*stream, {nullptr, places[2].device}, places[1], 64, &world.last), RLK_INVALID_ARGUMENT);
  EXPECT_EQ(core::copy_peer(*stream, {nullptr, places[2].device}, places[1], 0, &world.last), RLK_OK);
  fake_log().lacks_optional = true;
  EXPECT_EQ(core::copy_peer(*stream, places[2], places[1], 64, &world.last), RLK_UNSUPPORTED);
  EXPECT_NE(world.text().find("copy through the host"), std::string::npos) << world.text();
  fake_log().lacks_optional = false;
}

TEST_F(UnopenedDevices, ThatCannotBeOpenedAreAskedOnceAndTheReasonIsKept) {
  fake_log().fail_open = true;
  for (int i = 0; i < 2; ++i) {
    core::DeviceState* device = nullptr;
    world.last = {sizeof(rlk_error), 0, 0, {}, {}};
    EXPECT_EQ(world.dispatcher->device("fake", 3, &device, &world.last), RLK_BACKEND_ERROR);
    for (const char* part : {"device_open of fake:3", "fell off the bus", "plugin fake"}) {
      EXPECT_NE(world.text().find(part), std::string::npos) << part << " | " << world.text();
    }
    EXPECT_EQ(world.last.native_code, 79);
    fake_log().fail_open = false;
  }
  EXPECT_EQ(fake_log().opens, 1);
  EXPECT_NE(world.stream("fake", 4), nullptr) << "the others are not touched";
}

TEST_F(UnopenedDevices, AreLentWithTheirNativeNamesWhenAnOperatorIsFirstAskedFor) {
  auto stream = world.stream("fake", 6);
  EXPECT_EQ(fake_log().attaches, 0);
  OpCall& call = world.make("add");
  core::CallOptions pinned;
  pinned.pin = "guest/first";
  ASSERT_EQ(world.call(*stream, call, pinned), RLK_OK) << world.text();
  ASSERT_EQ(world.call(*stream, call, pinned), RLK_OK) << world.text();
  ASSERT_EQ(world.synchronize(*stream), RLK_OK);
  EXPECT_EQ(fake_log().attaches, 1);
  const rlk_attach_info& attached = GuestPlugin::last_attach();
  EXPECT_EQ(attached.ordinal, 6u);
  EXPECT_STREQ(attached.backend, "fake");
  EXPECT_EQ(attached.properties->uuid[15], 7);
  ASSERT_NE(attached.native, nullptr);
  EXPECT_EQ(GuestPlugin::last_native().device, 106);
  EXPECT_EQ(GuestPlugin::last_native().context, reinterpret_cast<void*>(stream->device().handle));
}

TEST_F(UnopenedDevices, ThatHaveNoNativeNamesAreLentWithoutThem) {
  fake_log().lacks_optional = true;
  auto stream = world.stream("fake", 6);
  OpCall& call = world.make("add");
  core::CallOptions pinned;
  pinned.pin = "guest/first";
  ASSERT_EQ(world.call(*stream, call, pinned), RLK_OK) << world.text();
  EXPECT_EQ(GuestPlugin::last_attach().native, nullptr);
}

TEST(OptionalSlots, ThatAnswerUnsupportedAreTreatedAsMissingAndNotAskedAgain) {
  World world(World::kAll, {{"RLK_OP_ADD", "cpu"}});
  fake_log().lacks_optional = true;
  auto stream = world.stream();
  OpCall& call = world.make("add");
  for (int i = 0; i < 3; ++i) ASSERT_EQ(world.call(*stream, call), RLK_OK) << world.text();
  EXPECT_EQ(world.counters("add").staged, 3u);
  EXPECT_EQ(world.counters("add").blocking, 3u);
  EXPECT_EQ(fake_log().asked, 1) << "for host functions";
  // Copies of ordinary memory, and calls on the vendor's own stream.
  float here[4] = {1, 2, 3, 4};
  for (int i = 0; i < 2; ++i) {
    ASSERT_EQ(core::copy(*stream, call.inputs[0].data, here, sizeof(here), RLK_COPY_HOST_TO_DEVICE, nullptr), RLK_OK);
  }
  EXPECT_EQ(fake_log().asked, 2) << "for the kind of a pointer";
  auto native = std::make_unique<FakeStreamWithHostFunctions>();
  std::unique_ptr<Stream> wrapped;
  ASSERT_EQ(Stream::wrap(stream->device(), world.dispatcher->counters(), static_cast<FakeStream*>(native.get()),
                         &wrapped, nullptr),
            RLK_OK);
  for (int i = 0; i < 2; ++i) ASSERT_EQ(world.call(*wrapped, call), RLK_OK) << world.text();
  EXPECT_EQ(fake_log().asked, 3) << "for captures";
  ASSERT_EQ(world.synchronize(*wrapped), RLK_OK);
}

}  // namespace
}  // namespace rlk::test
