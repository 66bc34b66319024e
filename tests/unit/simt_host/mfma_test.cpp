// Does the simulated matrix instruction lay its numbers out as AMD documents it, and would a kernel that lays them out
// otherwise be seen? The layout is written here once more, from AMD's matrix instruction calculator, and not taken from
// the instruction's code.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <random>

#include "plugins/rocm/kernels/mfma.cuh"

namespace {

using rlk::rocm_kernels::Quad;
using rlk::simt::bf16;
using rlk::simt::f16;

using Matrix = std::array<std::array<float, 16>, 16>;

// Where element [outer][k] of A (or [k][outer] of B) and element [i][j] of D are.
struct Home {
  int lane, place;
};
Home home_of_factor(int outer, int k) {
  return {16 * (k / 4) + outer, k % 4};
}
Home home_of_result(int i, int j) {
  return {16 * (i / 4) + j, i % 4};
}

template <class T>
Matrix random_matrix(unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> number(-1, 1);
  Matrix matrix;
  for (auto& row : matrix) {
    for (float& x : row) x = rlk::simt::widen(rlk::simt::Narrow<T>::of(number(random)));
  }
  return matrix;
}
Matrix transposed(const Matrix& matrix) {
  Matrix other;
  for (size_t i = 0; i < 16; ++i) {
    for (size_t j = 0; j < 16; ++j) other[j][i] = matrix[i][j];
  }
  return other;
}

// The registers of all lanes for A, and for B, whose columns are those of its transpose's rows.
template <class T>
std::array<std::array<uint32_t, 2>, 64> registers_of(const Matrix& rows) {
  std::array<std::array<T, 4>, 64> held;
  for (int outer = 0; outer < 16; ++outer) {
    for (int k = 0; k < 16; ++k) {
      const Home home = home_of_factor(outer, k);
      held[static_cast<size_t>(home.lane)][static_cast<size_t>(home.place)] =
          rlk::simt::Narrow<T>::of(rows[static_cast<size_t>(outer)][static_cast<size_t>(k)]);
    }
  }
  std::array<std::array<uint32_t, 2>, 64> words;
  std::memcpy(&words, &held, sizeof(words));
  return words;
}

// C + A B by the instruction.
template <class T>
Matrix by_instruction(const Matrix& a, const Matrix& b, const Matrix& c) {
  const auto left = registers_of<T>(a), right = registers_of<T>(transposed(b));
  std::array<Quad, 64> result;
  rlk::emulation::run_grid({1, 1, 1}, {64, 1, 1}, 0, [&] {
    const auto lane = static_cast<size_t>(rlk::emulation::lane());
    Quad d;
    for (int i = 0; i < 16; ++i) {
      for (int j = 0; j < 16; ++j) {
        const Home home = home_of_result(i, j);
        if (home.lane == static_cast<int>(lane)) d[home.place] = c[static_cast<size_t>(i)][static_cast<size_t>(j)];
      }
    }
    rlk::rocm_kernels::multiply_add<T>(d, left[lane][0], left[lane][1], right[lane][0], right[lane][1]);
    result[lane] = d;
  });
  Matrix out;
  for (int i = 0; i < 16; ++i) {
    for (int j = 0; j < 16; ++j) {
      const Home home = home_of_result(i, j);
      out[static_cast<size_t>(i)][static_cast<size_t>(j)] = result[static_cast<size_t>(home.lane)][home.place];
    }
  }
  return out;
}
Matrix plain(const Matrix& a, const Matrix& b, const Matrix& c) {
  Matrix out;
  for (size_t i = 0; i < 16; ++i) {
    for (size_t j = 0; j < 16; ++j) {
      double sum = c[i][j];
      for (size_t k = 0; k < 16; ++k) sum += double{a[i][k]} * double{b[k][j]};
      out[i][j] = static_cast<float>(sum);
    }
  }
  return out;
}
double distance(const Matrix& a, const Matrix& b) {
  double most = 0;
  for (size_t i = 0; i < 16; ++i) {
    for (size_t j = 0; j < 16; ++j) most = std::max(most, std::abs(double{a[i][j]} - double{b[i][j]}));
  }
  return most;
}

template <class T>
class Mfma : public ::testing::Test {};
using Types = ::testing::Types<f16, bf16>;
TYPED_TEST_SUITE(Mfma, Types);

TYPED_TEST(Mfma, AProductIsThatOfTheMatricesByAmdsLayout) {
  for (unsigned seed = 1; seed < 5; ++seed) {
    const Matrix a = random_matrix<TypeParam>(seed), b = random_matrix<TypeParam>(seed + 10),
                 c = random_matrix<TypeParam>(seed + 20);
    EXPECT_LT(distance(by_instruction<TypeParam>(a, b, c), plain(a, b, c)), 1e-5);
  }
}

TYPED_TEST(Mfma, ATransposedFactorOrResultIsSeen) {
  const Matrix a = random_matrix<TypeParam>(1), b = random_matrix<TypeParam>(2), c = random_matrix<TypeParam>(3);
  const Matrix product = plain(a, b, c);
  EXPECT_GT(distance(by_instruction<TypeParam>(transposed(a), b, c), product), 0.5);
  EXPECT_GT(distance(by_instruction<TypeParam>(a, transposed(b), c), product), 0.5);
  EXPECT_GT(distance(by_instruction<TypeParam>(a, b, transposed(c)), product), 0.5);
  EXPECT_GT(distance(transposed(by_instruction<TypeParam>(a, b, c)), product), 0.5);
}

// What the attention kernels live by: a lane's results of one product are its B of the next.
TYPED_TEST(Mfma, AResultIsAFactorOfTheNextProductWhereItLies) {
  for (int k = 0; k < 16; ++k) {
    for (int column = 0; column < 16; ++column) {
      EXPECT_EQ(home_of_result(k, column).lane, home_of_factor(column, k).lane);
      EXPECT_EQ(home_of_result(k, column).place, home_of_factor(column, k).place);
    }
  }
}

}  // namespace
