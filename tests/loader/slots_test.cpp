// Required functions: each one that is missing is named, alone and together.
#include "loader/probe/slots.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <rlk/sdk.hpp>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "loader/host/services.hpp"
#include "loader/probe/load.hpp"

namespace rlk::loader {
namespace {

// Any address will do: the check calls nothing.
template <class Slot>
void fill(Slot* slot) {
  *slot = reinterpret_cast<Slot>(0x1000);
}

struct Tables {
  rlk_device_api device{};
  rlk_stream_api stream{};
  rlk_event_api event{};
  rlk_implementation implementation{};
  const rlk_implementation* list[2] = {&implementation, &implementation};
  rlk_plugin plugin{};

  Tables() {
    device.struct_size = sizeof(device);
    stream.struct_size = sizeof(stream);
    event.struct_size = sizeof(event);
    implementation.struct_size = sizeof(implementation);
    plugin.struct_size = sizeof(plugin);
    fill(&device.allocate), fill(&device.deallocate), fill(&device.memory_info);
    fill(&stream.create), fill(&stream.wrap), fill(&stream.destroy), fill(&stream.native), fill(&stream.query);
    fill(&stream.synchronize), fill(&stream.wait_event), fill(&stream.copy), fill(&stream.fill);
    fill(&event.create), fill(&event.destroy), fill(&event.record), fill(&event.query), fill(&event.synchronize);
    implementation.op = "add";
    implementation.name = "simple";
    implementation.params_size = 16;
    fill(&implementation.query), fill(&implementation.plan_create);
    fill(&implementation.plan_enqueue), fill(&implementation.plan_destroy);
    plugin.id = "acme";
    plugin.backend = "acme";
    plugin.implementations = list;
    plugin.n_implementations = 1;
    plugin.device = &device;
    plugin.stream = &stream;
    plugin.event = &event;
    fill(&plugin.create), fill(&plugin.destroy), fill(&plugin.probe), fill(&plugin.device_count);
    fill(&plugin.device_describe), fill(&plugin.device_open), fill(&plugin.device_close);
  }
};

TEST(Slots, ACompletePluginHasNoProblem) {
  Tables tables;
  EXPECT_EQ(check_slots(tables.plugin), "");
}

TEST(Slots, EachMissingOneIsNamedAsInTheHeader) {
  const auto text = [](auto&& damage) {
    Tables tables;
    damage(tables);
    return check_slots(tables.plugin);
  };
  EXPECT_EQ(text([](Tables& t) { t.plugin.create = nullptr; }), "rlk_plugin.create is NULL");
  EXPECT_EQ(text([](Tables& t) { t.plugin.device_open = nullptr; }), "rlk_plugin.device_open is NULL");
  EXPECT_EQ(text([](Tables& t) { t.plugin.device_describe = nullptr; }), "rlk_plugin.device_describe is NULL");
  EXPECT_EQ(text([](Tables& t) { t.device.allocate = nullptr; }), "rlk_device_api.allocate is NULL");
  EXPECT_EQ(text([](Tables& t) { t.stream.fill = nullptr; }), "rlk_stream_api.fill is NULL");
  EXPECT_EQ(text([](Tables& t) { t.event.record = nullptr; }), "rlk_event_api.record is NULL");
  EXPECT_EQ(text([](Tables& t) { t.plugin.event = nullptr; }), "rlk_event_api is NULL");
  EXPECT_EQ(text([](Tables& t) { t.plugin.id = nullptr; }), "rlk_plugin.id is empty");
  EXPECT_EQ(text([](Tables& t) { t.implementation.plan_enqueue = nullptr; }),
            "rlk_plugin.implementations[0].plan_enqueue is NULL");
  EXPECT_EQ(text([](Tables& t) { t.stream.struct_size = 16; }),
            "rlk_stream_api has 16 bytes, at least " + std::to_string(sizeof(rlk_stream_api)) + " are required");
  EXPECT_EQ(text([](Tables& t) {
              t.device.memory_info = nullptr;
              t.stream.copy = nullptr;
            }),
            "rlk_device_api.memory_info is NULL; rlk_stream_api.copy is NULL");
}

TEST(Slots, ContradictionsAreNamed) {
  const auto text = [](auto&& damage) {
    Tables tables;
    damage(tables);
    return check_slots(tables.plugin);
  };
  EXPECT_NE(text([](Tables& t) { fill(&t.stream.allocate_async); }).find("both or neither"), std::string::npos);
  EXPECT_NE(text([](Tables& t) { t.plugin.n_implementations = 2; }).find("add already has an implementation simple"),
            std::string::npos);
  EXPECT_NE(text([](Tables& t) { t.plugin.n_implementations = 0xffffffffu; }).find("4294967295"), std::string::npos);
  EXPECT_NE(text([](Tables& t) { t.plugin.implementations = nullptr; }).find("NULL"), std::string::npos);
  EXPECT_NE(text([](Tables& t) { t.implementation.n_switches = 3; }).find("n_switches is 3"), std::string::npos);
  EXPECT_NE(text([](Tables& t) { t.implementation.op = ""; }).find("no operator"), std::string::npos);
  EXPECT_NE(text([](Tables& t) { t.list[0] = nullptr; }).find("implementations[0] is NULL"), std::string::npos);
}

TEST(Slots, AnOperatorsOnlyPluginNeedsNoDevicesButMustAttach) {
  Tables tables;
  tables.plugin.flags = RLK_PLUGIN_OPERATORS_ONLY;
  tables.plugin.device = nullptr;
  tables.plugin.event = nullptr;
  tables.plugin.device_count = nullptr;
  tables.plugin.device_describe = nullptr;
  tables.plugin.device_open = nullptr;
  tables.stream.copy = nullptr;
  EXPECT_EQ(check_slots(tables.plugin), "rlk_plugin.device_attach is NULL");
  fill(&tables.plugin.device_attach);
  EXPECT_EQ(check_slots(tables.plugin), "");
}

TEST(Slots, NewerLongerTablesAreFine) {
  Tables tables;
  tables.plugin.struct_size += 64;
  tables.stream.struct_size += 64;
  EXPECT_EQ(check_slots(tables.plugin), "");
}

// The last bytes of a page, behind which nothing may be read.
class EndOfPage {
public:
  EndOfPage()
      : page_(static_cast<std::byte*>(
            mmap(nullptr, 2 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))) {
    EXPECT_EQ(mprotect(page_ + kPage, kPage, PROT_NONE), 0);
  }
  ~EndOfPage() { munmap(page_, 2 * kPage); }
  EndOfPage(const EndOfPage&) = delete;
  EndOfPage& operator=(const EndOfPage&) = delete;
  // The first `bytes` of the table, which states as many; what is more of them is garbage.
  template <class Table>
  const Table* put(const Table& table, uint32_t bytes) {
    std::byte* const begin = page_ + kPage - (bytes + 7) / 8 * 8;
    std::memset(begin, 0xa5, (bytes + 7) / 8 * 8);
    std::memcpy(begin, &table, std::min<size_t>(bytes, sizeof(table)));
    std::memcpy(begin, &bytes, sizeof(bytes));
    return reinterpret_cast<const Table*>(begin);
  }

private:
  static constexpr size_t kPage = 4096;
  std::byte* const page_;
};

// A plugin of an older header states less, one of a newer header more: of every size only what is there is read.
TEST(Slots, NothingIsReadBeyondTheSizeThatATableStates) {
  static const rlk_plugin* plugin = nullptr;
  const rlk_host& host = *loader::host_services();
  Tables tables;
  tables.plugin.abi_major = host.abi_major;
  tables.plugin.abi_minor = host.abi_minor;
  tables.plugin.abi_draft = host.abi_draft;
  EndOfPage page;
  int accepted = 0, refused = 0;
  const auto judge = [&](bool is_whole, uint32_t bytes) {
    const rlk_plugin* found = nullptr;
    const auto failure = negotiate([](const rlk_host*, rlk_error*) { return plugin; }, host, &found);
    EXPECT_EQ(failure.has_value(), !is_whole) << bytes << ": " << (failure ? failure->text : "accepted");
    EXPECT_TRUE(!failure || failure->text.find(std::to_string(bytes)) != std::string::npos) << failure->text;
    ++(failure ? refused : accepted);
  };
  const auto every_size = [&](const auto& table, auto&& place) {
    for (uint32_t bytes = 4; bytes <= sizeof(table) + 64; ++bytes) {
      place(page.put(table, bytes));
      judge(bytes >= sizeof(table), bytes);
    }
  };
  every_size(tables.plugin, [&](const rlk_plugin* placed) { plugin = placed; });
  plugin = &tables.plugin;
  every_size(tables.device, [&](const rlk_device_api* placed) { tables.plugin.device = placed; });
  tables.plugin.device = &tables.device;
  every_size(tables.stream, [&](const rlk_stream_api* placed) { tables.plugin.stream = placed; });
  tables.plugin.stream = &tables.stream;
  every_size(tables.event, [&](const rlk_event_api* placed) { tables.plugin.event = placed; });
  tables.plugin.event = &tables.event;
  every_size(tables.implementation, [&](const rlk_implementation* placed) { tables.list[0] = placed; });
  std::printf("%d sizes accepted, %d refused\n", accepted, refused);
}

TEST(Slots, AHopelessPluginGetsABoundedText) {
  Tables tables;
  tables.device = {};
  tables.device.struct_size = sizeof(tables.device);
  tables.stream = {};
  tables.stream.struct_size = sizeof(tables.stream);
  tables.event = {};
  tables.event.struct_size = sizeof(tables.event);
  EXPECT_NE(check_slots(tables.plugin).find("; and 1 more"), std::string::npos) << check_slots(tables.plugin);
}

}  // namespace
}  // namespace rlk::loader
