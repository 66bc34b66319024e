// attention on AMD's matrix units: does a row have the same bits in a small block and in a large one, and is it what
// its formula says? The kernels run on fibers, with the instruction played.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <utility>
#include <vector>

#include "plugins/rocm/kernels/attention_mfma.h"
#include "plugins/simt/element.cuh"

extern "C" {
void attention_mfma_f16_64_64(rlk::simt::AttentionArgs);
void attention_mfma_f16_64_128(rlk::simt::AttentionArgs);
void attention_mfma_bf16_96_64(rlk::simt::AttentionArgs);
void attention_mfma_bf16_96_128(rlk::simt::AttentionArgs);
void attention_mfma_f16_128_64(rlk::simt::AttentionArgs);
void attention_mfma_f16_128_128(rlk::simt::AttentionArgs);
}

namespace {

using namespace rlk::simt;

// Two sequences, two key heads of three query heads each, a causal mask, and a head that is narrower than its kernel's.
template <class T>
struct Attention {
  int64_t queries, keys, head;
  static constexpr int64_t kBatch = 2, kHeads = 2, kGroup = 3;
  std::vector<T> q = noise(queries * kHeads * kGroup, 1), k = noise(keys * kHeads, 2), v = noise(keys * kHeads, 3), out;
  std::vector<float> lse;

  Attention(int64_t some_queries, int64_t some_keys, int64_t head_size)
      : queries(some_queries), keys(some_keys), head(head_size) {}

  std::vector<T> noise(int64_t rows, unsigned seed) const {
    std::mt19937 random(seed);
    std::uniform_real_distribution<float> number(-1, 1);
    std::vector<T> values(static_cast<size_t>(kBatch * rows * head));
    for (T& value : values) value = Narrow<T>::of(number(random));
    return values;
  }
  void run(void (*kernel)(AttentionArgs), int block_rows, int padded_head) {
    out.assign(q.size(), Narrow<T>::of(99.0f));
    lse.assign(static_cast<size_t>(kBatch * queries * kHeads * kGroup), 99);
    const auto tensor = [&](std::vector<T>& data, int64_t tokens, int64_t heads) {
      return AttentionTensor{data.data(), tokens * heads * head, heads * head, head};
    };
    AttentionArgs args{};
    args.q = tensor(q, queries, kHeads * kGroup);
    args.k = tensor(k, keys, kHeads);
    args.v = tensor(v, keys, kHeads);
    args.out = tensor(out, queries, kHeads * kGroup);
    args.lse = lse.data();
    args.sequences = kBatch;
    args.queries = queries;
    args.keys = keys;
    args.window_left = -1;
    args.q_heads = kHeads * kGroup;
    args.kv_heads = kHeads;
    args.group = kGroup;
    args.head_size = static_cast<int32_t>(head);
    args.block_rows = block_rows;
    args.scale = 0.5;
    const auto blocks = static_cast<unsigned>((queries * kGroup + block_rows - 1) / block_rows * kHeads * kBatch);
    rlk::emulation::run_grid({blocks, 1, 1}, {rlk::rocm::kMfmaThreads, 1, 1},
                             static_cast<size_t>(rlk::rocm::attention_mfma_shared_bytes(padded_head)),
                             [=] { kernel(args); });
  }

  // A row's log-sum-exp and column `column` of its output, by their formulas.
  std::pair<double, double> expected(int64_t b, int64_t query, int64_t h, int64_t column) const {
    double sum = 0, weighted = 0;
    for (int64_t j = 0; j <= query + keys - queries; ++j) {
      const int64_t key = ((b * keys + j) * kHeads + h / kGroup) * head;
      double score = 0;
      for (int64_t d = 0; d < head; ++d) {
        score += double{widen(q[static_cast<size_t>(((b * queries + query) * kHeads * kGroup + h) * head + d)])} *
                 double{widen(k[static_cast<size_t>(key + d)])};
      }
      sum += std::exp(0.5 * score);
      weighted += std::exp(0.5 * score) * double{widen(v[static_cast<size_t>(key + column)])};
    }
    return {std::log(sum), weighted / sum};
  }
};

template <class T>
void expect_same_in_both(void (*small)(AttentionArgs), void (*large)(AttentionArgs), int padded_head, int64_t head) {
  Attention<T> attention(50, 75, head);
  attention.run(small, 64, padded_head);
  const std::vector<T> out = attention.out;
  const std::vector<float> lse = attention.lse;
  for (const int64_t query : {0, 31, 49}) {
    for (const int64_t h : {0, 5}) {
      const auto at = static_cast<size_t>((50 + query) * 6 + h);
      for (const int64_t column : {int64_t{0}, int64_t{21}, head - 1}) {
        const auto [expected_lse, expected_out] = attention.expected(1, query, h, column);
        EXPECT_NEAR(lse[at], expected_lse, 1e-5) << query << " " << h;
        // Weights and output are rounded to the dtype.
        EXPECT_NEAR(widen(out[at * static_cast<size_t>(head) + static_cast<size_t>(column)]), expected_out,
                    kIsBf16<T> ? 0x1p-8 : 0x1p-11)
            << query << " " << h << " " << column;
      }
    }
  }
  attention.run(large, 128, padded_head);
  EXPECT_EQ(std::memcmp(attention.out.data(), out.data(), out.size() * sizeof(T)), 0);
  EXPECT_EQ(std::memcmp(attention.lse.data(), lse.data(), lse.size() * sizeof(float)), 0);
}

TEST(AttentionMfma, ARowHasTheSameBitsInSmallAndLargeBlocks) {
  expect_same_in_both<f16>(&attention_mfma_f16_64_64, &attention_mfma_f16_64_128, 64, 40);
  expect_same_in_both<bf16>(&attention_mfma_bf16_96_64, &attention_mfma_bf16_96_128, 96, 96);
  expect_same_in_both<f16>(&attention_mfma_f16_128_64, &attention_mfma_f16_128_128, 128, 128);
}

}  // namespace
