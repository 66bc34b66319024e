// The same seed draws the same tokens: over batch size, position, thread count and instruction set, each on its own,
// for ids, status, success and keep_mask. Expected is what golden says of the whole batch.
#include <rlk/sdk/ops/sample.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "core/cpu/sampling/sample_block.hpp"
#include "unit/cpu/sample_case.hpp"

namespace rlk::cpu {  // of sample_emulated.cpp
void emulated_sample_load(const void* logits, Dtype dtype, int64_t stride, int64_t count, float* x);
SampleTop emulated_sample_top(const float* x, int64_t padded, float* largest);
SampleSums emulated_sample_weights(const float* x, int64_t padded, float max, float temperature, uint64_t least,
                                   uint64_t* w, uint16_t* bins);
uint64_t emulated_sample_kept_sum(const float* x, const uint64_t* w, int64_t count, float score, bool or_equal,
                                  uint64_t least);
void emulated_sample_kept(const float* x, const uint64_t* w, int64_t count, float score, bool or_equal, uint64_t least,
                          uint8_t* keep);
}  // namespace rlk::cpu

namespace rlk::test {
namespace {

constexpr int64_t kLongRows = 13, kLongVocab = 35001;  // more than one task's share of a row
// Rows of every kind: filters alone and together, none, greedy, many ties, without a distribution.
SampleCase batch(Dtype dtype) {
  SampleCase c = random_rows(dtype, kLongRows, kLongVocab, 8);
  c.params.seed = 1234;
  c.params.step = 17;
  const std::vector<double> temperature = {1, 0.7, 1.3, 0, 1, 1, 2, 0.5, 1, 1, 1, 0.9, 1};
  const std::vector<double> top_k = {0, 50, 0, 0, 40000, 0, 9, 1000, 0, 20000, 1, 0, 0};
  const std::vector<double> top_p = {1, 1, 0.9, 1, 0.999, 1, 0.5, 0.8, 1, 0.4, 1, 0.0, 0.97};
  const std::vector<double> min_p = {0, 0, 0, 0, 0.01, 0.002, 0, 0, 0, 0, 0, 0, 1e-6};
  const auto row = [&](const std::vector<double>& list) {
    return [&list](int64_t n) { return list[static_cast<size_t>(n)]; };
  };
  c.per_row(c.temperatures, Dtype::f32, row(temperature));
  c.per_row(c.top_ks, Dtype::i64, row(top_k));
  c.per_row(c.top_ps, Dtype::f32, row(top_p));
  c.per_row(c.min_ps, Dtype::f32, row(min_p));
  Tensor& logits = c.logits;
  for (int64_t v = 0; v < kLongVocab; ++v) {
    logits.set(8 * kLongVocab + v, v == 34999 ? kNan : 0);
    logits.set(9 * kLongVocab + v, static_cast<double>(v % 3));
    if (v == 20000 || v == 34000) logits.set(3 * kLongVocab + v, 50);  // the greedy row's
    if (v % 1000 != 999) logits.set(12 * kLongVocab + v, -kInfinity);
  }
  return c;
}

// Its rows of these numbers, in this order.
SampleCase some_rows(const SampleCase& whole, const std::vector<int64_t>& which) {
  SampleCase part;
  part.params = whole.params;
  std::vector<const Tensor*> given;
  SampleCase::each_input(whole, [&given](const Tensor& input) { given.push_back(&input); });
  size_t i = 0;
  SampleCase::each_input(part, [&](Tensor& to) {
    const Tensor& from = *given[i++];
    if (!from.present()) return;
    std::vector<int64_t> shape = from.shape();
    const int64_t width = from.size() / shape[0];
    shape[0] = static_cast<int64_t>(which.size());
    to = Tensor(from.dtype(), shape);
    for (int64_t k = 0; k < to.size(); ++k) {
      const int64_t source = which[static_cast<size_t>(k / width)] * width + k % width;
      if (from.dtype() == Dtype::i64) {
        to.set_int(k, from.get_int(source));
      } else {
        to.set(k, from.get(source));
      }
    }
  });
  return part;
}

class SampleReproducible : public ::testing::Test {
protected:
  void expect_same(const std::vector<int64_t>& which, const cpu::ParallelFor& hook) {
    const SampleCase part = which.empty() ? whole_ : some_rows(whole_, which);
    const SampleOutputs got = run_sample(part, hook);
    const auto expect_rows = [&](const char* name, const Tensor& output, const golden::Output& expected) {
      const std::vector<double>& wanted = expected.value;
      const auto width = static_cast<int64_t>(wanted.size()) / kLongRows;
      int64_t different = 0;
      for (int64_t k = 0; k < output.size(); ++k) {
        const int64_t row = which.empty() ? k / width : which[static_cast<size_t>(k / width)];
        different += output.get(k) != wanted[static_cast<size_t>(row * width + k % width)] ? 1 : 0;
      }
      EXPECT_EQ(different, 0) << name << ", " << part.rows() << " rows, " << hook.threads << " threads";
    };
    expect_rows("ids", got.ids, expected_.ids);
    expect_rows("status", got.status, expected_.status);
    expect_rows("success", got.success, expected_.success);
    expect_rows("keep_mask", got.keep_mask, expected_.keep_mask);
  }
  void expect_same(const cpu::ParallelFor& hook) { expect_same({}, hook); }

  SampleCase whole_ = batch(Dtype::bf16);
  GoldenResult<ops::Sample> expected_ = golden_answer(whole_);
};

std::vector<int64_t> range(int64_t first, int64_t count) {
  std::vector<int64_t> list(static_cast<size_t>(count));
  std::iota(list.begin(), list.end(), first);
  return list;
}

TEST_F(SampleReproducible, OverBatchSize) {
  for (int64_t rows = 1; rows <= kLongRows; ++rows) {
    for (const cpu::ParallelFor& hook : {cpu::serial_parallel(), threads_parallel(3)}) {
      expect_same(range(0, rows), hook);
      expect_same(range(kLongRows - rows, rows), hook);
    }
  }
}

TEST_F(SampleReproducible, OverPosition) {
  std::vector<int64_t> order = range(0, kLongRows);
  for (int64_t turn = 0; turn < kLongRows; ++turn) {
    std::rotate(order.begin(), order.begin() + 1, order.end());
    expect_same(order, threads_parallel(2));
  }
  expect_same({12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0}, cpu::serial_parallel());
  expect_same({5, 5, 5}, cpu::serial_parallel());  // one request beside itself
}

TEST_F(SampleReproducible, OverThreadCount) {
  expect_same(cpu::serial_parallel());
  expect_same(cpu::tbb_parallel());
  expect_same(backwards_parallel());
  for (int64_t threads = 1; threads <= 8; ++threads) {
    expect_same(threads_parallel(threads));
    for (int64_t n = 0; n < kLongRows; ++n) expect_same({n}, threads_parallel(threads));
  }
}

TEST_F(SampleReproducible, OverInstructionSet) {
  int sets = 0;
  for_each_target([&] {
    ++sets;
    expect_same(cpu::serial_parallel());
    expect_same({7}, cpu::serial_parallel());
    expect_same({4, 2}, threads_parallel(4));
  });
  EXPECT_GE(sets, 1);
}

// Where the parts of a row lie, in every tensor that has tokens.
TEST(CpuSample, MatchesGoldenForLongRowsOfEveryStride) {
  for (const Strides strides : {Strides::contiguous, Strides::gaps, Strides::reversed}) {
    SampleCase c = random_rows(Dtype::f16, 2, kLongVocab, 31, strides);
    c.params.top_p = 0.97;
    c.params.repetition_penalty = 1.2;
    c.params.frequency_penalty = 0.3;
    c.per_token(c.prompt_mask, Dtype::u8, {0, 0, 1, 0, 1, 0, 0});
    c.per_token(c.output_counts, Dtype::i32, {0, 3, 0, 0, 1});
    c.per_token(c.allowed, Dtype::u8, {1, 1, 0});
    expect_golden(c);
  }
}

// Every dtype, lengths around a vector and the padding; the baseline of other compilers is none of this machine's
// targets.
TEST(CpuSample, EmulatedVectorsHaveTheSameBits) {
  for (const Dtype dtype : kFloatDtypes) {
    for (const int64_t count : {1, 3, 4, 63, 64, 65, 1000, 5001}) {
      SCOPED_TRACE(name(dtype) + " " + std::to_string(count));
      const int64_t padded = (count + cpu::kSampleLanes - 1) / cpu::kSampleLanes * cpu::kSampleLanes;
      Tensor logits = random_tensor(dtype, {count}, 6.0, 3, Strides::reversed);
      if (count > 60) logits.set(60, -kInfinity);
      std::vector<float> x(static_cast<size_t>(padded)), y(x);
      cpu::sample_load(logits.data(), dtype, logits.stride(0), count, x.data());
      cpu::emulated_sample_load(logits.data(), dtype, logits.stride(0), count, y.data());
      EXPECT_EQ(x, y);
      std::vector<float> largest(static_cast<size_t>(padded / cpu::kSampleLanes)), others = largest;
      const cpu::SampleTop top = cpu::sample_top(x.data(), padded, largest.data());
      const cpu::SampleTop other = cpu::emulated_sample_top(y.data(), padded, others.data());
      EXPECT_EQ(top.max, other.max);
      EXPECT_EQ(largest, others);
      for (size_t group = 0; group < largest.size(); ++group) {
        const auto begin = x.begin() + static_cast<int64_t>(group) * cpu::kSampleLanes;
        EXPECT_EQ(largest[group], *std::max_element(begin, begin + cpu::kSampleLanes));
      }
      EXPECT_FALSE(top.strange || other.strange);
      for (const float temperature : {1.0f, 0.37f, 1e6f, 1e-5f}) {
        std::vector<uint64_t> w(x.size()), v(x.size());
        std::vector<uint16_t> bins(x.size()), other_bins(x.size());
        constexpr uint64_t kLeast = uint64_t{1} << 33;
        const cpu::SampleSums a =
            cpu::sample_weights(x.data(), padded, top.max, temperature, kLeast, w.data(), bins.data());
        const cpu::SampleSums b =
            cpu::emulated_sample_weights(y.data(), padded, top.max, temperature, kLeast, v.data(), other_bins.data());
        EXPECT_EQ(a.all, b.all);
        EXPECT_EQ(a.heavy, b.heavy);
        EXPECT_EQ(w, v);
        EXPECT_EQ(bins, other_bins);
        for (const bool or_equal : {false, true}) {
          EXPECT_EQ(cpu::sample_kept_sum(x.data(), w.data(), count, x[0], or_equal, kLeast),
                    cpu::emulated_sample_kept_sum(x.data(), w.data(), count, x[0], or_equal, kLeast));
          for (const uint64_t least : {uint64_t{0}, kLeast}) {
            std::vector<uint8_t> kept(x.size(), 7), other_kept = kept, right = kept;
            cpu::sample_kept(x.data(), w.data(), count, x[0], or_equal, least, kept.data());
            cpu::emulated_sample_kept(x.data(), w.data(), count, x[0], or_equal, least, other_kept.data());
            for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
              right[i] = (or_equal ? x[i] >= x[0] : x[i] > x[0]) && w[i] >= least ? 1 : 0;
            }
            EXPECT_EQ(kept, right);
            EXPECT_EQ(other_kept, right);
          }
        }
      }
      x[0] = std::numeric_limits<float>::quiet_NaN();
      EXPECT_TRUE(cpu::emulated_sample_top(x.data(), padded, others.data()).strange);
    }
  }
}

}  // namespace
}  // namespace rlk::test
