// Does the shared host code call what a table has, in the shape that it has it, and cut what a grid cannot hold?
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "plugins/simt/args.h"
#include "plugins/simt/host/kernels.hpp"
#include "plugins/simt/host/stream.hpp"
#include "plugins/simt/tiling.h"

namespace rlk::simt::host {
namespace {

// What the functions of the table were called with. A test sets the members that it needs.
std::vector<std::string> calls;
Driver table;
int current_device = 0;

}  // namespace

const Driver& driver() {
  return table;
}

namespace {

class TableTest : public testing::Test {
protected:
  void SetUp() override {
    calls.clear();
    table = Driver();
    table.name = "Test";
    table.domain = "test";
    current_device = 3;
  }
  static std::string thrown(rlk_status status, const std::function<void()>& call) {
    try {
      call();
    } catch (const sdk::Error& error) {
      EXPECT_EQ(error.status(), status) << error.what();
      return error.what();
    }
    ADD_FAILURE() << "nothing was thrown";
    return {};
  }
};

struct Piece {
  int64_t first_block;
  int64_t unused;
};

void record_launches() {
  table.launch_kernel = [](FunctionHandle, unsigned grid_x, unsigned, unsigned, unsigned block_x, unsigned, unsigned,
                           unsigned shared_bytes, StreamHandle, void** parameters, void**) {
    calls.push_back(sdk::format("%u x %u, %u bytes, from %lld", grid_x, block_x, shared_bytes,
                                static_cast<long long>(static_cast<Piece*>(parameters[0])->first_block)));
    return 0;
  };
}

TEST_F(TableTest, AGridBeyondTheLimitIsLaunchedInPartsThatKnowWhereTheyBegin) {
  record_launches();
  table.grid_threads = 1030;  // four blocks of 256 and a rest
  launch(nullptr, 10, 256, 64, nullptr, Piece{});
  EXPECT_EQ(calls, (std::vector<std::string>{"4 x 256, 64 bytes, from 0", "4 x 256, 64 bytes, from 4",
                                             "2 x 256, 64 bytes, from 8"}));
  calls.clear();
  launch(nullptr, 0, 256, 64, nullptr, Piece{});
  EXPECT_TRUE(calls.empty());
}

TEST_F(TableTest, AGridOfWalkingBlocksIsOneLaunchOfWhatFits) {
  record_launches();
  table.grid_threads = 1030;
  launch_walking(nullptr, 10, 256, 0, nullptr, Piece{});
  launch_walking(nullptr, 3, 256, 0, nullptr, Piece{});
  launch_walking(nullptr, 0, 256, 0, nullptr, Piece{});
  EXPECT_EQ(calls, (std::vector<std::string>{"4 x 256, 0 bytes, from 0", "3 x 256, 0 bytes, from 0"}));
}

// HIP takes fewer than 2^32 threads in all; without such a limit the number of blocks is one.
TEST_F(TableTest, TheLimitsOfRealDriversHold) {
  EXPECT_EQ(grid_limit(256), 0x7fffffff);
  table.grid_threads = (int64_t{1} << 32) - 1;
  EXPECT_EQ(grid_limit(256), (1 << 24) - 1);
  EXPECT_EQ(grid_limit(1), 0x7fffffff);
}

TEST_F(TableTest, ADeviceOfATableWithoutContextsIsCurrentForAScopeOnly) {
  table.device_current = [](int* device) { return *device = current_device, 0; };
  table.device_set = [](int device) {
    calls.push_back("set " + std::to_string(device));
    return current_device = device, 0;
  };
  const Place place = retain_place(1);
  EXPECT_EQ(place.context, nullptr);
  {
    const PlaceScope scope(place);
    EXPECT_EQ(current_device, 1);
    const PlaceScope inner(place);  // is there already
  }
  EXPECT_EQ(current_device, 3);
  EXPECT_EQ(calls, (std::vector<std::string>{"set 1", "set 3"}));
  release_place(1);
}

TEST_F(TableTest, EveryShapeOfACallGetsWhatItNeeds) {
  static char memory[8];
  table.copy_kind_async = [](void*, const void*, size_t bytes, int kind, StreamHandle) {
    return calls.push_back(sdk::format("copy %zu kind %d", bytes, kind)), 0;
  };
  table.fill_int_async = [](void*, int value, size_t, StreamHandle) {
    return calls.push_back(sdk::format("fill %d", value)), 0;
  };
  table.copy_peer_device_async = [](void*, int to, const void*, int from, size_t, StreamHandle) {
    return calls.push_back(sdk::format("peer %d to %d", from, to)), 0;
  };
  table.host_allocate_plain = [](void** out, size_t) { return *out = memory, 0; };
  table.stream_create_plain = [](StreamHandle*, unsigned flags) {
    return calls.push_back(sdk::format("stream flags %u", flags)), 0;
  };
  table.graph_instantiate_logged = [](GraphExecHandle*, GraphHandle, void**, char*, size_t) {
    return calls.push_back("instantiate"), 0;
  };
  copy(memory, memory, 8, RLK_COPY_DEVICE_TO_HOST, nullptr);
  fill(memory, 0xff, 8, nullptr);  // a byte, not -1
  copy_peer(memory, {nullptr, 2}, memory, {nullptr, 5}, 8, nullptr);
  EXPECT_EQ(allocate_pinned(8), memory);
  create_stream(-1);
  instantiate(nullptr);
  EXPECT_EQ(device_of(4), 4);
  EXPECT_EQ(calls,
            (std::vector<std::string>{"copy 8 kind 2", "fill 255", "peer 5 to 2", "stream flags 1", "instantiate"}));
}

TEST_F(TableTest, WhatATableLacksIsUnsupportedAndNotCalled) {
  EXPECT_NE(thrown(RLK_UNSUPPORTED, [] { copy_peer(nullptr, {}, nullptr, {}, 8, nullptr); }).find("host memory"),
            std::string::npos);
  EXPECT_EQ(attribute(0, Attributes::kNone), 0);
  EXPECT_FALSE(table.has_graphs());
}

TEST_F(TableTest, AnErrorHasTheVendorsWordsAndMeaning) {
  table.error_name_text = [](Result) { return "testErrorBusy"; };
  table.error_string_text = [](Result) { return "the device is busy"; };
  EXPECT_EQ(thrown(RLK_BACKEND_ERROR, [] { check(5, "trying"); }),
            "trying failed with testErrorBusy (5): the device is busy");
  table.status_of = [](Result code) { return code == 5 ? RLK_DEVICE_LOST : status_of_code(code); };
  thrown(RLK_DEVICE_LOST, [] { check(5, "trying"); });
  thrown(RLK_OUT_OF_MEMORY, [] { check(2, "trying"); });
  table.error_name_text = nullptr;
  table.error_string_text = nullptr;
  EXPECT_EQ(thrown(RLK_CAPTURE_FORBIDS, [] { check(900, "trying"); }), "trying failed with Test error (900)");
}

// From HIP 6 on host memory is 1, device memory 2, and 0 is memory that the runtime has nothing to do with; before,
// host memory was 0.
TEST_F(TableTest, MemoryThatTheRuntimeDoesNotKnowIsUnknown) {
  static unsigned type = 0;
  table.attributes.warp_size = 1;
  table.device_attribute = [](int* value, int, int) { return *value = 32, 0; };
  table.device_current = [](int* device) { return *device = 0, 0; };
  table.device_set = [](int) { return 0; };
  table.profile = [](int) { return Profile(); };
  table.pointer_attribute = [](void* value, int attribute, const void*) {
    return *static_cast<unsigned*>(value) = attribute == kPointerMemoryType ? type : 0, 0;
  };
  Device device(0);
  const auto kind_of = [&](unsigned told, unsigned host) {
    type = told;
    table.host_memory_type = host;
    return device.pointer_kind(&device);
  };
  EXPECT_EQ(kind_of(0, 1), RLK_POINTER_UNKNOWN);
  EXPECT_EQ(kind_of(1, 1), RLK_POINTER_PINNED);
  EXPECT_EQ(kind_of(2, 1), RLK_POINTER_DEVICE);
  EXPECT_EQ(kind_of(0, 0), RLK_POINTER_PINNED);
  EXPECT_EQ(kind_of(1, 0), RLK_POINTER_DEVICE);
}

// A block's shared memory fits where the widest head does, at both widths, and shrinks in steps of 8 columns.
TEST(TilingTest, AttentionFitsInSixtyFourKibibytes) {
  for (const int64_t wave : {32, 64}) {
    for (const int64_t bytes : {4, 8}) {
      for (const int64_t head : {1, 64, 100, 128, 256}) {
        const int64_t columns = attention_simt_columns(wave, head, bytes, 65536);
        EXPECT_TRUE(columns == head || (columns % 8 == 0 && columns > 0 && columns < head));
        EXPECT_LE(attention_simt_shared_bytes(wave, head, columns, bytes), 65536)
            << wave << " " << bytes << " " << head;
      }
    }
    // NVIDIA's data centre cards hold everything: one part, as ever.
    EXPECT_EQ(attention_simt_columns(wave, 256, 8, 166912), 256);
  }
}

}  // namespace
}  // namespace rlk::simt::host
