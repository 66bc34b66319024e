// Are calls declined where they should be, in words that say what was seen and what is supported?
#include <gtest/gtest.h>
#include <rlk/sdk.hpp>

namespace {

using namespace rlk::sdk;

// A matrix of 3 x 4 elements whose rows are `row` elements apart.
struct Matrix {
  explicit Matrix(rlk_dtype dtype, int64_t row = 4, int64_t column = 1) : strides{row, column} {
    tensor.struct_size = sizeof(tensor);
    tensor.shape = shape;
    tensor.strides = strides;
    tensor.ndim = 2;
    tensor.dtype = dtype;
  }
  Matrix(const Matrix&) = delete;
  Matrix& operator=(const Matrix&) = delete;
  int64_t shape[2] = {3, 4};
  int64_t strides[2];
  rlk_tensor tensor{};
};
constexpr rlk_dtype kF32 = {RLK_DTYPE_FLOAT, 32, 1}, kBf16 = {RLK_DTYPE_BFLOAT, 16, 1};

TEST(Refuse, NothingAboutAnAbsentTensor) {
  EXPECT_FALSE(refuse_dtype(nullptr, "x", {Dtype::f32}));
  EXPECT_FALSE(refuse_gaps(nullptr, "x"));
  EXPECT_FALSE(refuse_strided_rows(nullptr, "x", "columns"));
  EXPECT_FALSE(refuse_input(nullptr, "x"));
  EXPECT_FALSE(refuse_output(nullptr, "x"));
}

TEST(Refuse, ADtypeThatIsNotSupported) {
  const Matrix matrix(kBf16);
  EXPECT_FALSE(refuse_dtype(&matrix.tensor, "q", {Dtype::f16, Dtype::bf16}));
  const Refusal no = refuse_dtype(&matrix.tensor, "q", {Dtype::f32, Dtype::f64});
  ASSERT_TRUE(no);
  EXPECT_EQ(no->level, RLK_SUPPORT_NO);
  EXPECT_EQ(no->reason_code, "DTYPE");
  EXPECT_EQ(no->reason, "q is bf16; supported: f32, f64");
}

TEST(Refuse, GapsSoThatTheHostMayCloseThem) {
  const Matrix dense(kF32), gaps(kF32, 8), transposed(kF32, 1, 3);
  EXPECT_FALSE(refuse_gaps(&dense.tensor, "logits"));
  const Refusal no = refuse_gaps(&gaps.tensor, "logits");
  ASSERT_TRUE(no);
  EXPECT_EQ(no->reason_code, "STRIDES");
  EXPECT_EQ(no->reason, "logits must be contiguous");
  EXPECT_EQ(no->flags, RLK_SUPPORT_IF_CONTIGUOUS);

  EXPECT_FALSE(refuse_strided_rows(&gaps.tensor, "logits", "vocabulary"));
  const Refusal strided = refuse_strided_rows(&transposed.tensor, "logits", "vocabulary");
  ASSERT_TRUE(strided);
  EXPECT_EQ(strided->reason, "logits must be contiguous along the vocabulary");
}

TEST(Refuse, AnArgumentThatIsNotSupported) {
  const Matrix matrix(kF32);
  EXPECT_EQ(refuse_input(&matrix.tensor, "bias")->reason, "bias is not supported");
  EXPECT_EQ(refuse_input(&matrix.tensor, "bias")->reason_code, "INPUT");
  EXPECT_EQ(refuse_output(&matrix.tensor, "entropy")->reason_code, "OUTPUT");
}

TEST(Refuse, ClassesThatAreDemandedAndNotOffered) {
  EXPECT_FALSE(refuse_numerics(RLK_NUMERICS_TOLERANCE, 0));
  EXPECT_FALSE(refuse_numerics(RLK_NUMERICS_DETERMINISTIC, RLK_NUMERICS_DETERMINISTIC | RLK_NUMERICS_BATCH_INVARIANT));
  const Refusal no = refuse_numerics(RLK_NUMERICS_ACCURATE | RLK_NUMERICS_PORTABLE | RLK_NUMERICS_DETERMINISTIC,
                                     RLK_NUMERICS_DETERMINISTIC);
  ASSERT_TRUE(no);
  EXPECT_EQ(no->reason_code, "NUMERICS");
  EXPECT_EQ(no->reason, "demanded and not offered: accurate, portable");
}

TEST(DtypeMap, HasWhatTheVendorHas) {
  constexpr DtypeMap<int, 2> kTypes = {{{{Dtype::f32, 11}, {Dtype::bf16, 12}}}};
  static_assert(*kTypes.find(Dtype::bf16) == 12);
  EXPECT_EQ(kTypes.at(Dtype::f32), 11);
  EXPECT_EQ(kTypes.find(Dtype::f64), nullptr);
  EXPECT_THROW(kTypes.at(Dtype::f64), Error);
  EXPECT_EQ(bytes_of(Dtype::bf16), 2);
  EXPECT_EQ(bytes_of(Dtype::i64), 8);
  EXPECT_EQ(bytes_of(Dtype::other), 0);
}

}  // namespace
