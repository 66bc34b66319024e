// What do operators decline of a library of products that lacks something? The library is a table of this test's.
#include <gtest/gtest.h>

#include "plugins/products/library.hpp"
#include "plugins/products/operators.hpp"
#include "tests/unit/simt_host/operator_calls.hpp"

namespace rlk::products {

static Library& table() {
  static Library made;
  return made;
}
const Library& library() {
  return table();
}

}  // namespace rlk::products

namespace rlk::simt::host {

const Driver& driver() {
  static const Driver table = make_table();
  return table;
}

namespace {

using Backward = sdk::ops::LinearCrossEntropyBackward;
struct Served {
  [[maybe_unused]] static constexpr const char* kName = "served";
};
using Implementation = products::Implementation<Served, Backward>;

sdk::Support gradients(rlk_dtype dtype) {
  constexpr int64_t kRows = 64, kVocab = 512, kHidden = 128;
  const rlk_linear_cross_entropy_backward_params params = RLK_LINEAR_CROSS_ENTROPY_BACKWARD_PARAMS_INIT;
  Arranged<Backward> call(params, {kRows, kVocab, kHidden});
  call.input(RLK_LINEAR_CROSS_ENTROPY_BACKWARD_IN_HIDDEN, dtype, {kRows, kHidden});
  call.input(RLK_LINEAR_CROSS_ENTROPY_BACKWARD_IN_WEIGHT, dtype, {kVocab, kHidden});
  call.input(RLK_LINEAR_CROSS_ENTROPY_BACKWARD_IN_IDS, kI64, {kRows});
  call.input(RLK_LINEAR_CROSS_ENTROPY_BACKWARD_IN_LSE, kF32, {kRows});
  call.input(RLK_LINEAR_CROSS_ENTROPY_BACKWARD_IN_GRAD_LOSS, kF32, {1});
  call.output(RLK_LINEAR_CROSS_ENTROPY_BACKWARD_OUT_GRAD_HIDDEN, dtype, {kRows, kHidden});
  call.output(RLK_LINEAR_CROSS_ENTROPY_BACKWARD_OUT_GRAD_WEIGHT, kF32, {kVocab, kHidden});
  Device device(0);
  return call.query<Implementation>(device);
}

class ProductsQuery : public OperatorTest {
protected:
  void SetUp() override {
    OperatorTest::SetUp();
    products::table().name = "Acme products";
  }
  void TearDown() override { products::table() = {}; }
};

// Of four rows of bf16.
Arranged<sdk::ops::LinearLogp> linear_logp(int64_t hidden) {
  constexpr int64_t kRows = 4, kVocab = 512;
  Arranged<sdk::ops::LinearLogp> call(RLK_LINEAR_LOGP_PARAMS_INIT, {kRows, kVocab, hidden});
  call.input(RLK_LINEAR_LOGP_IN_HIDDEN, kBf16, {kRows, hidden});
  call.input(RLK_LINEAR_LOGP_IN_WEIGHT, kBf16, {kVocab, hidden});
  call.input(RLK_LINEAR_LOGP_IN_IDS, kI64, {kRows});
  call.output(RLK_LINEAR_LOGP_OUT_LOGP, kF32, {kRows});
  return call;
}

TEST_F(ProductsQuery, LongSumsWantRowsThatStartOn16Bytes) {
  using Scores = products::Implementation<Served, sdk::ops::LinearLogp>;
  Device device(0);
  EXPECT_EQ(linear_logp(8192).query<Scores>(device).level, RLK_SUPPORT_PREFERRED);
  EXPECT_EQ(linear_logp(65).query<Scores>(device).level, RLK_SUPPORT_PREFERRED) << "a short sum";

  Arranged<sdk::ops::LinearLogp> transposed = linear_logp(8192);
  transposed.input(RLK_LINEAR_LOGP_IN_HIDDEN).strides = {1, 4};
  const sdk::Support packed = transposed.query<Scores>(device);
  EXPECT_EQ(packed.reason_code, "ALIGNMENT") << packed.reason;
  EXPECT_EQ(packed.flags & RLK_SUPPORT_IF_CONTIGUOUS, RLK_SUPPORT_IF_CONTIGUOUS);

  const sdk::Support odd = linear_logp(8191).query<Scores>(device);
  EXPECT_EQ(odd.reason_code, "ALIGNMENT") << odd.reason;
  EXPECT_EQ(odd.flags & RLK_SUPPORT_IF_CONTIGUOUS, 0u) << "a copy has rows of the same length";
  EXPECT_NE(odd.reason.find("multiple of 8"), std::string::npos) << odd.reason;
}

TEST_F(ProductsQuery, ABatchInReverseIsDeclinedOfResultsToo) {
  constexpr int64_t kSize = 4, kBatch = 3;
  Device device(0);
  const auto matmul = [&] {
    Arranged<sdk::ops::Matmul> call(RLK_MATMUL_PARAMS_INIT, {kSize, kSize, kSize, 1, 1, kBatch, kBatch});
    for (const int input : {RLK_MATMUL_IN_A, RLK_MATMUL_IN_B}) call.input(input, kF32, {1, kBatch, kSize, kSize});
    call.output(RLK_MATMUL_OUT_Y, kF32, {1, kBatch, kSize, kSize});
    return call;
  };
  using Matmul = products::Implementation<Served, sdk::ops::Matmul>;
  EXPECT_NE(matmul().query<Matmul>(device).level, RLK_SUPPORT_NO);
  for (const bool transposed : {false, true}) {
    auto call = matmul();
    auto& y = call.output(RLK_MATMUL_OUT_Y);
    y.strides[1] = -kSize * kSize;
    if (transposed) std::swap(y.strides[2], y.strides[3]);
    EXPECT_EQ(call.query<Matmul>(device).reason_code, "STRIDES") << transposed;
  }
}

TEST_F(ProductsQuery, GradientsOfF16NeedALibraryThatReadsFactorsFromDeviceMemory) {
  const sdk::Support without = gradients(kF16);
  EXPECT_EQ(without.level, RLK_SUPPORT_NO);
  EXPECT_EQ(without.reason_code, "PRECISION");
  EXPECT_NE(without.reason.find("Acme products"), std::string::npos) << without.reason;
  EXPECT_EQ(gradients(kBf16).level, RLK_SUPPORT_PREFERRED);
  EXPECT_EQ(gradients(kF32).level, RLK_SUPPORT_PREFERRED);

  products::table().numbers.factors_on_device = 1;
  EXPECT_EQ(gradients(kF16).level, RLK_SUPPORT_PREFERRED);

  products::table().numbers.factors_on_device = products::kNone;
  products::table().numbers.alphas_on_device = 4;
  EXPECT_EQ(gradients(kF16).level, RLK_SUPPORT_PREFERRED) << "a vector of alphas";
}

TEST_F(ProductsQuery, WithoutAChoiceOfReductionsNoClassOfNumericsIsClaimed) {
  constexpr uint32_t kClasses = RLK_NUMERICS_ACCURATE | RLK_NUMERICS_DETERMINISTIC;
  constexpr int64_t kSize = 64;
  Device device(0);
  const auto claimed = [&] {
    Arranged<sdk::ops::Linear> call(RLK_LINEAR_PARAMS_INIT, {kSize, kSize, kSize});
    call.input(RLK_LINEAR_IN_X, kBf16, {kSize, kSize});
    call.input(RLK_LINEAR_IN_WEIGHT, kBf16, {kSize, kSize});
    call.output(RLK_LINEAR_OUT_Y, kBf16, {kSize, kSize});
    return call.query<products::Implementation<Served, sdk::ops::Linear>>(device).numerics & kClasses;
  };
  EXPECT_EQ(claimed(), 0u);
  EXPECT_EQ(gradients(kBf16).numerics & kClasses, 0u);
  products::table().numbers.reductions = 3;
  EXPECT_EQ(claimed(), kClasses);
  EXPECT_EQ(gradients(kBf16).numerics & kClasses, RLK_NUMERICS_DETERMINISTIC);
}

TEST_F(ProductsQuery, AnEstimateFollowsTheLibrarysRate) {
  constexpr int64_t kSize = 8192;
  Device device(0);
  const auto cost = [&] {
    Arranged<sdk::ops::Linear> call(RLK_LINEAR_PARAMS_INIT, {kSize, kSize, kSize});
    call.input(RLK_LINEAR_IN_X, kBf16, {kSize, kSize});
    call.input(RLK_LINEAR_IN_WEIGHT, kBf16, {kSize, kSize});
    call.output(RLK_LINEAR_OUT_Y, kBf16, {kSize, kSize});
    return call.query<products::Implementation<Served, sdk::ops::Linear>>(device).cost_us;
  };
  const double plain = cost();
  products::table().work_on = [](const std::string&) { return 0.5; };
  EXPECT_NEAR(cost() / plain, 0.5, 0.01);
}

TEST_F(ProductsQuery, ALibraryThatIsUnfitIsRefusedInItsOwnWords) {
  products::table().unfit = "Acme products are too old";
  const sdk::Support refused = gradients(kF32);
  EXPECT_EQ(refused.level, RLK_SUPPORT_NO);
  EXPECT_EQ(refused.reason_code, "LIBRARY");
  EXPECT_EQ(refused.reason, "Acme products are too old");
}

}  // namespace
}  // namespace rlk::simt::host
