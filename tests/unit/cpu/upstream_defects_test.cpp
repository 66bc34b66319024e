// Defects that were read in upstream kernels of log-probabilities, as tests of ours; and the two conflicts that are
// about logp: ids out of range, and the dtype of the output. plugin_api/ops/README.md lists them all.
#include <rlk/sdk/ops/logp.hpp>
#include <rlk/sdk/ops/logp_backward.hpp>

#include <sys/mman.h>
#include <rlk/sdk/forward.hpp>

#include <cmath>
#include <cstdint>
#include <limits>

#include "core/cpu/logp/logp.hpp"
#include "core/cpu/logp/logp_backward.hpp"
#include "core/cpu/tbb_parallel.hpp"
#include "unit/cpu/linear_case.hpp"
#include "unit/cpu/logp_case.hpp"

namespace rlk::test {
namespace {

// RL-Kernel's online kernel computes exp(-inf - (-inf)) where the first two logits that a thread visits are -inf.
TEST(UpstreamDefects, LogitsThatStartWithMinusInfinityGiveNoNan) {
  constexpr int64_t kVocab = 9000;
  for_each_target([] {
    for (const Dtype dtype : kFloatDtypes) {
      // The first two, those of every lane and of every unrolled group, a whole block, all but one.
      for (const int64_t first : {2, 16, 32, 256, 512, 4096, 4160, 8999}) {
        LogpCase c = make_logp_case(dtype, 1, kVocab, 7);
        c.logits.fill([&](int64_t v) { return v < first ? -kInfinity : 1.5; });
        c.ids.set_int(0, kVocab - 1);
        const LogpOutputs got = run_logp(c, cpu::serial_parallel());
        const double log_rest = std::log(static_cast<double>(kVocab - first));
        EXPECT_NEAR(got.logp.get(0), -log_rest, 1e-5) << first;
        EXPECT_NEAR(got.lse.get(0), 1.5 + log_rest, 1e-5) << first;
        EXPECT_NEAR(got.entropy.get(0), log_rest, 2e-5) << first;
        const auto expected = golden_logp(c);
        EXPECT_TRUE(matches(got.logp, expected.logp, dtype));
        EXPECT_TRUE(matches(got.entropy, expected.entropy, dtype));
        EXPECT_EQ(got.error.kind, cpu::kNoDataError);
      }
      // -inf at every place but one of each block of 128: what one thread of a group would see.
      LogpCase c = make_logp_case(dtype, 1, kVocab, 7);
      c.logits.fill([](int64_t v) { return v % 128 == 77 ? 0.0 : -kInfinity; });
      c.ids.set_int(0, 77);
      EXPECT_NEAR(run_logp(c, cpu::serial_parallel()).logp.get(0), -std::log(70.0), 2e-6);
    }
  });
}

// RL-Kernel starts its maximum at -1e20: the sum of a row below it is 0, and its logarithm -inf.
TEST(UpstreamDefects, RowsBelowMinus1e20HaveTheirOwnMaximum) {
  for_each_target([] {
    for (const Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::f64}) {
      for (const double level : {-1.0000001e20, -3e20, -1e30}) {
        LogpCase c = make_logp_case(dtype, 2, 1000, 8);
        c.logits.fill([&](int64_t i) { return i < 1000 || i == 1003 ? level : 3 * level; });
        c.ids.set_int(0, 5).set_int(1, 3);
        const LogpOutputs got = run_logp(c, cpu::serial_parallel());
        EXPECT_NEAR(got.logp.get(0), -std::log(1000.0), 2e-6) << level;  // all tokens are equal
        EXPECT_NEAR(got.entropy.get(0), std::log(1000.0), 2e-6) << level;
        EXPECT_EQ(got.logp.get(1), 0.0) << level;  // one token has all of the probability
        EXPECT_EQ(got.entropy.get(1), 0.0) << level;
        EXPECT_NEAR(got.lse.get(1) / c.logits.get(1003), 1, 1e-7) << level;
        const auto expected = golden_logp(c);
        EXPECT_NEAR(expected.logp.value[0], -std::log(1000.0), 1e-14) << level;
        EXPECT_EQ(expected.logp.value[1], 0.0) << level;
      }
    }
  });
}

TEST(UpstreamDefects, LinearScoresBelowMinus1e20HaveTheirOwnMaximum) {
  for (const bool equal : {true, false}) {
    LinearCase c = make_linear_case(Dtype::f32, 1, 300, 4, 8);
    c.hidden.fill([](int64_t) { return 1e10; });
    c.weight.fill([equal](int64_t i) { return equal || i / 4 == 200 ? -1e12 : -4e12; });  // -4e22 and -1.6e23
    c.ids.set_int(0, 200);
    const LinearOutputs got = run_linear(c, cpu::serial_parallel());
    EXPECT_NEAR(got.logp.get(0), equal ? -std::log(300.0) : 0, 2e-6);
    EXPECT_NEAR(got.entropy.get(0), equal ? std::log(300.0) : 0, 2e-6);
    EXPECT_NEAR(got.lse.get(0) / -4e22, 1, 1e-6);
    const auto expected = golden_linear(c);
    EXPECT_NEAR(expected.logp.value[0], equal ? -std::log(300.0) : 0, 1e-14);
  }
}

// Conflict 3. RL-Kernel: its CUDA kernel gives 0, its Triton kernels clamp, its PyTorch operator raises. Here an active
// id out of range is a data error, and ignore_index is the way to a 0.
TEST(UpstreamDefects, AnIdOutOfRangeIsADataErrorAndNeverANumber) {
  for (const Dtype ids : {Dtype::i64, Dtype::i32}) {
    for (const int64_t id : {int64_t{-1}, int64_t{40}, int64_t{-101}, int64_t{1} << 30}) {
      LogpCase c = make_logp_case(Dtype::f32, 3, 40, 9);
      c.ids = Tensor(ids, {3}).fill([](int64_t n) { return static_cast<double>(n); });
      c.ids.set_int(1, id);
      const LogpOutputs got = run_logp(c, cpu::serial_parallel());
      EXPECT_EQ(got.error.kind, cpu::kIdOutOfRange);
      EXPECT_EQ(got.error.row, 1);
      EXPECT_EQ(got.error.value, id);
      EXPECT_TRUE(std::isnan(got.logp.get(1)));
      EXPECT_FALSE(std::isnan(got.logp.get(0)) || std::isnan(got.logp.get(2)));
    }
  }
}

TEST(UpstreamDefects, IgnoreIndexIsTheWayToAZeroAndAnIdOfItsValueIsNotLookedUp) {
  for (const int64_t ignore : {int64_t{-100}, int64_t{-1}, int64_t{7}, std::numeric_limits<int64_t>::max()}) {
    LogpCase c = make_logp_case(Dtype::f32, 3, 40, 9);
    c.params.ignore_index = ignore;
    c.ids.set_int(0, 1).set_int(1, ignore).set_int(2, 3);
    add_gradients(c, false, false, 2);
    const LogpOutputs got = run_logp(c, cpu::serial_parallel());
    EXPECT_EQ(got.error.kind, cpu::kNoDataError);
    EXPECT_EQ(got.logp.get(1), 0.0);
    EXPECT_NE(got.logp.get(0), 0.0);
    const LogpBackwardOutputs gradient = run_logp_backward(c, cpu::serial_parallel());
    EXPECT_EQ(gradient.error.kind, cpu::kNoDataError);
    for (int64_t v = 40; v < 80; ++v) EXPECT_EQ(gradient.grad_logits.get(v), 0.0);
  }
}

// RL-Kernel #161: a device assertion from junk ids at masked positions.
TEST(UpstreamDefects, JunkIdsAtMaskedPositionsAreNotLookedUp) {
  for (const int64_t junk : {std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max(), int64_t{-1}}) {
    LogpCase c = make_logp_case(Dtype::bf16, 4, 33, 10);
    c.mask = Tensor(Dtype::u8, {4}).fill([](int64_t n) { return n % 2 == 0 ? 1 : 0; });
    c.ids.set_int(1, junk).set_int(3, junk);
    for (int64_t v = 0; v < 33; ++v) c.logits.set(33 + v, kNan);
    add_gradients(c, false, false, 2);
    const LogpOutputs got = run_logp(c, cpu::serial_parallel());
    const LogpBackwardOutputs gradient = run_logp_backward(c, cpu::serial_parallel());
    EXPECT_EQ(got.error.kind, cpu::kNoDataError);
    EXPECT_EQ(gradient.error.kind, cpu::kNoDataError);
    for (const int64_t n : {1, 3}) {
      EXPECT_EQ(got.logp.get(n), 0.0);
      for (int64_t v = 0; v < 33; ++v) EXPECT_EQ(gradient.grad_logits.get(n * 33 + v), 0.0);
    }
  }
}

// Conflict 10: the accumulator's dtype is the default, that of the logits a choice; the one is the other, rounded.
TEST(UpstreamDefects, LogpIsInTheAccumulatorsDtypeOrInThatOfTheLogits) {
  for (const Dtype dtype : {Dtype::bf16, Dtype::f16}) {
    LogpCase wide = make_logp_case(dtype, 16, 500, 11), narrow = wide;
    narrow.narrow_logp = true;
    const LogpOutputs of_wide = run_logp(wide, cpu::serial_parallel());
    const LogpOutputs of_narrow = run_logp(narrow, cpu::serial_parallel());
    ASSERT_EQ(of_wide.logp.dtype(), Dtype::f32);
    ASSERT_EQ(of_narrow.logp.dtype(), dtype);
    int digits_lost = 0;
    for (int64_t n = 0; n < 16; ++n) {
      EXPECT_EQ(of_narrow.logp.get(n), Tensor(dtype, {1}).set(0, of_wide.logp.get(n)).get(0)) << n;
      digits_lost += of_narrow.logp.get(n) != of_wide.logp.get(n) ? 1 : 0;
    }
    EXPECT_GT(digits_lost, 0);
    EXPECT_EQ(of_narrow.lse.bytes(), of_wide.lse.bytes());  // always the accumulator's
  }
}

// RL-Kernel #81: the temperature applied twice. Logits 0 and 2 at temperature 2 differ by 1.
TEST(UpstreamDefects, TheTemperatureDividesLogitsOnceForwardAndBackward) {
  LogpCase c = make_logp_case(Dtype::f64, 1, 2, 12);
  c.logits.set(0, 0.0).set(1, 2.0);
  c.ids.set_int(0, 0);
  c.params.temperature = 2;
  EXPECT_NEAR(run_logp(c, cpu::serial_parallel()).logp.get(0), -std::log1p(std::exp(1.0)), 1e-15);
  add_gradients(c, false, false, 3);
  c.grad_logp.set(0, 1.0);
  const double p = 1 / (1 + std::exp(1.0));
  EXPECT_NEAR(run_logp_backward(c, cpu::serial_parallel()).grad_logits.get(0), (1 - p) / 2, 1e-15);
}

// RL-Kernel's SM90 kernel and its prefix-shared attention compute offsets in 32 bits. Rows 2^31 elements apart, in
// memory that is mapped but hardly touched.
TEST(UpstreamDefects, RowsBeyond32BitOffsetsAreRight) {
  constexpr int64_t kStride = (int64_t{1} << 31) + 64, kRows = 3, kVocab = 40;
  constexpr size_t kBytes = sizeof(float) * static_cast<size_t>(kStride * kRows);
  void* const memory =
      mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) GTEST_SKIP() << "the address space of this process is limited";
  LogpCase near = make_logp_case(Dtype::f32, kRows, kVocab, 13);
  add_gradients(near, false, false, 4);
  const LogpOutputs want = run_logp(near, cpu::serial_parallel());
  const LogpBackwardOutputs want_gradient = run_logp_backward(near, cpu::serial_parallel());
  auto* const far = static_cast<float*>(memory);
  for (int64_t i = 0; i < kRows * kVocab; ++i) {
    far[i / kVocab * kStride + i % kVocab] = static_cast<float>(near.logits.get(i));
  }
  cpu::Array logits = cpu::Array::vector(far, Dtype::f32, kStride);
  logits.strides[1] = 1;
  float logp[kRows], lse[kRows];
  std::vector<double> workspace(static_cast<size_t>(cpu::logp_workspace_bytes(kRows, kVocab) / 8 + 1));
  cpu::CallOf<ops::Logp> forward;
  forward.logits = logits;
  forward.ids = array_of(near.ids);
  forward.logp = cpu::Array::vector(logp, Dtype::f32);
  forward.lse = cpu::Array::vector(lse, Dtype::f32);
  forward.N = forward.R = kRows;
  forward.V = kVocab;
  EXPECT_EQ(cpu::logp(forward, {cpu::serial_parallel(), workspace.data()}).kind, cpu::kNoDataError);
  for (int64_t n = 0; n < kRows; ++n) EXPECT_EQ(static_cast<double>(logp[n]), want.logp.get(n)) << n;

  std::vector<double> again(static_cast<size_t>(cpu::logp_backward_workspace_bytes(kRows, false) / 8 + 1));
  auto backward = sdk::backward_of<cpu::CallOf<ops::LogpBackward>>(forward);
  backward.grad_logits = logits;  // in place
  backward.lse = array_of(near.lse);
  backward.grad_logp = array_of(near.grad_logp);
  EXPECT_EQ(cpu::logp_backward(backward, {cpu::serial_parallel(), again.data()}).kind, cpu::kNoDataError);
  for (int64_t i = 0; i < kRows * kVocab; ++i) {
    EXPECT_EQ(static_cast<double>(far[i / kVocab * kStride + i % kVocab]), want_gradient.grad_logits.get(i)) << i;
  }
  munmap(memory, kBytes);
}

}  // namespace
}  // namespace rlk::test
