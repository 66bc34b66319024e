// paged_attention is attention over what lies in its blocks, bit for bit, in decoding and in prefill; and what upstream
// kernels get wrong: windows that decoding ignores, numbers behind a context, blocks that are not there.
#include <rlk/sdk/ops/paged_attention.hpp>

#include <cmath>

#include "unit/cpu/attention_case.hpp"
#include "unit/cpu/token_case.hpp"

namespace rlk::test {
namespace {

using Paged = CallOf<ops::PagedAttention>;
using CacheLayout = ops::paged_attention::Layout;

// The place of element d of a token in the caches of a layout, head_major with groups of x.
int64_t place_of(bool is_key, CacheLayout layout, Heads heads, int64_t size, int64_t x, int64_t block, int64_t place,
                 int64_t h, int64_t d) {
  const int64_t row = block * heads.kv + h;
  if (layout == CacheLayout::token_major) return ((block * size + place) * heads.kv + h) * heads.size + d;
  if (is_key) return ((row * (heads.size / x) + d / x) * size + place) * x + d % x;
  return (row * heads.size + d) * size + place;
}

// The sequences of a packed call of attention in blocks of `size` tokens that lie in no order; what holds no token is
// NaN, and behind the blocks of a sequence there is -1.
Paged paged_of(const Attention& packed, Heads heads, int64_t size, CacheLayout layout, int64_t x = 8) {
  const int64_t sequences = packed.cu_seqlens_q.size() - 1;
  const auto length = [&](int64_t b) { return packed.cu_seqlens_k.get_int(b + 1) - packed.cu_seqlens_k.get_int(b); };
  int64_t columns = 1, blocks = 0;
  for (int64_t b = 0; b < sequences; ++b) {
    columns = std::max(columns, (length(b) + size - 1) / size + 1);
    blocks += (length(b) + size - 1) / size + 1;
  }
  const Dtype dtype = packed.k.dtype();
  Paged c;
  c.params.layout = layout;
  c.params.causal = static_cast<ops::paged_attention::Causal>(packed.params.causal);
  c.params.window_left = packed.params.window_left;
  c.params.window_right = packed.params.window_right;
  c.params.softcap = packed.params.softcap;
  c.q = packed.q;
  c.lse = wanted();
  c.cu_seqlens_q = packed.cu_seqlens_q;
  const bool is_token_major = layout == CacheLayout::token_major;
  const std::vector<int64_t> in_tokens = {blocks, size, heads.kv, heads.size};
  const auto empty = [](int64_t) { return kNan; };
  c.key_cache =
      Tensor(dtype, is_token_major ? in_tokens : std::vector<int64_t>{blocks, heads.kv, heads.size / x, size, x});
  c.value_cache = Tensor(dtype, is_token_major ? in_tokens : std::vector<int64_t>{blocks, heads.kv, heads.size, size});
  c.key_cache.fill(empty), c.value_cache.fill(empty);
  c.block_table = Tensor(packed.cu_seqlens_q.dtype(), {sequences, columns});
  c.context_lens = Tensor(packed.cu_seqlens_q.dtype(), {sequences});
  int64_t next = blocks;
  for (int64_t b = 0; b < sequences; ++b) {
    c.context_lens.set_int(b, length(b));
    for (int64_t m = 0; m < columns; ++m) c.block_table.set_int(b * columns + m, m * size < length(b) ? --next : -1);
    for (int64_t j = 0; j < length(b); ++j) {
      const int64_t block = c.block_table.get_int(b * columns + j / size);
      for (int64_t i = 0; i < heads.kv * heads.size; ++i) {
        const int64_t from = (packed.cu_seqlens_k.get_int(b) + j) * heads.kv * heads.size + i;
        const auto at = [&](bool is_key) {
          return place_of(is_key, layout, heads, size, x, block, j % size, i / heads.size, i % heads.size);
        };
        c.key_cache.set(at(true), packed.k.get(from));
        c.value_cache.set(at(false), packed.v.get(from));
      }
    }
  }
  return c;
}

void expect_bits_of_attention(const Attention& packed, Heads heads, int64_t size, CacheLayout layout, int64_t x = 8) {
  const auto right = run(packed);
  const auto got = run(paged_of(packed, heads, size, layout, x));
  EXPECT_EQ(got.error.kind, sdk::kNoDataError);
  EXPECT_EQ(got.out.bytes(), right.out.bytes()) << "blocks of " << size << ", layout " << static_cast<int>(layout);
  EXPECT_EQ(got.lse.bytes(), right.lse.bytes()) << "blocks of " << size << ", layout " << static_cast<int>(layout);
}

TEST(CpuPagedAttention, DecodingHasTheBitsOfAttentionOverTheSameKeys) {
  for_each_attention_target([] {
    for (const Dtype dtype : {Dtype::f32, Dtype::bf16}) {
      for (const Heads heads : {Heads{4, 2, 64}, Heads{2, 2, 40}, Heads{20, 2, 16}}) {
        const Attention packed = packed_attention(dtype, {1, 1, 1, 1}, {1, 0, 130, 1100}, heads);
        for (const int64_t size : {dtype == Dtype::f32 ? 1 : 16, dtype == Dtype::f32 ? 64 : 256}) {
          expect_bits_of_attention(packed, heads, size, CacheLayout::token_major);
          expect_bits_of_attention(packed, heads, size, CacheLayout::head_major);
        }
        expect_bits_of_attention(packed, heads, 16, CacheLayout::head_major, heads.size);
      }
    }
  });
}

TEST(CpuPagedAttention, PrefillHasTheBitsOfAttentionOverTheSameKeys) {
  const Heads heads = {4, 2, 64};
  for (const int64_t size : {7, 128}) {
    Attention packed = packed_attention(Dtype::f32, {70, 0, 3, 5}, {70, 6, 300, 2}, heads);
    packed.params.causal = Causal::on;
    expect_bits_of_attention(packed, heads, size, CacheLayout::token_major);
    packed.params.softcap = 1.5;
    packed.params.window_left = 66;
    expect_bits_of_attention(packed, heads, size, CacheLayout::head_major);
  }
}

// InfiniOps' paged decoding passes no window on.
TEST(CpuPagedAttention, AWindowHoldsInDecodingToo) {
  const Heads heads = {4, 2, 64};
  Attention packed = packed_attention(Dtype::bf16, {1, 1}, {500, 9}, heads);
  packed.params.causal = Causal::on;
  packed.params.window_left = 15;
  expect_bits_of_attention(packed, heads, 16, CacheLayout::token_major);
  Paged c = paged_of(packed, heads, 16, CacheLayout::token_major);
  const auto with = run(c);
  c.params.window_left = -1;
  EXPECT_NE(with.out.bytes(), run(c).out.bytes());
}

TEST(CpuPagedAttention, ABlockThatIsNotThereIsADataErrorOfItsSequenceAlone) {
  const Heads heads = {2, 1, 16};
  const Attention packed = packed_attention(Dtype::f32, {1, 1, 1}, {20, 40, 3}, heads);
  const Paged good = paged_of(packed, heads, 8, CacheLayout::token_major);
  const auto right = run(good);
  const int64_t columns = good.block_table.shape()[1];
  for (const int64_t block : {int64_t{-1}, good.key_cache.shape()[0], int64_t{1} << 30}) {
    Paged bad = good;
    bad.block_table.set_int(columns + 4, block);
    const auto got = run(bad);
    EXPECT_EQ(got.error.kind, sdk::kIdOutOfRange);
    EXPECT_EQ(got.error.row, 1);
    EXPECT_EQ(got.error.value, block);
    for (int64_t i = 0; i < 3 * 32; ++i) {
      const bool is_bad = i / 32 == 1;
      EXPECT_EQ(std::isnan(got.out.get(i)), is_bad) << i;
      EXPECT_TRUE(is_bad || got.out.get(i) == right.out.get(i)) << i;
    }
    EXPECT_TRUE(std::isnan(got.lse.get(2)));
  }
}

TEST(CpuPagedAttention, ALengthThatTheTableHasNoRoomForIsADataErrorOfItsSequenceAlone) {
  const Heads heads = {2, 1, 16};
  const Attention packed = packed_attention(Dtype::f32, {2, 1}, {20, 40}, heads);
  const Paged good = paged_of(packed, heads, 8, CacheLayout::token_major);
  for (const int64_t length : {int64_t{-1}, good.block_table.shape()[1] * 8 + 1}) {
    Paged bad = good;
    bad.context_lens.set_int(0, length);
    const auto got = run(bad);
    EXPECT_EQ(got.error.kind, sdk::kBadSeqlens);
    EXPECT_EQ(got.error.row, 0);
    EXPECT_EQ(got.error.value, length);
    for (int64_t i = 0; i < 3 * 32; ++i) EXPECT_EQ(std::isnan(got.out.get(i)), i < 64) << i;
  }
}

}  // namespace
}  // namespace rlk::test
