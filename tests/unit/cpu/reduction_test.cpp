// Reductions and orders of rows where a generated case does not look: ties of zeros, several NaN, places out of range.
#include <rlk/sdk/ops/argmax.hpp>
#include <rlk/sdk/ops/cumsum.hpp>
#include <rlk/sdk/ops/gather.hpp>
#include <rlk/sdk/ops/gather_backward.hpp>
#include <rlk/sdk/ops/mean.hpp>
#include <rlk/sdk/ops/sort.hpp>
#include <rlk/sdk/ops/sum.hpp>
#include <rlk/sdk/ops/top_k.hpp>

#include <cmath>

#include "unit/cpu/token_case.hpp"

namespace rlk::test {
namespace {

TEST(CpuReduction, TheFirstNanIsTheLargestNumberWhereverItIs) {
  List numbers_of_row(700, 1.0);
  numbers_of_row[300] = kNan;
  numbers_of_row[650] = kNan;
  for (const Dtype dtype : {Dtype::f32, Dtype::f64}) {
    CallOf<ops::Argmax> call;
    call.x = numbers(numbers_of_row, {1, 700}, dtype);
    EXPECT_EQ(run(call).index.get(0), 300);
  }
}

TEST(CpuReduction, SortingIsStableAndNanIsLast) {
  CallOf<ops::Sort> sort;
  sort.x = numbers({0.0, -kNan, -0.0, 1, 0.0, kNan}, {1, 6}, Dtype::f32);
  EXPECT_TRUE(std::signbit(sort.x.get(1))) << "as 0 / 0 gives it on x86";
  EXPECT_EQ(list_of(run(sort).index), (List{0, 2, 4, 3, 1, 5}));
  sort.params.descending = ops::sort::Descending::on;
  EXPECT_EQ(list_of(run(sort).index), (List{1, 5, 3, 0, 2, 4}));
  CallOf<ops::TopK> top_k;
  top_k.x = sort.x;
  top_k.params.k = 4;
  EXPECT_EQ(list_of(run(top_k).index), (List{1, 5, 3, 0}));
}

// Few of many are found without an order of the others, and are what the order of all begins with. Rows of all
// different numbers, of few, of NaN of both signs and infinities among them, of NaN alone but for the end, and that
// rise and fall.
TEST(CpuReduction, AFewOfManyAreTheBeginningOfTheWholeOrder) {
  constexpr int64_t kRows = 7, kColumns = 1311;
  for (const Dtype dtype : kFloatDtypes) {
    for (const Strides strides : {Strides::contiguous, Strides::gaps, Strides::reversed}) {
      Tensor x = random_tensor(dtype, {kRows, kColumns}, 3.0, 5, strides);
      for (int64_t i = 0; i < x.size(); ++i) {
        const int64_t n = i / kColumns, d = i % kColumns;
        if (n == 1) x.set(i, d % 3 == 0 ? -0.0 : std::round(x.get(i) / 4));
        if (n == 2 && d % 5 < 2)
          x.set(i, d % 5 == 0 ? (d % 2 == 0 ? kNan : -kNan) : (d % 3 == 0 ? kInfinity : -kInfinity));
        if (n == 3 && d < kColumns - 7) x.set(i, d % 2 == 0 ? kNan : -kNan);
        if (n == 4 || n == 5) x.set(i, n == 4 ? static_cast<double>(d) : static_cast<double>(-d));
        if (n == 6 && (d == 700 || d == 900)) x.set(i, d == 700 ? -kNan : kNan);
      }
      for (const bool descending : {true, false}) {
        CallOf<ops::Sort> sort;
        sort.x = x;
        sort.params.descending = descending ? ops::sort::Descending::on : ops::sort::Descending::off;
        const auto whole = run(sort);
        for (const int64_t k : {1, 5, 50, 160, 170, 1311}) {
          SCOPED_TRACE(name(dtype) + (descending ? " largest " : " smallest ") + std::to_string(k));
          CallOf<ops::TopK> call;
          call.x = x;
          call.params.k = k;
          call.params.largest = descending ? ops::top_k::Largest::on : ops::top_k::Largest::off;
          const auto result = run(call);
          int64_t wrong = 0;
          for (int64_t i = 0; i < kRows * k; ++i) {
            const int64_t of_all = i / k * kColumns + i % k;
            wrong += result.index.get_int(i) != whole.index.get_int(of_all) ? 1 : 0;
            wrong += result.y.bits(i, i + 1) != whole.y.bits(of_all, of_all + 1) ? 1 : 0;
          }
          EXPECT_EQ(wrong, 0);
        }
      }
    }
  }
}

TEST(CpuReduction, EmptyRowsHaveTheSumZeroAndNoMean) {
  CallOf<ops::Sum> sum;
  sum.x = Tensor(Dtype::f32, {2, 0});
  EXPECT_EQ(list_of(run(sum).y), (List{0, 0}));
  CallOf<ops::Mean> mean;
  mean.x = sum.x;
  EXPECT_TRUE(std::isnan(run(mean).y.get(1)));
}

// 2^24 + 1 is no number of fp32, which a sum in fp32 would never leave.
TEST(CpuReduction, RunningSumsOfFp32LoseNothing) {
  CallOf<ops::Cumsum> call;
  call.x = numbers({0x1p24, 1, 1, 1, 1}, {1, 5}, Dtype::f32);
  EXPECT_EQ(list_of(run(call).y), (List{0x1p24, 0x1p24, 0x1p24 + 2, 0x1p24 + 4, 0x1p24 + 4}));
}

// What a compensated sum says of its lost digits is NaN beside an infinity.
TEST(CpuReduction, ASumWithAnInfinityIsInfinite) {
  for (const Dtype dtype : {Dtype::f32, Dtype::f64}) {
    const Tensor x = numbers({1, kInfinity, 2, 1, -kInfinity, 2, kInfinity, 1, -kInfinity}, {3, 3}, dtype);
    CallOf<ops::Sum> sum;
    CallOf<ops::Mean> mean;
    CallOf<ops::Cumsum> cumsum;
    sum.x = mean.x = cumsum.x = x;
    const List sums = list_of(run(sum).y), means = list_of(run(mean).y), begins = list_of(run(cumsum).y);
    EXPECT_EQ(List(sums.begin(), sums.begin() + 2), (List{kInfinity, -kInfinity}));
    EXPECT_EQ(List(means.begin(), means.begin() + 2), (List{kInfinity, -kInfinity}));
    EXPECT_EQ(List(begins.begin(), begins.begin() + 8),
              (List{1, kInfinity, kInfinity, 1, -kInfinity, -kInfinity, kInfinity, kInfinity}));
    for (const double both : {sums[2], means[2], begins[8]}) EXPECT_TRUE(std::isnan(both));
  }
}

TEST(CpuReduction, PartsOfASumMayBeBeyondTheRangeOfFp32) {
  const Tensor x = numbers({3e38, 3e38, -3e38, -3e38, 3e38, 3e38, 3e38, 3e38}, {2, 4}, Dtype::f32);
  CallOf<ops::Sum> sum;
  CallOf<ops::Mean> mean;
  sum.x = mean.x = x;
  EXPECT_EQ(list_of(run(sum).y), (List{0, kInfinity}));
  EXPECT_EQ(list_of(run(mean).y), (List{0, x.get(4)}));
}

TEST(CpuIndexing, APlaceThatThereIsNotIsADataErrorOfItsRow) {
  CallOf<ops::Gather> gather;
  gather.x = numbers({1, 2, 3, 4, 5, 6}, {2, 3}, Dtype::bf16);
  gather.index = Tensor(Dtype::i64, {2, 2}).fill([](int64_t i) { return i == 3 ? 3.0 : 2.0; });
  const auto result = run(gather);
  EXPECT_EQ(result.error.kind, sdk::DataErrorKind::kIdOutOfRange);
  EXPECT_EQ(result.error.row, 1);
  EXPECT_EQ(result.error.value, 3);
  EXPECT_EQ(result.y.get(2), 6);
  EXPECT_TRUE(std::isnan(result.y.get(3)));
}

TEST(CpuIndexing, TheGradientOfAPlaceThatIsTakenTwiceIsTheSum) {
  CallOf<ops::GatherBackward> call;
  call.grad_y = numbers({1, 2, 4}, {1, 3}, Dtype::f32);
  call.x = numbers({kNan, kNan, kNan, kNan}, {1, 4}, Dtype::f32);
  call.index = Tensor(Dtype::i32, {1, 3}).fill([](int64_t i) { return i == 1 ? 0.0 : 2.0; });
  EXPECT_EQ(list_of(run(call).grad_x), (List{2, 0, 5, 0}));
}

// Rows have the memory of their thread, not one each, and none has what the row before left there.
TEST(CpuIndexing, TheGradientOfManyRowsNeedsTheMemoryOfAFew) {
  constexpr int64_t kRows = 500, kColumns = 40, kTaken = 300;
  CallOf<ops::GatherBackward> call;
  call.grad_y = random_tensor(Dtype::f32, {kRows, kTaken}, 1, 1);
  call.x = Tensor(Dtype::f32, {kRows, kColumns});
  call.index = Tensor(Dtype::i64, {kRows, kTaken}).fill([](int64_t i) { return static_cast<double>(i * 7 % 37); });
  call.index.set_int(301 * kTaken + 5, -1);
  cpu::CallOf<ops::GatherBackward> sizes;
  sizes.N = kRows;
  sizes.D = kColumns;
  sizes.K = kTaken;
  EXPECT_LE(cpu::workspace_bytes<ops::GatherBackward>(sizes, 4), 4 * kTaken * 16);
  const auto right = golden_answer(call);
  for (const int64_t threads : {1, 3, 8}) {
    const auto result = run(call, threads_parallel(threads));
    EXPECT_TRUE(matches(result.grad_x, right.grad_x, Dtype::f32));
    EXPECT_EQ(result.error.kind, sdk::DataErrorKind::kIdOutOfRange);
    EXPECT_EQ(result.error.row, 301);
  }
}

}  // namespace
}  // namespace rlk::test
