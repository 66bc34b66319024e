// Are calls declined where they should be, in words that say what was seen and what is supported?
#include <gtest/gtest.h>
#include <rlk/sdk.hpp>
#include <rlk/sdk/ops/policy_loss.hpp>
#include <rlk/sdk/ops/relu.hpp>

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

template <class Op>
Refusal refuse_all_but_clip_low_and_beta(const typename Op::Params& params) {
  rlk_call_desc desc{};
  desc.params = &params;
  return refuse_other_params(Call<Op>(desc), &Op::Params::clip_low, &Op::Params::beta);
}

TEST(Refuse, EveryParameterButThoseNamed) {
  using Op = ops::PolicyLoss;
  rlk_policy_loss_params params = RLK_POLICY_LOSS_PARAMS_INIT;
  EXPECT_FALSE(refuse_all_but_clip_low_and_beta<Op>(params));
  params.clip_low = 0.1;
  params.beta = 0.5;
  EXPECT_FALSE(refuse_all_but_clip_low_and_beta<Op>(params));
  // Each of the others in turn, whatever its type.
  const uint32_t count = (sizeof(params) - 8) / 8;
  uint32_t refused = 0;
  for (uint32_t i = 0; i < count; ++i) {
    rlk_policy_loss_params other = params;
    auto* const byte = reinterpret_cast<unsigned char*>(&other) + 8 + size_t{8} * i;
    *byte = static_cast<unsigned char>(*byte ^ 1);
    const Refusal no = refuse_all_but_clip_low_and_beta<Op>(other);
    if (!no) continue;
    ++refused;
    EXPECT_EQ(no->reason_code, "PARAMETER");
    EXPECT_EQ(no->reason.rfind(std::string(Op::kParamNames[i]) + " is not at its default", 0), 0u) << no->reason;
  }
  EXPECT_EQ(refused, count - 2);
  EXPECT_EQ(Op::kParamNames[count], nullptr) << "a name for each";
}

TEST(Refuse, NoParameterWhereThereIsNone) {
  const rlk_relu_params params = RLK_RELU_PARAMS_INIT;
  rlk_call_desc desc{};
  desc.params = &params;
  EXPECT_FALSE(refuse_other_params(Call<ops::Relu>(desc)));
}

class BoundOf : public Plan {
public:
  BoundOf(uint64_t dynamic, uint64_t queried) {
    dynamic_symbols = dynamic;
    Support support;
    support.workspace_bound = queried;
    rlk::sdk::detail::take_bound(support, *this);
  }
  void enqueue(Stream&, const Run&) override {}
};

TEST(WorkspaceBound, IsThatOfQueryWhereThePlanStatesNone) {
  EXPECT_EQ(BoundOf(0, 4096).workspace_bound, 4096u);
  EXPECT_EQ(BoundOf(0, 0).workspace_bound, 0u);
  EXPECT_EQ(BoundOf(1, 0).workspace_bound, 0u);
  EXPECT_EQ(BoundOf(1, 4096).workspace_bound, UINT64_MAX) << "of other sizes nothing was said: prepare is asked";
}

}  // namespace
