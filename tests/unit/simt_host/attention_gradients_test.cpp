// Do the kernels of attention's gradients and of prefix_shared_attention give the same bits however a grid is cut, and
// in which group of samples they work? Built for waves of 32 and of 64.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "plugins/simt/attention_samples.h"
#include "tests/fakes/cuda/emulation.hpp"

// The kernels, compiled for fibers (tests/fakes/cuda).
extern "C" {
void prefix_attention_f64(rlk::simt::SampleAttentionArgs);
void attention_gradients_terms_f64(rlk::simt::AttentionGradientArgs);
void attention_gradients_rows_f64(rlk::simt::AttentionGradientArgs);
void attention_gradients_keys_f64(rlk::simt::AttentionGradientArgs);
void attention_gradients_prefix_f64(rlk::simt::AttentionGradientArgs);
}

namespace {

using namespace rlk::simt;

constexpr int kWave = rlk::emulation::kWave;
constexpr int64_t kSamples = 3, kQueries = 13, kPrefix = 37, kKeys = 35, kHeads = 2, kGroup = 3, kHead = 70;
constexpr int64_t kRows = kSamples * kQueries * kHeads * kGroup;

std::vector<double> noise(int64_t n, unsigned seed) {
  std::vector<double> values(static_cast<size_t>(n));
  for (double& value : values) {
    seed = seed * 1664525u + 1013904223u;
    value = static_cast<double>(seed >> 8) / (1 << 23) - 1;
  }
  return values;
}

bool same_bits(const std::vector<double>& a, const std::vector<double>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(double)) == 0;
}

// One group of three samples; the tiles of rows, of the prefix and of own keys are two each, and so are the columns.
struct Group {
  std::vector<double> q = noise(kRows * kHead, 1), prefix_k = noise(kPrefix * kHeads * kHead, 2),
                      prefix_v = noise(kPrefix * kHeads * kHead, 3), k = noise(kSamples * kKeys * kHeads * kHead, 4),
                      v = noise(kSamples * kKeys * kHeads * kHead, 5), grad_out = noise(kRows * kHead, 6);
  std::vector<double> out, lse, grad_q, grad_k, grad_v, grad_prefix_k, grad_prefix_v, terms, part_sums;

  // Room for all, filled with a number that no kernel computes.
  void clear() {
    for (std::vector<double>* list : {&out, &grad_q}) list->assign(q.size(), 99);
    for (std::vector<double>* list : {&grad_k, &grad_v}) list->assign(k.size(), 99);
    for (std::vector<double>* list : {&grad_prefix_k, &grad_prefix_v}) list->assign(prefix_k.size(), 99);
    lse.assign(static_cast<size_t>(kRows), 99);
    terms.assign(static_cast<size_t>(2 * kRows), 99);
  }
  AttentionGradientArgs args() {
    const auto tensor = [](std::vector<double>& data, int64_t tokens, int64_t heads, int64_t size) {
      return SampleTensor{data.data(), 0, tokens * heads * size, heads * size, size};
    };
    const auto of_queries = [&](std::vector<double>& data) { return tensor(data, kQueries, kHeads * kGroup, kHead); };
    const auto of_keys = [&](std::vector<double>& data) { return tensor(data, kKeys, kHeads, kHead); };
    const auto of_prefix = [&](std::vector<double>& data) { return tensor(data, 0, kHeads, kHead); };
    AttentionGradientArgs args{};
    args.q = of_queries(q), args.out = of_queries(out), args.grad_out = of_queries(grad_out);
    args.grad_q = of_queries(grad_q);
    args.lse = tensor(lse, kQueries, kHeads * kGroup, 1);
    args.k = of_keys(k), args.v = of_keys(v), args.grad_k = of_keys(grad_k), args.grad_v = of_keys(grad_v);
    args.prefix_k = of_prefix(prefix_k), args.prefix_v = of_prefix(prefix_v);
    args.grad_prefix_k = of_prefix(grad_prefix_k), args.grad_prefix_v = of_prefix(grad_prefix_v);
    args.terms = terms.data();
    args.batches = 1, args.samples = kSamples;
    args.queries = kQueries, args.keys = kKeys, args.prefix_keys = kPrefix;
    args.window_left = args.window_right = -1;
    args.q_heads = kHeads * kGroup, args.kv_heads = kHeads, args.group = kGroup;
    args.head_size = kHead;
    args.key_columns = 40;
    args.scale = 0.25;
    return args;
  }

  // The blocks of a launch, `at_once` to a grid.
  template <class Args>
  static void run(void (*kernel)(Args), int64_t blocks, int threads, int64_t shared, Args args, int64_t at_once) {
    for (int64_t first = 0; first < blocks; first += at_once) {
      args.first_block = first;
      const auto grid = static_cast<unsigned>(std::min(at_once, blocks - first));
      rlk::emulation::run_grid({grid, 1, 1}, {static_cast<unsigned>(threads), 1, 1}, static_cast<size_t>(shared),
                               [=] { kernel(args); });
    }
  }
  // parts: that the prefix's tiles share the rows out to.
  void run(int64_t at_once, int64_t parts = 1) {
    clear();
    AttentionGradientArgs all = args();
    const auto tiles = [](int64_t count, int64_t tile) { return (count + tile - 1) / tile; };
    const SampleAttentionArgs& forward = all;
    run(&prefix_attention_f64, kHeads * tiles(kSamples * kQueries * kGroup, kSimtBlockRows), kSimtWaves * kWave,
        attention_simt_shared_bytes(kWave, kHead, all.key_columns, 8), forward, at_once);
    const int64_t columns = tiles(kHead, gradient_columns(8)), tile = gradient_tile(8);
    run(&attention_gradients_terms_f64, 2, kGradientThreads, 0, all, 2);
    run(&attention_gradients_rows_f64, kSamples * kHeads * tiles(kQueries * kGroup, tile) * columns, kGradientThreads,
        0, all, at_once);
    run(&attention_gradients_keys_f64, kSamples * kHeads * tiles(kKeys, tile) * columns, kGradientThreads, 0, all,
        at_once);
    all.of_prefix = 1;
    all.parts = parts;
    all.part_rows = tiles(tiles(kSamples * kQueries * kGroup, tile), parts) * tile;
    part_sums.assign(static_cast<size_t>(parts * kHeads * 2 * kPrefix * kHead), 99);
    all.part_sums = part_sums.data();
    run(&attention_gradients_keys_f64, kHeads * parts * tiles(kPrefix, tile) * columns, kGradientThreads, 0, all,
        at_once);
    if (parts > 1) run(&attention_gradients_prefix_f64, 3, kGradientThreads, 0, all, 3);
  }
};

TEST(AttentionGradientsTest, PartsOfAGridAreThatOfOneGrid) {
  Group whole, parts;
  whole.run(1000);
  parts.run(3);
  EXPECT_TRUE(same_bits(whole.out, parts.out));
  EXPECT_TRUE(same_bits(whole.lse, parts.lse));
  EXPECT_TRUE(same_bits(whole.grad_q, parts.grad_q));
  EXPECT_TRUE(same_bits(whole.grad_k, parts.grad_k));
  EXPECT_TRUE(same_bits(whole.grad_v, parts.grad_v));
  EXPECT_TRUE(same_bits(whole.grad_prefix_k, parts.grad_prefix_k));
  EXPECT_TRUE(same_bits(whole.grad_prefix_v, parts.grad_prefix_v));

  // The first number of an output, by its formula.
  double sum = 0, first = 0;
  for (int64_t j = 0; j < kPrefix + kKeys; ++j) {
    const std::vector<double>&k = j < kPrefix ? whole.prefix_k : whole.k, &v = j < kPrefix ? whole.prefix_v : whole.v;
    const auto at = static_cast<size_t>((j < kPrefix ? j : j - kPrefix) * kHeads * kHead);
    double score = 0;
    for (size_t d = 0; d < static_cast<size_t>(kHead); ++d) score += whole.q[d] * k[at + d];
    sum += std::exp(0.25 * score);
    first += std::exp(0.25 * score) * v[at];
  }
  EXPECT_NEAR(whole.out[0], first / sum, 1e-12);
  EXPECT_NEAR(whole.lse[0], std::log(sum), 1e-12);
}

// The rows of several samples fill a tile, and those of a part begin and end within samples.
TEST(AttentionGradientsTest, ThePartsOfAPrefixAddUp) {
  Group whole, parts, cut;
  whole.run(1000);
  parts.run(1000, 4);
  cut.run(3, 4);
  EXPECT_TRUE(same_bits(parts.grad_prefix_k, cut.grad_prefix_k));
  EXPECT_TRUE(same_bits(parts.grad_prefix_v, cut.grad_prefix_v));
  EXPECT_TRUE(same_bits(whole.grad_q, parts.grad_q));
  for (size_t i = 0; i < whole.grad_prefix_k.size(); ++i) {
    ASSERT_NEAR(whole.grad_prefix_k[i], parts.grad_prefix_k[i], 1e-12) << i;
    ASSERT_NEAR(whole.grad_prefix_v[i], parts.grad_prefix_v[i], 1e-12) << i;
  }
  // The first number of the last key's value, by its formula: over all rows of the first key head.
  const size_t key = static_cast<size_t>((kPrefix - 1) * kHeads * kHead);
  double sum = 0;
  for (int64_t token = 0; token < kSamples * kQueries; ++token) {
    for (int64_t head = 0; head < kGroup; ++head) {
      const auto row = static_cast<size_t>(token * kHeads * kGroup + head);
      double score = 0;
      for (size_t d = 0; d < static_cast<size_t>(kHead); ++d)
        score += whole.q[row * kHead + d] * whole.prefix_k[key + d];
      sum += std::exp(0.25 * score - whole.lse[row]) * whole.grad_out[row * kHead];
    }
  }
  EXPECT_NEAR(parts.grad_prefix_v[key], sum, 1e-12);
}

// What a sample's values are does not reach another's output, even where both have rows in one block.
TEST(AttentionGradientsTest, ANanInASamplesOwnKeysStaysInThatSample) {
  Group group, clean;
  clean.run(1000);
  group.v[static_cast<size_t>(kKeys * kHeads * kHead)] = NAN;  // of the second sample
  group.run(1000);
  const auto of_sample = static_cast<size_t>(kQueries * kHeads * kGroup * kHead);
  for (size_t i = 0; i < group.out.size(); ++i) {
    if (i / of_sample == 1) continue;
    ASSERT_EQ(std::memcmp(&group.out[i], &clean.out[i], sizeof(double)), 0) << i;
    ASSERT_EQ(std::memcmp(&group.grad_q[i], &clean.grad_q[i], sizeof(double)), 0) << i;
  }
  EXPECT_TRUE(std::isnan(group.out[of_sample]));
  EXPECT_TRUE(std::isnan(group.grad_q[of_sample]));
}

}  // namespace
