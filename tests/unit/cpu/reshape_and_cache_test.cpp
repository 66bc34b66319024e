// reshape_and_cache: padding is skipped, where aclnnInplaceIndexCopy writes to the last slot; both layouts hold the
// same.
#include <rlk/sdk/ops/reshape_and_cache.hpp>

#include "unit/cpu/token_case.hpp"

namespace rlk::test {
namespace {

using Cache = CallOf<ops::ReshapeAndCache>;
using ops::reshape_and_cache::Layout;

Cache tokens(std::vector<int64_t> slots) {
  Cache c;
  const auto count = static_cast<int64_t>(slots.size());
  c.key = random_tensor(Dtype::bf16, {count, 2, 8}, 1, 1);
  c.value = random_tensor(Dtype::bf16, {count, 2, 8}, 1, 2);
  c.slot_mapping = integers(slots);
  c.key_cache = Tensor(Dtype::bf16, {3, 4, 2, 8}).fill([](int64_t) { return 7.0; });
  c.value_cache = c.key_cache;
  return c;
}

// The call with its caches written, in their own memory.
Cache written(Cache c) {
  cpu::CallOf<ops::ReshapeAndCache> call;
  call.key = array_of(c.key);
  call.value = array_of(c.value);
  call.slot_mapping = array_of(c.slot_mapping);
  call.key_cache = call.out_key_cache = array_of(c.key_cache);
  call.value_cache = call.out_value_cache = array_of(c.value_cache);
  call.params.layout = c.params.layout;
  call.N = call.M = c.slot_mapping.shape()[0];
  call.H = 2;
  call.D = 8;
  call.B = 3;
  call.BS = call.X = 4;
  EXPECT_EQ(cpu::kernel<ops::ReshapeAndCache>().run(call, {cpu::serial_parallel()}).kind, sdk::kNoDataError);
  return c;
}

TEST(CpuReshapeAndCache, PaddingIsSkippedAndEveryOtherSlotKeepsItsBits) {
  const Cache c = tokens({-1, 5, -1}), got = written(c);
  for (int64_t slot = 0; slot < 12; ++slot) {
    for (int64_t i = 0; i < 16; ++i) {
      EXPECT_EQ(got.key_cache.get(slot * 16 + i), slot == 5 ? c.key.get(16 + i) : 7) << slot;
      EXPECT_EQ(got.value_cache.get(slot * 16 + i), slot == 5 ? c.value.get(16 + i) : 7) << slot;
    }
  }
}

TEST(CpuReshapeAndCache, BothLayoutsHoldTheSame) {
  const Cache c = tokens({9, 2, 0, 9}), token_major = written(c);
  Cache other = c;
  other.params.layout = Layout::head_major;
  other.key_cache = Tensor(Dtype::bf16, {3, 2, 2, 4, 4}).fill([](int64_t) { return 7.0; });
  other.value_cache = Tensor(Dtype::bf16, {3, 2, 8, 4}).fill([](int64_t) { return 7.0; });
  const Cache head_major = written(other);
  for (int64_t i = 0; i < 12 * 16; ++i) {
    const int64_t slot = i / 16, h = i / 8 % 2, d = i % 8, block = slot / 4, place = slot % 4;
    EXPECT_EQ(head_major.key_cache.get((((block * 2 + h) * 2 + d / 4) * 4 + place) * 4 + d % 4),
              token_major.key_cache.get(i));
    EXPECT_EQ(head_major.value_cache.get(((block * 2 + h) * 8 + d) * 4 + place), token_major.value_cache.get(i));
  }
}

}  // namespace
}  // namespace rlk::test
