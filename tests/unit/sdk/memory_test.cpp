// Does memory that a runtime gave reach a host only when it is what the host may expect?
#include <gtest/gtest.h>

#include <rlk/sdk/memory.hpp>
#include <rlk/sdk/numa.hpp>

#include <string>

namespace rlk::sdk {
namespace {

void* const kDevice = reinterpret_cast<void*>(0x1000);
void* const kPinned = reinterpret_cast<void*>(0x2000);
void* const kMisaligned = reinterpret_cast<void*>(0x1080);

// "" or the error's text; *memory is what was given, *freed what was given back.
std::string allocate(int32_t kind, void* on_device, void** memory, void** freed) {
  try {
    *memory = allocate_of_kind(
        kind, [&] { return on_device; }, [] { return kPinned; }, [&](void* back) { *freed = back; });
    return {};
  } catch (const Error& error) {
    return error.what();
  }
}

TEST(Memory, IsOfTheKindThatWasAskedFor) {
  void *memory = nullptr, *freed = nullptr;
  EXPECT_EQ(allocate(RLK_MEMORY_DEVICE, kDevice, &memory, &freed), "");
  EXPECT_EQ(memory, kDevice);
  EXPECT_EQ(allocate(RLK_MEMORY_PINNED, kDevice, &memory, &freed), "");
  EXPECT_EQ(memory, kPinned);
  EXPECT_EQ(freed, nullptr);
}

TEST(Memory, OfAnUnknownKindIsRefused) {
  void *memory = nullptr, *freed = nullptr;
  EXPECT_EQ(allocate(2, kDevice, &memory, &freed), "memory kind 2; the kinds are 0 (device) and 1 (pinned)");
}

TEST(Memory, ThatIsNotAlignedIsGivenBackAndRefused) {
  void *memory = nullptr, *freed = nullptr;
  EXPECT_NE(allocate(RLK_MEMORY_DEVICE, kMisaligned, &memory, &freed).find("not aligned to 256 bytes"),
            std::string::npos);
  EXPECT_EQ(memory, nullptr);
  EXPECT_EQ(freed, kMisaligned);
}

TEST(NumaNode, OfNoCardIsNotKnown) {
  EXPECT_EQ(numa_node_of(""), -1);
  EXPECT_EQ(numa_node_of("FFFF:FF:1F.7"), -1);
}

}  // namespace
}  // namespace rlk::sdk
