// linear_logp where bf16 is multiplied by tiles: the sums are those of any other kernel, and do not depend on company.
#include <rlk/sdk/ops/linear_logp.hpp>

#include "core/cpu/simd/amx.hpp"
#include "core/cpu/simd/target.hpp"
#include "unit/cpu/linear_case.hpp"
#include "unit/cpu/support.hpp"

namespace rlk::test {
namespace {

class CpuLinearAmx : public ::testing::Test {
protected:
  void SetUp() override { use_tiles(); }
  void TearDown() override {
    cpu::emulate_amx(false);
    cpu::allow_amx(true);
  }

  // The unit's, or number by number where there is none.
  static void use_tiles() {
    cpu::allow_amx(true);
    cpu::emulate_amx(!cpu::has_amx());
  }
  static void use_vectors() {
    cpu::emulate_amx(false);
    cpu::allow_amx(false);
  }

  static std::vector<double> logps(const LinearCase& c) {
    const Tensor logp = run_linear(c, cpu::tbb_parallel()).logp;
    std::vector<double> list;
    for (int64_t i = 0; i < logp.size(); ++i) list.push_back(logp.get(i));
    return list;
  }
};

TEST_F(CpuLinearAmx, TheVariantSaysSo) {
  if (cpu::amx_is_emulated() || cpu::variant_name() == std::string_view(cpu::target_name())) {
    GTEST_SKIP() << "no tile unit here, or kernels built for another instruction set";
  }
  EXPECT_STREQ(cpu::variant_name(), "AVX3_AMX");
  cpu::allow_amx(false);
  EXPECT_STREQ(cpu::variant_name(), cpu::target_name());
}

// Depths around a tile and around a chain, columns around a tile and a block, rows around a tile: all with numbers that
// do not come from the tiles' padding.
TEST_F(CpuLinearAmx, EverySizeIsThatOfTheOtherKernel) {
  for (const int64_t depth : {32, 33, 64, 511, 512, 513, 1100}) {
    for (const int64_t vocab : {1, 15, 17, 33, 64, 100}) {
      for (const int64_t rows : {1, 3, 16, 17, 49, 200}) {
        SCOPED_TRACE(std::to_string(rows) + " x " + std::to_string(vocab) + " x " + std::to_string(depth));
        const LinearCase c = make_linear_case(Dtype::bf16, rows, vocab, depth, 7);
        const std::vector<double> tiles = logps(c);
        use_vectors();
        const std::vector<double> vectors = logps(c);
        use_tiles();
        for (size_t i = 0; i < tiles.size(); ++i) ASSERT_NEAR(tiles[i], vectors[i], 2e-4) << i;
      }
    }
  }
}

TEST_F(CpuLinearAmx, ARowAloneHasTheSameBits) {
  const LinearCase c = make_linear_case(Dtype::bf16, 200, 300, 700, 11);
  const std::vector<double> together = logps(c);
  for (const int64_t row : {0, 15, 16, 47, 48, 199}) {
    EXPECT_EQ(logps(row_of(c, row))[0], together[static_cast<size_t>(row)]) << row;
  }
}

// An infinity meets no zero of the padding.
TEST_F(CpuLinearAmx, AnInfinityStaysInItsRow) {
  LinearCase c = make_linear_case(Dtype::bf16, 20, 40, 40, 3);
  const std::vector<double> before = logps(c);
  c.hidden.set(5 * 40 + 39, kInfinity);
  const std::vector<double> after = logps(c);
  for (size_t i = 0; i < before.size(); ++i) {
    if (i == 5) continue;
    EXPECT_EQ(after[i], before[i]) << i;
  }
}

}  // namespace
}  // namespace rlk::test
