// Are rows of any length, strides and dtypes reduced right, with the same bits in whatever form, grid and company, and
// is nothing else written? On fibers with waves of 64; the kernels are those of ../operators.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "plugins/simt/host/rows.hpp"
#include "tests/unit/simt_host/tensor.hpp"

// A kernel for each dtype, whose name is the prefix and the dtype's.
#define RLK_TEST_KERNELS(prefix)          \
  extern "C" {                            \
  void prefix##_bf16(rlk::simt::RowArgs); \
  void prefix##_f16(rlk::simt::RowArgs);  \
  void prefix##_f32(rlk::simt::RowArgs);  \
  }                                       \
  constexpr rlk::simt::host::RowKernels prefix = {&prefix##_bf16, &prefix##_f16, &prefix##_f32};

namespace rlk::simt::host {

using Kernel = void (*)(RowArgs);
struct RowKernels {
  Kernel bf16, f16, f32;

  constexpr Kernel of(Dtype dtype) const { return dtype == Dtype::bf16 ? bf16 : dtype == Dtype::f16 ? f16 : f32; }
};

}  // namespace rlk::simt::host

RLK_TEST_KERNELS(softmax_rows_Softmax)
RLK_TEST_KERNELS(softmax_rows_Softmax_blocks)
RLK_TEST_KERNELS(rms_norm_rows_RmsNorm)
RLK_TEST_KERNELS(rms_norm_rows_RmsNorm_blocks)
RLK_TEST_KERNELS(layer_norm_rows_LayerNorm)
RLK_TEST_KERNELS(layer_norm_rows_LayerNorm_blocks)
RLK_TEST_KERNELS(rms_norm_backward_rows_RmsNormBackward)
RLK_TEST_KERNELS(rms_norm_backward_rows_RmsNormBackward_blocks)
extern "C" {
void softmax_rows_Softmax_f64(rlk::simt::RowArgs);
void rms_norm_rows_RmsNorm_f64(rlk::simt::RowArgs);
void rms_norm_backward_rows_RmsNormBackward_f64(rlk::simt::RowArgs);
void rms_norm_backward_rows_RmsNormBackward_chunks_f32(rlk::simt::RowArgs);
void rms_norm_backward_rows_RmsNormBackward_chunks_f64(rlk::simt::RowArgs);
void rms_norm_backward_rows_RmsNormBackward_summed(rlk::simt::RowArgs);
void rms_norm_backward_rows_RmsNormBackward_totals(rlk::simt::RowArgs);
}

namespace rlk::simt::host {

const Driver& driver() {
  static const Driver none;
  return none;
}

namespace {

using Kind = RowsArgument::Kind;

constexpr int kWide = 64;
constexpr Dtype accumulator(Dtype dtype) {
  return dtype == Dtype::f64 ? Dtype::f64 : Dtype::f32;
}
// Half a unit in the last place, relative.
double unit(Dtype dtype) {
  return dtype == Dtype::f64 ? 0x1p-53 : dtype == Dtype::f32 ? 0x1p-24 : dtype == Dtype::f16 ? 0x1p-11 : 0x1p-8;
}

void run(Kernel kernel, const RowArgs& args, unsigned blocks, int threads, int shared_bytes = 0) {
  emulation::run_grid({blocks, 1, 1}, {static_cast<unsigned>(threads), 1, 1}, static_cast<size_t>(shared_bytes),
                      [=] { kernel(args); });
}
// of_blocks: with a block for each row that is such.
void run_rows(const RowKernels& kernels, const RowKernels& of_blocks, Kernel f64, const RowsCall& call,
              unsigned blocks) {
  const RowArgs args = arguments_of_rows(call, kWide);
  const int threads = threads_of_rows(args, kWide);
  if (call.dtype() == Dtype::f64) return run(f64, args, blocks, threads);
  if (!is_of_blocks(call, args, kWide)) return run(kernels.of(call.dtype()), args, blocks, threads);
  run(of_blocks.of(call.dtype()), args, static_cast<unsigned>(args.rows), threads);
}

// Numbers of a matrix, row after row.
std::vector<double> numbers(const Tensor& tensor) {
  std::vector<double> all;
  for_each_index(tensor.shape, [&](const Sizes& index) { all.push_back(element(tensor.at(index), tensor.dtype)); });
  return all;
}
void expect_nothing_else_is_written(const Tensor& tensor) {
  std::vector<char> expected = tensor.before;
  for_each_index(tensor.shape, [&](const Sizes& index) {
    std::memcpy(expected.data() + (tensor.at(index) - tensor.memory.data()), tensor.at(index),
                static_cast<size_t>(tensor.size));
  });
  EXPECT_TRUE(expected == tensor.memory);
}

std::vector<double> softmax(const Tensor& y, const Tensor& x, unsigned blocks, bool in_packs) {
  const RowsCall call({{Kind::out, "y", &y.abi}, {Kind::in, "x", &x.abi}}, {});
  EXPECT_EQ(arguments_of_rows(call, kWide).in_packs, in_packs ? 1 : 0);
  run_rows(softmax_rows_Softmax, softmax_rows_Softmax_blocks, &softmax_rows_Softmax_f64, call, blocks);
  expect_nothing_else_is_written(y);
  return numbers(y);
}
// The same numbers elsewhere.
void fill(const Tensor& to, const Tensor& from) {
  for_each_index(to.shape,
                 [&](const Sizes& index) { put(to.at(index), to.dtype, element(from.at(index), from.dtype)); });
}

TEST(RowsTest, RowsOfAnyLengthHaveTheSameBitsInEveryFormGridAndCompany) {
  constexpr int64_t kRows = 5;
  for (const Dtype dtype : kEvery) {
    for (const int64_t columns : {1, 7, 37, 64, 300, 1024, 2056, 4104, 17000}) {
      SCOPED_TRACE(std::string(sdk::name_of(dtype)) + " " + std::to_string(columns));
      const bool whole = columns % (16 / sdk::bytes_of(dtype)) == 0;
      const Tensor x(dtype, {kRows, columns}), y(dtype, {kRows, columns});
      const std::vector<double> due = softmax(y, x, 2, whole);
      for (int64_t n = 0; n < kRows; ++n) {
        double largest = -INFINITY;
        long double sum = 0;
        for (int64_t k = 0; k < columns; ++k) largest = std::max(largest, element(x.at({n, k}), dtype));
        for (int64_t k = 0; k < columns; ++k)
          sum += std::exp(static_cast<long double>(element(x.at({n, k}), dtype) - largest));
        for (int64_t k = 0; k < columns; ++k) {
          const auto expected =
              static_cast<double>(std::exp(static_cast<long double>(element(x.at({n, k}), dtype) - largest)) / sum);
          const double bound =
              expected * (unit(dtype) + 8 * unit(accumulator(dtype))) + (dtype == Dtype::f16 ? 3e-8 : 0);
          ASSERT_NEAR(due[static_cast<size_t>(n * columns + k)], expected, bound) << n << " " << k;
        }
      }
      const auto expect_same = [&](Sizes in_steps, Sizes out_steps, int64_t offset, unsigned blocks, bool in_packs) {
        const Tensor in(dtype, {kRows, columns}, std::move(in_steps), offset);
        const Tensor out(dtype, {kRows, columns}, std::move(out_steps));
        fill(in, x);
        EXPECT_TRUE(softmax(out, in, blocks, in_packs) == due);
      };
      const int64_t padded = (columns + 7) / 8 * 8 + 8;
      expect_same({padded, 1}, {padded, 1}, 0, 1, whole);
      expect_same({}, {}, 1, 7, false);
      expect_same({2 * columns + 1, 2}, {columns, 1}, 0, 3, false);
      expect_same({1, kRows}, {-columns, -1}, 0, 3, false);
      // A row by itself, over itself.
      const Tensor alone(dtype, {1, columns});
      for_each_index(alone.shape, [&](const Sizes& index) {
        std::memcpy(alone.at(index), x.at({3, index[1]}), alone.size);
      });
      const std::vector<double> seen = softmax(alone, alone, 1, whole);
      EXPECT_TRUE(std::equal(seen.begin(), seen.end(), due.begin() + 3 * columns));
    }
  }
}

TEST(RowsTest, APartOfAWaveHasAShortRowAWaveWhatItsLanesHoldAndABlockWhatIsLonger) {
  const auto group = [](Dtype dtype, int64_t columns) {
    const Tensor x(dtype, {2, columns});
    return arguments_of_rows(RowsCall({{Kind::in, "x", &x.abi}}, {}), kWide).group;
  };
  const int64_t of_bf16 = row_held(1, 0) * 8, of_f32 = row_held(1, 0) * 4;
  EXPECT_EQ(group(Dtype::bf16, 1), 1);
  EXPECT_EQ(group(Dtype::bf16, 8 * kRowHeldInWave), 1);
  EXPECT_EQ(group(Dtype::bf16, 8 * kRowHeldInWave + 1), 2);
  EXPECT_EQ(group(Dtype::bf16, 16 * 8 * kRowHeldInWave), 16);
  EXPECT_EQ(group(Dtype::bf16, 32 * of_bf16), 32);
  EXPECT_EQ(group(Dtype::bf16, 32 * of_bf16 + 1), 64);
  EXPECT_EQ(group(Dtype::bf16, 64 * of_bf16), 64);
  EXPECT_EQ(group(Dtype::bf16, 64 * of_bf16 + 1), 128);
  EXPECT_EQ(group(Dtype::f32, 128 * of_f32), 128);
  EXPECT_EQ(group(Dtype::f32, 128 * of_f32 + 1), kRowThreads);
  EXPECT_EQ(group(Dtype::f32, 8 * kRowThreads * of_f32), kRowThreads);
}

TEST(RowsTest, InfinitiesAndNansStayInTheirRow) {
  const Tensor x(Dtype::f32, {4, 40}), y(Dtype::f32, {4, 40});
  for (int64_t k = 0; k < 40; ++k) put(x.at({0, k}), Dtype::f32, -INFINITY);
  put(x.at({1, 17}), Dtype::f32, NAN);
  for (int64_t k = 0; k < 39; ++k) put(x.at({2, k}), Dtype::f32, -INFINITY);
  softmax(y, x, 1, true);
  for (int64_t k = 0; k < 40; ++k) {
    EXPECT_TRUE(std::isnan(element(y.at({0, k}), Dtype::f32)));
    EXPECT_TRUE(std::isnan(element(y.at({1, k}), Dtype::f32)));
    EXPECT_EQ(element(y.at({2, k}), Dtype::f32), k == 39 ? 1 : 0);
    EXPECT_TRUE(std::isfinite(element(y.at({3, k}), Dtype::f32)));
  }
}

// --- rms_norm --------------------------------------------------------------------------------------------------------

struct RmsNorm {
  void run(const Tensor& y, const Tensor& x, const Tensor* weight, const Tensor* rstd, double eps) {
    const RowsCall call({{Kind::out, "y", &y.abi},
                         {Kind::in, "x", &x.abi},
                         {Kind::or_one, "weight", weight != nullptr ? &weight->abi : nullptr},
                         {Kind::of_row, "rstd", rstd != nullptr ? &rstd->abi : nullptr}},
                        {eps});
    run_rows(rms_norm_rows_RmsNorm, rms_norm_rows_RmsNorm_blocks, &rms_norm_rows_RmsNorm_f64, call, 2);
    expect_nothing_else_is_written(y);
    if (rstd != nullptr) expect_nothing_else_is_written(*rstd);
  }
};

TEST(RowsTest, AWeightIsAbsentOrOfEitherDtypeAndOfAnyStride) {
  constexpr int64_t kRows = 3;
  for (const Dtype dtype : kEvery) {
    for (const int64_t columns : {40, 41, 6000}) {
      const Tensor x(dtype, {kRows, columns}), packed(dtype, {columns}), strided(dtype, {columns}, {2}),
          wide(accumulator(dtype), {columns});
      for (const Tensor* weight : {static_cast<const Tensor*>(nullptr), &packed, &strided, &wide}) {
        SCOPED_TRACE(std::string(sdk::name_of(dtype)) + " " + std::to_string(columns));
        const Tensor y(dtype, {kRows, columns}), rstd(accumulator(dtype), {kRows}, {3});
        RmsNorm().run(y, x, weight, &rstd, 0.5);
        for (int64_t n = 0; n < kRows; ++n) {
          double squares = 0;
          for (int64_t k = 0; k < columns; ++k) squares += std::pow(element(x.at({n, k}), dtype), 2);
          const double root = 1 / std::sqrt(squares / static_cast<double>(columns) + 0.5);
          EXPECT_NEAR(element(rstd.at({n}), rstd.dtype), root, 2 * root * unit(rstd.dtype));
          for (int64_t k = 0; k < columns; ++k) {
            const double w = weight != nullptr ? element(weight->at({k}), weight->dtype) : 1;
            const double expected = element(x.at({n, k}), dtype) * root * w;
            ASSERT_NEAR(element(y.at({n, k}), dtype), expected,
                        std::fabs(expected) * (unit(dtype) + 4 * unit(accumulator(dtype))));
          }
        }
      }
    }
  }
}

TEST(RowsTest, RowsOfTheSmallestAndTheLargestNumbersHaveFiniteResults) {
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::f64}) {
    const bool is_f64 = dtype == Dtype::f64;
    for (const double number : {is_f64 ? 0x1p-1070 : 0x1p-133, is_f64 ? 0x1p-700 : 0x1p-110, is_f64 ? 0x1p700 : 0x1p110,
                                is_f64 ? 0x1p1023 : 0x1p127}) {
      const Tensor x(dtype, {2, 24}), y(dtype, {2, 24});
      for (int64_t k = 0; k < 24; ++k) put(x.at({0, k}), dtype, k % 3 == 0 ? -number : number);
      RmsNorm().run(y, x, nullptr, nullptr, 0);
      for (int64_t k = 0; k < 24; ++k) {
        EXPECT_NEAR(element(y.at({0, k}), dtype), k % 3 == 0 ? -1 : 1, 1e-6) << sdk::name_of(dtype) << " " << number;
      }
    }
  }
}

// Rows of one wave, or of a block each, some of which fp32 is too narrow for.
void expect_the_same_bits_beside_others(Dtype dtype, int64_t columns) {
  constexpr int64_t kRows = 11;
  const bool is_f64 = dtype == Dtype::f64;
  const double large = dtype == Dtype::f16 ? 0x1p15 : is_f64 ? 0x1p700 : 0x1p100, small = is_f64 ? 0x1p-700 : 0x1p-24;
  const Tensor x(dtype, {kRows, columns}), y(dtype, {kRows, columns}), rstd(accumulator(dtype), {kRows});
  for (int64_t k = 0; k < columns; ++k) {
    put(x.at({2, k}), dtype, 0);
    put(x.at({3, k}), dtype, k % 3 == 0 ? large : -large);
    put(x.at({7, k}), dtype, k % 5 == 0 ? small : 0);
    put(x.at({8, k}), dtype, k == 5 ? NAN : 1);
  }
  RmsNorm().run(y, x, nullptr, &rstd, 0);
  for (int64_t n = 0; n < kRows; ++n) {
    SCOPED_TRACE(std::string(sdk::name_of(dtype)) + " row " + std::to_string(n));
    const Tensor alone(dtype, {1, columns}), its_y(dtype, {1, columns}), its_rstd(accumulator(dtype), {1});
    for (int64_t k = 0; k < columns; ++k) std::memcpy(alone.at({0, k}), x.at({n, k}), alone.size);
    RmsNorm().run(its_y, alone, nullptr, &its_rstd, 0);
    EXPECT_EQ(std::memcmp(its_rstd.at({0}), rstd.at({n}), rstd.size), 0);
    for (int64_t k = 0; k < columns; ++k) {
      EXPECT_EQ(std::memcmp(its_y.at({0, k}), y.at({n, k}), y.size), 0) << k;
    }
    const double root = element(rstd.at({n}), rstd.dtype);
    EXPECT_EQ(std::isnan(root), n == 8);
    EXPECT_EQ(root > 0 && std::isfinite(root), n != 2 && n != 8);
  }
}
TEST(RowsTest, ARowHasTheSameBitsBesideRowsThatAreComputedOtherwise) {
  for (const Dtype dtype : kEvery) {
    expect_the_same_bits_beside_others(dtype, 24);
    expect_the_same_bits_beside_others(dtype, 6000);
  }
}

// --- layer_norm ------------------------------------------------------------------------------------------------------

// A row's distances are to its first few numbers, which may be unlike the others.
TEST(RowsTest, ARowWhoseFirstNumbersAreFarFromTheOthersKeepsTheDigitsOfItsVariance) {
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::f16}) {
    for (const int64_t columns : {20, 24, 6000}) {
      SCOPED_TRACE(std::string(sdk::name_of(dtype)) + " " + std::to_string(columns));
      // The first numbers are near each other, and far from most; the whole row is far from 0.
      const double far = dtype == Dtype::bf16 ? 128 : dtype == Dtype::f16 ? 1024 : 0x1p14;
      const Tensor x(dtype, {3, columns}), y(dtype, {3, columns}), mean(accumulator(dtype), {3}),
          rstd(accumulator(dtype), {3});
      for (int64_t k = 0; k < columns; ++k) {
        const double odd = k % 2 != 0 ? 1 : 0;
        put(x.at({0, k}), dtype, k < 8 ? far : odd);
        put(x.at({1, k}), dtype, k < 8 ? far + odd : far);
        put(x.at({2, k}), dtype, far + odd);
      }
      run_rows(layer_norm_rows_LayerNorm, layer_norm_rows_LayerNorm_blocks, nullptr,
               RowsCall({{Kind::out, "y", &y.abi},
                         {Kind::in, "x", &x.abi},
                         {Kind::or_one, "weight", nullptr},
                         {Kind::or_zero, "bias", nullptr},
                         {Kind::of_row, "mean", &mean.abi},
                         {Kind::of_row, "rstd", &rstd.abi}},
                        {0}),
               2);
      for (int64_t n = 0; n < 3; ++n) {
        double sum = 0, squares = 0;
        for (int64_t k = 0; k < columns; ++k) sum += element(x.at({n, k}), dtype);
        const double its_mean = sum / static_cast<double>(columns);
        for (int64_t k = 0; k < columns; ++k) squares += std::pow(element(x.at({n, k}), dtype) - its_mean, 2);
        const double root = 1 / std::sqrt(squares / static_cast<double>(columns));
        EXPECT_NEAR(element(mean.at({n}), mean.dtype), its_mean, 2 * its_mean * unit(mean.dtype)) << n;
        EXPECT_NEAR(element(rstd.at({n}), rstd.dtype), root, 4 * root * unit(rstd.dtype)) << n;
      }
    }
  }
}

// --- sums over rows --------------------------------------------------------------------------------------------------

RowsCall rms_norm_backward(const Tensor& out, const Tensor& grad, const Tensor& x, const Tensor& sum) {
  return {{{Kind::out, "grad_x", &out.abi},
           {Kind::in, "grad_y", &grad.abi},
           {Kind::in, "x", &x.abi},
           {Kind::or_one, "weight", nullptr},
           {Kind::kept, "rstd", nullptr},
           {Kind::of_column, "grad_weight", &sum.abi}},
          {0}};
}
// chunks: fewer than the host makes.
void run_with_sums(const RowsCall& call, unsigned blocks, int64_t chunks = INT64_MAX) {
  RowArgs args = arguments_of_rows(call, kWide);
  std::vector<char> workspace(place_kept(call, args, kWide, nullptr) + 256);
  char* const aligned = workspace.data() + (256 - reinterpret_cast<uintptr_t>(workspace.data()) % 256) % 256;
  place_kept(call, args, kWide, aligned);
  args.chunks = std::min(args.chunks, chunks);
  const bool wide = call.dtype() == Dtype::f64;
  if (are_summed_as_held(call, args)) {
    const bool are_blocks = is_of_blocks(call, args, kWide);
    run(are_blocks ? rms_norm_backward_rows_RmsNormBackward_blocks.of(call.dtype())
                   : &rms_norm_backward_rows_RmsNormBackward_summed,
        args, are_blocks ? static_cast<unsigned>(args.chunks) : blocks, threads_of_rows(args, kWide),
        are_blocks ? shared_of_blocks(call, args, kWide) : 0);
  } else {
    run(wide ? &rms_norm_backward_rows_RmsNormBackward_f64 : rms_norm_backward_rows_RmsNormBackward.of(call.dtype()),
        args, blocks, threads_of_rows(args, kWide));
    run(wide ? &rms_norm_backward_rows_RmsNormBackward_chunks_f64 : &rms_norm_backward_rows_RmsNormBackward_chunks_f32,
        args, blocks, kRowSumThreads);
  }
  run(&rms_norm_backward_rows_RmsNormBackward_totals, args, blocks, kRowThreads);
}

// x is 2 or -2, so that every root is a half and every term a whole number: the sum is exact.
TEST(RowsTest, SumsOverAnyNumberOfRowsAreExactInAnyGrid) {
  for (const Dtype dtype : kEvery) {
    for (const int64_t rows : {0, 1, 32, 33, 300}) {
      for (const int64_t columns : {5, 64, 1100, 8200}) {
        if (columns == 8200 && rows > 33) continue;
        SCOPED_TRACE(sdk::format("%s %d %d", sdk::name_of(dtype), static_cast<int>(rows), static_cast<int>(columns)));
        const Tensor x(dtype, {rows, columns}), grad(dtype, {rows, columns}), out(dtype, {rows, columns});
        for_each_index(
            x.shape, [&](const Sizes& index) { put(x.at(index), dtype, (index[0] * 7 + index[1]) % 3 == 0 ? -2 : 2); });
        const Tensor sum(accumulator(dtype), {columns}, {2});
        run_with_sums(rms_norm_backward(out, grad, x, sum), columns == 64 ? 1 : 5);
        expect_nothing_else_is_written(sum);
        expect_nothing_else_is_written(out);
        for (int64_t k = 0; k < columns; ++k) {
          double due = 0;
          for (int64_t n = 0; n < rows; ++n) due += element(grad.at({n, k}), dtype) * element(x.at({n, k}), dtype) / 2;
          ASSERT_EQ(element(sum.at({k}), sum.dtype), due) << k;
        }
      }
    }
  }
}

// A chunk's sums go from registers to shared memory and on to that of the chunk, each after so many rows. Kernels of
// blocks have them there, and those of other rows in registers alone.
TEST(RowsTest, SumsOverManyRowsOfAChunkAreExact) {
  for (const Dtype dtype : {Dtype::bf16, Dtype::f16, Dtype::f32}) {
    for (const int64_t rows : {7, 8, 9, 16, 17, 64, 65, 72, 129, 150}) {
      for (const int64_t columns : {64, 1096}) {
        SCOPED_TRACE(sdk::format("%s %d %d", sdk::name_of(dtype), static_cast<int>(rows), static_cast<int>(columns)));
        const Tensor x(dtype, {2 * rows, columns}), grad(dtype, {2 * rows, columns}), out(dtype, {2 * rows, columns});
        for_each_index(
            x.shape, [&](const Sizes& index) { put(x.at(index), dtype, (index[0] * 5 + index[1]) % 3 == 0 ? -2 : 2); });
        const Tensor sum(accumulator(dtype), {columns});
        run_with_sums(rms_norm_backward(out, grad, x, sum), 2, 2);
        expect_nothing_else_is_written(sum);
        expect_nothing_else_is_written(out);
        for (int64_t k = 0; k < columns; ++k) {
          double due = 0;
          for (int64_t n = 0; n < 2 * rows; ++n) {
            due += element(grad.at({n, k}), dtype) * element(x.at({n, k}), dtype) / 2;
          }
          ASSERT_EQ(element(sum.at({k}), sum.dtype), due) << k;
        }
      }
    }
  }
}

// Where fp32 is too narrow for a term, for what a few of them sum to, or for a row's root: the sums are as exact.
TEST(RowsTest, SumsOverRowsOfTheSmallestAndTheLargestNumbersAreExact) {
  constexpr int64_t kRows = 70, kColumns = 24;
  for (const Dtype dtype : {Dtype::bf16, Dtype::f32, Dtype::f64}) {
    SCOPED_TRACE(sdk::name_of(dtype));
    const Tensor x(dtype, {kRows, kColumns}), grad(dtype, {kRows, kColumns}), out(dtype, {kRows, kColumns});
    const Tensor sum(accumulator(dtype), {kColumns});
    const auto size_of = [](int64_t row) { return row < 20 ? 0x1p-60 : row < 40 ? 0x1p60 : 2; };
    const auto grad_of = [](int64_t row, int64_t column) {
      const double sign = (row + column) % 4 < 2 ? 1 : -1;
      return row < 40 ? sign : row < 48 ? sign * 0x1p127 : 0;  // of four in turn two come first that are of one sign
    };
    for_each_index(x.shape, [&](const Sizes& index) {
      put(x.at(index), dtype, index[1] % 3 == 0 ? -size_of(index[0]) : size_of(index[0]));
      put(grad.at(index), dtype, grad_of(index[0], index[1]));
    });
    put(grad.at({69, 5}), dtype, 3);
    put(grad.at({50, 7}), dtype, INFINITY);
    run_with_sums(rms_norm_backward(out, grad, x, sum), 3);
    expect_nothing_else_is_written(sum);
    for (int64_t k = 0; k < kColumns; ++k) {
      double due = 0;
      for (int64_t n = 0; n < kRows; ++n) due += element(grad.at({n, k}), dtype) * (k % 3 == 0 ? -1 : 1);
      EXPECT_EQ(element(sum.at({k}), sum.dtype), due) << k;
    }
  }
}

}  // namespace
}  // namespace rlk::simt::host
