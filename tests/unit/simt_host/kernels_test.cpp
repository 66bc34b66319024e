// Do the kernels give the same bits however shared memory and the grid cut their work? Built for waves of 32 and of 64.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "plugins/simt/args.h"
#include "plugins/simt/tiling.h"
#include "tests/fakes/cuda/emulation.hpp"

// The kernels, compiled for fibers (tests/fakes/cuda).
extern "C" {
void attention_simt_f64(rlk::simt::AttentionArgs);
#define DECLARE(suffix)                                             \
  void logp_##suffix##_plain_entropy(rlk::simt::LogpArgs);          \
  void logp_finish_##suffix(rlk::simt::LogpArgs);                   \
  void logp_backward_##suffix##_rows(rlk::simt::LogpBackwardArgs);  \
  void logp_backward_##suffix##_plain(rlk::simt::LogpBackwardArgs); \
  void logp_backward_##suffix##_transform_entropy(rlk::simt::LogpBackwardArgs);
DECLARE(f32)
DECLARE(f64)
#undef DECLARE
}

namespace {

using namespace rlk::simt;

constexpr int kWave = rlk::emulation::kWave;

// Blocks first .. first + blocks.
template <class Args>
void run(void (*kernel)(Args), unsigned blocks, int threads, int64_t shared_bytes, Args args, int64_t first = 0) {
  if constexpr (requires { args.first_block; }) args.first_block = first;
  rlk::emulation::run_grid({blocks, 1, 1}, {static_cast<unsigned>(threads), 1, 1}, static_cast<size_t>(shared_bytes),
                           [=] { kernel(args); });
}

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

template <class T>
std::vector<T> noise(size_t n, unsigned seed) {
  std::vector<T> values(n);
  for (T& value : values) {
    seed = seed * 1664525u + 1013904223u;
    value = static_cast<T>(static_cast<double>(seed >> 8) / (1 << 23) - 1);
  }
  return values;
}

// Two batch entries, two key heads of two query heads each, two tiles of keys, the widest head.
struct Attention {
  static constexpr int64_t kBatch = 2, kQueries = 11, kKeys = 70, kHeads = 2, kGroup = 2, kHead = 256;
  std::vector<double> q = noise<double>(kBatch * kQueries * kHeads * kGroup * kHead, 1),
                      k = noise<double>(kBatch * kKeys * kHeads * kHead, 2),
                      v = noise<double>(kBatch * kKeys * kHeads * kHead, 3), out, lse;

  AttentionArgs args() {
    out.assign(q.size(), 99);
    lse.assign(kBatch * kQueries * kHeads * kGroup, 99);
    const auto tensor = [](std::vector<double>& data, int64_t tokens, int64_t heads) {
      return AttentionTensor{data.data(), tokens * heads * kHead, heads * kHead, kHead};
    };
    AttentionArgs args{};
    args.q = tensor(q, kQueries, kHeads * kGroup);
    args.k = tensor(k, kKeys, kHeads);
    args.v = tensor(v, kKeys, kHeads);
    args.out = tensor(out, kQueries, kHeads * kGroup);
    args.lse = lse.data();
    args.sequences = kBatch;
    args.queries = kQueries;
    args.keys = kKeys;
    args.window_left = args.window_right = -1;
    args.q_heads = kHeads * kGroup;
    args.kv_heads = kHeads;
    args.group = kGroup;
    args.head_size = kHead;
    args.block_rows = kSimtBlockRows;
    args.key_columns = kHead;
    args.scale = 0.25;
    return args;
  }
  static constexpr unsigned kBlocks = (kQueries * kGroup + kSimtBlockRows - 1) / kSimtBlockRows * kHeads * kBatch;
  static int64_t shared(int64_t columns) { return attention_simt_shared_bytes(kWave, kHead, columns, 8); }
  static void run_blocks(const AttentionArgs& args, unsigned blocks = kBlocks, int64_t first = 0) {
    run(&attention_simt_f64, blocks, kSimtWaves * kWave, shared(args.key_columns), args, first);
  }
};

TEST(KernelTest, AttentionsBitsDoNotTellHowMuchOfAKeyIsInSharedMemory) {
  Attention attention;
  AttentionArgs args = attention.args();
  Attention::run_blocks(args);
  const std::vector<double> out = attention.out, lse = attention.lse;

  // One output by its formula.
  double top = 0, sum = 0, first = 0;
  for (int64_t j = 0; j < Attention::kKeys; ++j) {
    double score = 0;
    for (int64_t d = 0; d < Attention::kHead; ++d) {
      score += attention.q[static_cast<size_t>(d)] *
               attention.k[static_cast<size_t>(j * Attention::kHeads * Attention::kHead + d)];
    }
    const double weight = std::exp(args.scale * score);
    top = std::max(top, weight);
    sum += weight;
    first += weight * attention.v[static_cast<size_t>(j * Attention::kHeads * Attention::kHead)];
  }
  EXPECT_NEAR(out[0], first / sum, 1e-12);
  EXPECT_NEAR(lse[0], std::log(sum), 1e-12);

  for (const int columns : {56, 8, 100}) {  // the last leaves a shorter last part
    args = attention.args();
    args.key_columns = columns;
    Attention::run_blocks(args);
    EXPECT_TRUE(same_bits(attention.out, out)) << columns;
    EXPECT_TRUE(same_bits(attention.lse, lse)) << columns;
  }
}

TEST(KernelTest, AttentionInPartsOfAGridIsThatOfOneGrid) {
  Attention attention;
  AttentionArgs args = attention.args();
  args.key_columns = 56;
  ASSERT_LE(Attention::shared(56), 65536);
  Attention::run_blocks(args);
  const std::vector<double> out = attention.out, lse = attention.lse;
  args = attention.args();
  args.key_columns = 56;
  for (unsigned block = 0; block < Attention::kBlocks; block += 3) {
    Attention::run_blocks(args, std::min(3u, Attention::kBlocks - block), block);
  }
  EXPECT_TRUE(same_bits(attention.out, out));
  EXPECT_TRUE(same_bits(attention.lse, lse));
}

TEST(KernelTest, LogpsBitsDoNotTellHowManySegmentsABlockTakes) {
  constexpr int64_t kRows = 2, kVocab = 5 * logp_segment_length(4) + 100, kSegments = 6;
  const std::vector<float> logits = noise<float>(kRows * kVocab, 8);
  const std::vector<int64_t> ids = {7, kVocab - 1};
  std::vector<float> first;
  for (int64_t block_segments = 1; block_segments <= kLogpBlockSegments; ++block_segments) {
    std::vector<float> answer(3 * kRows, 99);
    std::vector<LogpPartial> part(kRows * kSegments);
    LogpArgs args{};
    args.logits = logits.data();
    args.row_stride = kVocab;
    args.tokens.ids = ids.data();
    args.tokens.ids_are_i64 = 1;
    args.tokens.rows = args.tokens.logits_rows = kRows;
    args.tokens.ignore_index = -100;
    args.tokens.id_limit = args.tokens.vocab = kVocab;
    args.transform.temperature = 1;
    args.transform.exp2_scale = 1.44269504f;
    args.logp = answer.data();
    args.lse = answer.data() + kRows;
    args.entropy = answer.data() + 2 * kRows;
    args.part = part.data();
    args.segments = kSegments;
    args.block_segments = block_segments;
    args.logp_is_accumulator = 1;
    const int64_t blocks = kRows * ((kSegments + block_segments - 1) / block_segments);
    run(&logp_f32_plain_entropy, static_cast<unsigned>(blocks), kLogpThreads, 0, args);
    run(&logp_finish_f32, 1, kLogpFinishThreads, 0, args);
    if (first.empty()) first = answer;
    EXPECT_TRUE(same_bits(answer, first)) << block_segments;
  }
  double sum = 0;
  for (int64_t c = 0; c < kVocab; ++c) sum += std::exp(logits[static_cast<size_t>(c)]);
  EXPECT_NEAR(first[0], logits[7] - std::log(sum), 1e-4);
  EXPECT_NEAR(first[kRows], std::log(sum), 1e-4);
}

// Row indices, so that a block looks back at the tokens of the blocks before it.
TEST(KernelTest, LogpBackwardInPartsOfAGridIsThatOfOneGrid) {
  constexpr int64_t kRows = 700, kVocab = 2100, kRowsPerChunk = 64;
  const std::vector<float> logits = noise<float>(kRows * kVocab, 5), grad_logp = noise<float>(kRows, 6);
  std::vector<int64_t> ids(kRows), indices(kRows);
  std::vector<float> lse(kRows);
  for (int64_t n = 0; n < kRows; ++n) {
    ids[static_cast<size_t>(n)] = n * 3 % kVocab;
    indices[static_cast<size_t>(n)] = n;
    double sum = 0;
    for (int64_t c = 0; c < kVocab; ++c) sum += std::exp(logits[static_cast<size_t>(n * kVocab + c)]);
    lse[static_cast<size_t>(n)] = static_cast<float>(std::log(sum));
  }
  indices[300] = 12;  // descends: a data error of the second block
  std::vector<LogpBackwardRow> rows(kRows);
  std::vector<int64_t> owners;
  std::vector<float> grad;
  DataErrorRecord record{};
  const auto fresh = [&] {
    owners.assign(backward_owners(kRows), -1);
    grad.assign(logits.size(), 99);
    record = DataErrorRecord{};
    LogpBackwardArgs args{};
    args.logits = logits.data();
    args.row_stride = args.grad_row_stride = kVocab;
    args.tokens.ids = ids.data();
    args.tokens.ids_are_i64 = 1;
    args.tokens.row_indices = indices.data();
    args.tokens.rows = args.tokens.logits_rows = kRows;
    args.tokens.ignore_index = -100;
    args.tokens.id_limit = args.tokens.vocab = kVocab;
    args.transform.temperature = 1;
    args.transform.exp2_scale = 1.44269504f;
    args.lse = lse.data();
    args.grad_logp = grad_logp.data();
    args.grad_logp_is_accumulator = 1;
    args.grad_logits = grad.data();
    args.row = rows.data();
    args.owner = owners.data();
    args.rows_per_chunk = kRowsPerChunk;
    args.chunks = (kRows + kRowsPerChunk - 1) / kRowsPerChunk;
    args.errors.record = &record;
    return args;
  };
  constexpr unsigned kTokenBlocks = (kRows + kBackwardRowsThreads - 1) / kBackwardRowsThreads;
  const auto blocks = static_cast<unsigned>((kVocab + backward_tile(4) - 1) / backward_tile(4) *
                                            ((kRows + kRowsPerChunk - 1) / kRowsPerChunk));
  LogpBackwardArgs whole = fresh();
  run(&logp_backward_f32_rows, kTokenBlocks, kBackwardRowsThreads, 0, whole);
  run(&logp_backward_f32_plain, blocks, kBackwardThreads, 0, whole);
  const std::vector<float> expected = grad;
  EXPECT_EQ(record.row, 300);
  EXPECT_TRUE(std::isnan(expected[12 * kVocab]));
  EXPECT_TRUE(std::isfinite(expected[13 * kVocab]));

  LogpBackwardArgs parts = fresh();
  for (unsigned block = 0; block < kTokenBlocks; ++block) {
    run(&logp_backward_f32_rows, 1, kBackwardRowsThreads, 0, parts, block);
  }
  for (unsigned block = 0; block < blocks; block += 5) {
    run(&logp_backward_f32_plain, std::min(5u, blocks - block), kBackwardThreads, 0, parts, block);
  }
  EXPECT_EQ(record.row, 300);
  EXPECT_TRUE(same_bits(grad, expected));
}

// Which logits rows are NaN and which have an owner, for any order of row_indices. The rule is the declaration's:
// every active row index must be larger than all before it, and the row that a wrong one names is NaN.
void expect_owners(const std::vector<int64_t>& indices, int64_t logits_rows) {
  const auto rows = static_cast<int64_t>(indices.size());
  const std::vector<int64_t> ids(indices.size(), 0);
  const std::vector<float> logits(static_cast<size_t>(logits_rows), 0), lse(indices.size(), 0);
  std::vector<float> grad_lse;  // with p = 1 in the only column, also the gradient of its logit
  std::vector<float> grad(logits.size(), -1), expected(logits.size(), 0);
  int64_t highest = -1;
  for (int64_t n = 0; n < rows; ++n) {
    grad_lse.push_back(static_cast<float>(n + 1));
    const int64_t row = indices[static_cast<size_t>(n)];
    expected[static_cast<size_t>(row)] = row > highest ? static_cast<float>(n + 1) : NAN;
    highest = std::max(highest, row);
  }
  std::vector<LogpBackwardRow> scalars(indices.size());
  std::vector<int64_t> owners(static_cast<size_t>(backward_owners(logits_rows)), -1);
  DataErrorRecord record{};
  LogpBackwardArgs args{};
  args.logits = logits.data();
  args.row_stride = args.grad_row_stride = 1;
  args.tokens.ids = ids.data();
  args.tokens.ids_are_i64 = 1;
  args.tokens.row_indices = indices.data();
  args.tokens.rows = rows;
  args.tokens.logits_rows = logits_rows;
  args.tokens.ignore_index = -100;
  args.tokens.id_limit = args.tokens.vocab = 1;
  args.transform.temperature = 1;
  args.transform.exp2_scale = 1.44269504f;
  args.lse = lse.data();
  args.grad_logp = args.grad_lse = grad_lse.data();
  args.grad_logp_is_accumulator = 1;
  args.grad_logits = grad.data();
  args.row = scalars.data();
  args.owner = owners.data();
  args.rows_per_chunk = logits_rows;
  args.chunks = 1;
  args.errors.record = &record;
  const auto blocks = static_cast<unsigned>((rows + kBackwardRowsThreads - 1) / kBackwardRowsThreads);
  // The last blocks first, and one by one: nothing may depend on the order of blocks.
  for (unsigned block = blocks; block-- > 0;) run(&logp_backward_f32_rows, 1, kBackwardRowsThreads, 0, args, block);
  run(&logp_backward_f32_plain, 1, kBackwardThreads, 0, args);
  const bool is_ordered = std::none_of(expected.begin(), expected.end(), [](float x) { return std::isnan(x); });
  EXPECT_EQ(record.state == 0, is_ordered);
  for (size_t r = 0; r < grad.size(); ++r) {
    if (std::isnan(expected[r]))
      EXPECT_TRUE(std::isnan(grad[r])) << "row " << r << ": " << grad[r];
    else
      EXPECT_EQ(grad[r], expected[r]) << "row " << r;
  }
}

TEST(KernelTest, ARowIndexThatIsOutOfOrderMakesItsRowNanWhereverItStands) {
  std::vector<int64_t> ordered(700);
  for (size_t n = 0; n < ordered.size(); ++n) ordered[n] = static_cast<int64_t>(n);
  expect_owners(ordered, 700);
  // The last index before a block is lower than one before it: rows named before, and rows that no index has named.
  for (const int64_t skipped : {5000, 100}) {
    std::vector<int64_t> indices;
    for (int64_t row = 0; indices.size() < 255; ++row) {
      if (row != skipped) indices.push_back(row);
    }
    for (const int64_t row : {5, 100, 300, 299, 301}) indices.push_back(row);
    while (indices.size() < 700) indices.push_back(static_cast<int64_t>(indices.size()) + 100);
    expect_owners(indices, 900);
  }
  // A few places of a long list, in other orders.
  unsigned seed = 3;
  const auto random = [&](size_t below) { return (seed = seed * 1664525u + 1013904223u) / 65536 % below; };
  for (int round = 0; round < 5; ++round) {
    std::vector<int64_t> indices = ordered;
    for (int change = 0; change < 4; ++change) std::swap(indices[random(700)], indices[random(700)]);
    indices[random(700)] = indices[random(700)];
    expect_owners(indices, 700);
  }
}

// One row of three logits through the kernels of logp and of its backward, in a plain and a transformed (capped) form.
template <class T>
struct OneRow {
  std::vector<T> logits;
  int64_t id = 0;
  double temperature = 1;
  T logp{}, lse{}, entropy{};

  void arrange(TokenRows& tokens, LogitTransform& transform) const {
    tokens.ids = &id;
    tokens.ids_are_i64 = 1;
    tokens.rows = tokens.logits_rows = 1;
    tokens.ignore_index = -100;
    tokens.id_limit = tokens.vocab = static_cast<int64_t>(logits.size());
    transform.temperature = temperature;
    transform.exp2_scale = static_cast<float>(1.4426950408889634 / temperature);
  }
  template <class Args>
  static auto* kernel(void (*of_f32)(Args), void (*of_f64)(Args)) {
    return sizeof(T) == 4 ? of_f32 : of_f64;
  }
  void forward() {
    LogpPartial part{};
    DataErrorRecord record{};
    LogpArgs args{};
    args.logits = logits.data();
    args.row_stride = static_cast<int64_t>(logits.size());
    arrange(args.tokens, args.transform);
    args.logp = &logp;
    args.lse = &lse;
    args.entropy = &entropy;
    args.part = &part;
    args.segments = args.block_segments = 1;
    args.logp_is_accumulator = 1;
    args.errors.record = &record;
    run(kernel(&logp_f32_plain_entropy, &logp_f64_plain_entropy), 1, kLogpThreads, 0, args);
    run(kernel(&logp_finish_f32, &logp_finish_f64), 1, kLogpFinishThreads, 0, args);
  }
  // Of a gradient of 1 for logp.
  std::vector<T> gradient(bool transformed) {
    const T one = 1;
    std::vector<T> grad(logits.size(), T{99});
    LogpBackwardRow row{};
    DataErrorRecord record{};
    LogpBackwardArgs args{};
    args.logits = logits.data();
    args.row_stride = args.grad_row_stride = static_cast<int64_t>(logits.size());
    arrange(args.tokens, args.transform);
    args.lse = &lse;
    args.grad_logp = &one;
    args.grad_logp_is_accumulator = 1;
    args.grad_logits = grad.data();
    args.row = &row;
    args.rows_per_chunk = args.chunks = 1;
    args.errors.record = &record;
    run(kernel(&logp_backward_f32_rows, &logp_backward_f64_rows), 1, kBackwardRowsThreads, 0, args);
    run(transformed ? kernel(&logp_backward_f32_transform_entropy, &logp_backward_f64_transform_entropy)
                    : kernel(&logp_backward_f32_plain, &logp_backward_f64_plain),
        1, kBackwardThreads, 0, args);
    return grad;
  }
};

template <class T>
void expect_large_logits_right(const std::vector<double>& magnitudes) {
  for (const double m : magnitudes) {
    for (const double temperature : {1.0, 1e-3}) {
      OneRow<T> certain{{static_cast<T>(m), T{0}, T{0}}, 0, temperature};
      certain.forward();
      EXPECT_LE(certain.logp, 0) << m;
      EXPECT_GE(certain.logp, -1e-6) << m;
      EXPECT_GE(certain.entropy, 0) << m;
      EXPECT_LE(certain.entropy, 1e-6) << m;
      if (temperature != 1) continue;  // lse is rounded
      certain.id = 1;
      for (const bool transformed : {false, true}) {
        const std::vector<T> gradient = certain.gradient(transformed);
        EXPECT_NEAR(gradient[0], -1, 1e-6) << m << transformed;
        EXPECT_NEAR(gradient[1], 1, 1e-6) << m << transformed;
        EXPECT_NEAR(gradient[2], 0, 1e-6) << m << transformed;
      }
    }
  }
}

TEST(KernelTest, LogpAndItsBackwardOfCertainTokensAreRightHoweverLargeTheLogits) {
  expect_large_logits_right<float>({20, 60, 6e4, 1e6, 1e10, 3e38});
  expect_large_logits_right<double>({20, 60, 6e4, 1e10, 1e30, 1e300});
}

}  // namespace
