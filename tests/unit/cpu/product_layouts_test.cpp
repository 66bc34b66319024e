// Products of matrices that lie in memory as lines, transposed, or with gaps: each is packed by vectors of another
// kind, and all give the bits of the one that is packed number by number.
#include <rlk/sdk/ops/gemm.hpp>
#include <rlk/sdk/ops/linear_backward.hpp>

#include "core/cpu/simd/amx.hpp"
#include "unit/cpu/token_case.hpp"

namespace rlk::test {
namespace {

using Gemm = CallOf<ops::Gemm>;
using ops::gemm::Transpose;

constexpr Transpose kTransposes[] = {Transpose::none, Transpose::a, Transpose::b, Transpose::both};

bool turns_a(Transpose transpose) {
  return transpose == Transpose::a || transpose == Transpose::both;
}
bool turns_b(Transpose transpose) {
  return transpose == Transpose::b || transpose == Transpose::both;
}

// [1, rows, columns] of numbers that depend on row and column alone; or the same transposed.
Tensor matrix(Dtype dtype, int64_t rows, int64_t columns, bool turned, Strides strides) {
  Tensor tensor(dtype, {1, turned ? columns : rows, turned ? rows : columns}, strides);
  const int64_t width = turned ? rows : columns;
  return tensor.fill([&](int64_t flat) {
    const int64_t row = turned ? flat % width : flat / width, column = turned ? flat / width : flat % width;
    return static_cast<double>((row * 31 + column * 17) % 61 - 30) / 16 + static_cast<double>(row % 7) / 128;
  });
}

Gemm product(Dtype dtype, int64_t rows, int64_t depth, int64_t columns, Transpose transpose, Strides strides) {
  Gemm c;
  c.a = matrix(dtype, rows, depth, turns_a(transpose), strides);
  c.b = matrix(dtype, depth, columns, turns_b(transpose), strides);
  c.params.transpose = transpose;
  return c;
}

void expect_all_layouts_equal(Dtype dtype, int64_t rows, int64_t depth, int64_t columns) {
  SCOPED_TRACE(name(dtype) + " " + std::to_string(rows) + " x " + std::to_string(depth) + " x " +
               std::to_string(columns));
  const Tensor want = run(product(dtype, rows, depth, columns, Transpose::none, Strides::gaps)).y;
  for (const Transpose transpose : kTransposes) {
    const Tensor got = run(product(dtype, rows, depth, columns, transpose, Strides::contiguous)).y;
    ASSERT_EQ(got.bytes(), want.bytes()) << "transpose " << static_cast<int>(transpose);
  }
}

// Around a vector, a tile of the tile unit, a register tile and a block, with every remainder of a vector on each side.
TEST(CpuProductLayouts, EveryRemainderOfRowsDepthAndColumnsHasTheBitsOfNumbersFetchedOneByOne) {
  for_each_target([] {
    for (const Dtype dtype : kFloatDtypes) {
      for (int64_t n = 0; n <= 16; ++n) {
        expect_all_layouts_equal(dtype, 16 + n, 48, 64);
        expect_all_layouts_equal(dtype, 48, 32 + n, 64);
        expect_all_layouts_equal(dtype, 48, 48, 48 + n);
        expect_all_layouts_equal(dtype, 33 + n, 33 + n, 17 + n);
      }
    }
  });
}

TEST(CpuProductLayouts, FewRowsPiecesWavesAndChainsHaveTheBitsOfNumbersFetchedOneByOne) {
  struct Size {
    int64_t rows, depth, columns;
  };
  for (const Size size : {Size{1, 70, 40},
                          {2, 33, 17},
                          {5, 129, 64},
                          {9, 40, 20},
                          {300, 130, 70},
                          {1000, 37, 3},
                          {3, 37, 1000},
                          {40, 2100, 50},
                          {64, 517, 130}}) {
    for (const Dtype dtype : kFloatDtypes) expect_all_layouts_equal(dtype, size.rows, size.depth, size.columns);
  }
}

TEST(CpuProductLayouts, TransposedOperandsGiveGoldensProduct) {
  for (const Dtype dtype : kFloatDtypes) {
    for (const Transpose transpose : kTransposes) {
      Gemm c = product(dtype, 40, 2100, 37, transpose, Strides::contiguous);
      c.c = matrix(dtype, 40, 37, false, Strides::contiguous);
      c.params.alpha = 0.5;
      c.params.beta = -2;
      EXPECT_TRUE(matches(run(c).y, golden_answer(c).y, accumulator(dtype)));
    }
  }
}

// An infinity or NaN meets no padding and no other row, however its matrix is packed.
TEST(CpuProductLayouts, AnInfinityStaysInItsRow) {
  for (const Dtype dtype : kFloatDtypes) {
    for (const Transpose transpose : kTransposes) {
      Gemm c = product(dtype, 37, 45, 29, transpose, Strides::contiguous);
      const List before = list_of(run(c).y);
      c.a.set(turns_a(transpose) ? 44 * 37 + 36 : 36 * 45 + 44, kInfinity);
      const List after = list_of(run(c).y);
      for (size_t i = 0; i < before.size(); ++i) {
        EXPECT_EQ(std::isfinite(after[i]), i < 36 * 29) << i;
        EXPECT_TRUE(after[i] == before[i] || i >= 36 * 29) << i;
      }
    }
  }
}

}  // namespace
}  // namespace rlk::test
