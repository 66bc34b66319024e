// Do the simulated operators compute what the vendor documents? Hand-computed values.
#include <cmath>
#include <limits>

#include "fixture.hpp"

namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

class Primitives : public ascend_fake::Fixture {
protected:
  void* memory = nullptr;  // of the output
};

TEST_F(Primitives, add_broadcasts_and_scales) {
  aclTensor* out = empty_like<float>({2, 3}, &memory);
  ASSERT_EQ(call(aclnnAddGetWorkspaceSize, aclnnAdd, tensor<float>({2, 1}, {1, 2}), tensor<float>({3}, {10, 20, 30}),
                 scalar(0.5F), out),
            ACL_SUCCESS);
  EXPECT_EQ(read<float>(memory, 6), (std::vector<float>{6, 11, 16, 7, 12, 17}));
}

TEST_F(Primitives, add_of_bf16_rounds_the_scaled_summand_first) {
  // 1 + 3 * 1.0078125 (bf16 0x3f81): the product 3.0234375 is a tie between bf16 neighbours 3.015625 and 3.03125 and
  // goes to the even 3.03125 (0x4042); the sum 4.03125 has spacing 2^-5 and is exact.
  aclTensor* out = empty_like<uint16_t>({1}, &memory, ACL_BF16);
  const auto bf16 = [&](uint16_t bits) { return tensor<uint16_t>({1}, {bits}, nullptr, ACL_BF16); };
  ASSERT_EQ(call(aclnnAddGetWorkspaceSize, aclnnAdd, bf16(0x3f80), bf16(0x3f81), scalar(3.0F), out), ACL_SUCCESS);
  EXPECT_EQ(read<uint16_t>(memory, 1)[0], 0x4081);
}

TEST_F(Primitives, integers_and_bools) {
  aclTensor* sum = empty_like<int64_t>({2}, &memory);
  ASSERT_EQ(call(aclnnAddsGetWorkspaceSize, aclnnAdds, tensor<int64_t>({2}, {int64_t{1} << 60, -3}), scalar<int64_t>(1),
                 scalar<int64_t>(1), sum),
            ACL_SUCCESS);
  EXPECT_EQ(read<int64_t>(memory, 2), (std::vector<int64_t>{(int64_t{1} << 60) + 1, -2}));
  aclTensor* both = empty_like<uint8_t>({4}, &memory, ACL_BOOL);
  ASSERT_EQ(call(aclnnMulGetWorkspaceSize, aclnnMul, tensor<uint8_t>({4}, {0, 0, 1, 1}, nullptr, ACL_BOOL),
                 tensor<uint8_t>({4}, {0, 1, 0, 1}, nullptr, ACL_BOOL), both),
            ACL_SUCCESS);
  EXPECT_EQ(read<uint8_t>(memory, 4), (std::vector<uint8_t>{0, 0, 0, 1}));
}

TEST_F(Primitives, unary_functions) {
  aclTensor* out = empty_like<float>({3}, &memory);
  aclTensor* in = tensor<float>({3}, {-kInf, 0, 1});
  ASSERT_EQ(call(aclnnExpGetWorkspaceSize, aclnnExp, in, out), ACL_SUCCESS);
  EXPECT_EQ(read<float>(memory, 3), (std::vector<float>{0, 1, std::exp(1.0F)}));
  ASSERT_EQ(call(aclnnTanhGetWorkspaceSize, aclnnTanh, in, out), ACL_SUCCESS);
  EXPECT_EQ(read<float>(memory, 3), (std::vector<float>{-1, 0, std::tanh(1.0F)}));
  ASSERT_EQ(call(aclnnLogGetWorkspaceSize, aclnnLog, tensor<float>({3}, {0, 1, 8}), out), ACL_SUCCESS);
  EXPECT_EQ(read<float>(memory, 3), (std::vector<float>{-kInf, 0, std::log(8.0F)}));
}

// Of whole numbers, to the last bit; from FLOAT only those that the vendor speaks of.
TEST_F(Primitives, integers_of_64_bits) {
  aclTensor* out = empty_like<int64_t>({3}, &memory);
  aclTensor* a = tensor<int64_t>({3}, {-6, 0x7fffffffffffffff, 0xff00ff00ff});
  aclTensor* b = tensor<int64_t>({3}, {0xffffffff, 1, 0x0ff00ff00f});
  ASSERT_EQ(call(aclnnBitwiseAndTensorGetWorkspaceSize, aclnnBitwiseAndTensor, a, b, out), ACL_SUCCESS);
  EXPECT_EQ(read<int64_t>(memory, 3), (std::vector<int64_t>{0xfffffffa, 1, 0x0f000f000f}));
  ASSERT_EQ(call(aclnnBitwiseXorTensorGetWorkspaceSize, aclnnBitwiseXorTensor, a, b, out), ACL_SUCCESS);
  EXPECT_EQ(read<int64_t>(memory, 3),
            (std::vector<int64_t>{-6 ^ int64_t{0xffffffff}, 0x7ffffffffffffffe, 0xf0f0f0f0f0}));
  aclTensor* sum = empty_like<int64_t>({1}, &memory);
  ASSERT_EQ(call(aclnnReduceSumGetWorkspaceSize, aclnnReduceSum, tensor<int64_t>({3}, {0x7ffffffffffffff0, -5, 6}),
                 ints({0}), true, int32_t{ACL_INT64}, sum),
            ACL_SUCCESS);
  EXPECT_EQ(read<int64_t>(memory, 1), std::vector<int64_t>{0x7ffffffffffffff1});

  out = empty_like<int64_t>({4}, &memory);
  ASSERT_EQ(call(aclnnCastGetWorkspaceSize, aclnnCast, tensor<float>({4}, {-7, 2147483520, 2147483648.0F, 0.5F}),
                 int32_t{ACL_INT64}, out),
            ACL_SUCCESS);
  const std::vector<int64_t> whole = read<int64_t>(memory, 4);
  EXPECT_EQ(whole[0], -7);
  EXPECT_EQ(whole[1], 2147483520);
  EXPECT_NE(whole[2], 2147483648);
  EXPECT_NE(whole[3], 0);
  aclTensor* down = empty_like<float>({3}, &memory);
  ASSERT_EQ(call(aclnnFloorGetWorkspaceSize, aclnnFloor, tensor<float>({3}, {-0.5F, 7, 7.9F}), down), ACL_SUCCESS);
  EXPECT_EQ(read<float>(memory, 3), (std::vector<float>{-1, 7, 7}));
}

TEST_F(Primitives, differences_products_quotients) {
  aclTensor* out = empty_like<float>({2}, &memory);
  aclTensor* a = tensor<float>({2}, {6, 9});
  aclTensor* b = tensor<float>({2}, {2, 3});
  ASSERT_EQ(call(aclnnSubGetWorkspaceSize, aclnnSub, a, b, scalar(2.0F), out), ACL_SUCCESS);
  EXPECT_EQ(read<float>(memory, 2), (std::vector<float>{2, 3}));
  ASSERT_EQ(call(aclnnDivGetWorkspaceSize, aclnnDiv, a, b, out), ACL_SUCCESS);
  EXPECT_EQ(read<float>(memory, 2), (std::vector<float>{3, 3}));
  ASSERT_EQ(call(aclnnMulsGetWorkspaceSize, aclnnMuls, a, scalar(-1.0F), out), ACL_SUCCESS);
  EXPECT_EQ(read<float>(memory, 2), (std::vector<float>{-6, -9}));
  ASSERT_EQ(call(aclnnDivsGetWorkspaceSize, aclnnDivs, a, scalar(4.0F), out), ACL_SUCCESS);
  EXPECT_EQ(read<float>(memory, 2), (std::vector<float>{1.5F, 2.25F}));
  ASSERT_EQ(call(aclnnInplaceAddGetWorkspaceSize, aclnnInplaceAdd, out, a, scalar(2.0F)), ACL_SUCCESS);
  EXPECT_EQ(read<float>(memory, 2), (std::vector<float>{13.5F, 20.25F}));
}

TEST_F(Primitives, clamps_keep_nan) {
  aclTensor* out = empty_like<float>({3}, &memory);
  ASSERT_EQ(call(aclnnClampMinGetWorkspaceSize, aclnnClampMin, tensor<float>({3}, {-kInf, 5, NAN}), scalar(-2.0F), out),
            ACL_SUCCESS);
  const auto values = read<float>(memory, 3);
  EXPECT_EQ(values[0], -2);
  EXPECT_EQ(values[1], 5);
  EXPECT_TRUE(std::isnan(values[2]));
  aclTensor* ids = empty_like<int64_t>({3}, &memory);
  ASSERT_EQ(call(aclnnClampGetWorkspaceSize, aclnnClamp, tensor<int64_t>({3}, {-7, 3, 99}), scalar<int64_t>(0),
                 scalar<int64_t>(9), ids),
            ACL_SUCCESS);
  EXPECT_EQ(read<int64_t>(memory, 3), (std::vector<int64_t>{0, 3, 9}));
}

TEST_F(Primitives, comparisons_and_selection) {
  aclTensor* out = empty_like<uint8_t>({3}, &memory, ACL_BOOL);
  aclTensor* a = tensor<float>({3}, {1, 2, NAN});
  ASSERT_EQ(call(aclnnEqTensorGetWorkspaceSize, aclnnEqTensor, a, tensor<float>({1}, {2}), out), ACL_SUCCESS);
  EXPECT_EQ(read<uint8_t>(memory, 3), (std::vector<uint8_t>{0, 1, 0}));
  ASSERT_EQ(call(aclnnLtTensorGetWorkspaceSize, aclnnLtTensor, a, tensor<float>({1}, {2}), out), ACL_SUCCESS);
  EXPECT_EQ(read<uint8_t>(memory, 3), (std::vector<uint8_t>{1, 0, 0}));
  ASSERT_EQ(call(aclnnLtScalarGetWorkspaceSize, aclnnLtScalar, a, scalar(1.5F), out), ACL_SUCCESS);
  EXPECT_EQ(read<uint8_t>(memory, 3), (std::vector<uint8_t>{1, 0, 0}));
  void* chosen = nullptr;
  ASSERT_EQ(call(aclnnSWhereGetWorkspaceSize, aclnnSWhere, out, tensor<float>({1}, {7}), tensor<float>({3}, {1, 2, 3}),
                 empty_like<float>({3}, &chosen)),
            ACL_SUCCESS);
  EXPECT_EQ(read<float>(chosen, 3), (std::vector<float>{7, 2, 3}));
}

TEST_F(Primitives, casts_round_to_nearest_even) {
  aclTensor* half = empty_like<uint16_t>({5}, &memory, ACL_FLOAT16);
  ASSERT_EQ(call(aclnnCastGetWorkspaceSize, aclnnCast,
                 tensor<float>({5}, {1, 65520, 5.9604645e-08F, 1.00048828125F, -0.0F}), ACL_FLOAT16, half),
            ACL_SUCCESS);
  EXPECT_EQ(read<uint16_t>(memory, 5), (std::vector<uint16_t>{0x3c00, 0x7c00, 0x0001, 0x3c00, 0x8000}));
  aclTensor* bfloat = empty_like<uint16_t>({2}, &memory, ACL_BF16);
  ASSERT_EQ(
      call(aclnnCastGetWorkspaceSize, aclnnCast, tensor<float>({2}, {1.00390625F, 1.01171875F}), ACL_BF16, bfloat),
      ACL_SUCCESS);
  EXPECT_EQ(read<uint16_t>(memory, 2), (std::vector<uint16_t>{0x3f80, 0x3f82}));
  aclTensor* wide = empty_like<int64_t>({3}, &memory);
  ASSERT_EQ(call(aclnnCastGetWorkspaceSize, aclnnCast, tensor<int32_t>({3}, {-1, 0, 2147483647}), ACL_INT64, wide),
            ACL_SUCCESS);
  EXPECT_EQ(read<int64_t>(memory, 3), (std::vector<int64_t>{-1, 0, 2147483647}));
  aclTensor* flags = empty_like<uint8_t>({3}, &memory, ACL_BOOL);
  ASSERT_EQ(call(aclnnCastGetWorkspaceSize, aclnnCast, tensor<uint8_t>({3}, {0, 2, 255}), ACL_BOOL, flags),
            ACL_SUCCESS);
  EXPECT_EQ(read<uint8_t>(memory, 3), (std::vector<uint8_t>{0, 1, 1}));
}

TEST_F(Primitives, views_have_strides_and_offsets) {
  void* storage = nullptr;
  tensor<float>({12}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, &storage);
  aclTensor* transposed = view(storage, ACL_FLOAT, {2, 3}, {1, 4}, 1, 12);  // columns 1 and 2 of [3, 4]
  aclTensor* out = empty_like<float>({2, 3}, &memory);
  ASSERT_EQ(call(aclnnInplaceCopyGetWorkspaceSize, aclnnInplaceCopy, out, transposed), ACL_SUCCESS);
  EXPECT_EQ(read<float>(memory, 6), (std::vector<float>{1, 5, 9, 2, 6, 10}));
  ASSERT_EQ(call(aclnnInplaceZeroGetWorkspaceSize, aclnnInplaceZero, transposed), ACL_SUCCESS);
  EXPECT_EQ(read<float>(storage, 12), (std::vector<float>{0, 0, 0, 3, 4, 0, 0, 7, 8, 0, 0, 11}));
}

TEST_F(Primitives, fills) {
  aclTensor* out = empty_like<float>({2, 2}, &memory);
  ASSERT_EQ(call(aclnnInplaceFillScalarGetWorkspaceSize, aclnnInplaceFillScalar, out, scalar(3.0F)), ACL_SUCCESS);
  ASSERT_EQ(call(aclnnInplaceMaskedFillScalarGetWorkspaceSize, aclnnInplaceMaskedFillScalar, out,
                 tensor<uint8_t>({2, 1}, {0, 1}, nullptr, ACL_BOOL), scalar(-kInf)),
            ACL_SUCCESS);
  EXPECT_EQ(read<float>(memory, 4), (std::vector<float>{3, 3, -kInf, -kInf}));
  aclTensor* range = empty_like<int64_t>({3}, &memory);
  ASSERT_EQ(call(aclnnArangeGetWorkspaceSize, aclnnArange, scalar<int64_t>(5), scalar<int64_t>(11), scalar<int64_t>(2),
                 range),
            ACL_SUCCESS);
  EXPECT_EQ(read<int64_t>(memory, 3), (std::vector<int64_t>{5, 7, 9}));
}

TEST_F(Primitives, sums_and_maxima) {
  aclTensor* matrix = tensor<float>({2, 3}, {1, 2, 3, 6, 5, -kInf});
  ASSERT_EQ(call(aclnnReduceSumGetWorkspaceSize, aclnnReduceSum, matrix, ints({0}), false, int32_t{ACL_FLOAT},
                 empty_like<float>({3}, &memory)),
            ACL_SUCCESS);
  EXPECT_EQ(read<float>(memory, 3), (std::vector<float>{7, 7, -kInf}));
  void* where = nullptr;
  ASSERT_EQ(call(aclnnMaxDimGetWorkspaceSize, aclnnMaxDim, matrix, int64_t{1}, true, empty_like<float>({2, 1}, &memory),
                 empty_like<int32_t>({2, 1}, &where)),
            ACL_SUCCESS);
  EXPECT_EQ(read<float>(memory, 2), (std::vector<float>{3, 6}));
  EXPECT_EQ(read<int32_t>(where, 2), (std::vector<int32_t>{2, 0}));
}

TEST_F(Primitives, gathers_and_scatters) {
  void* storage = nullptr;
  aclTensor* matrix = tensor<float>({3, 2}, {1, 2, 3, 4, 5, 6}, &storage);
  ASSERT_EQ(call(aclnnGatherGetWorkspaceSize, aclnnGather, matrix, int64_t{1}, tensor<int64_t>({3, 1}, {1, 0, 1}),
                 empty_like<float>({3, 1}, &memory)),
            ACL_SUCCESS);
  EXPECT_EQ(read<float>(memory, 3), (std::vector<float>{2, 3, 6}));
  ASSERT_EQ(call(aclnnIndexSelectGetWorkspaceSize, aclnnIndexSelect, matrix, int64_t{0}, tensor<int64_t>({2}, {2, 0}),
                 empty_like<float>({2, 2}, &memory)),
            ACL_SUCCESS);
  EXPECT_EQ(read<float>(memory, 4), (std::vector<float>{5, 6, 1, 2}));
  ASSERT_EQ(call(aclnnInplaceIndexCopyGetWorkspaceSize, aclnnInplaceIndexCopy, matrix, int64_t{0},
                 tensor<int64_t>({1}, {1}), tensor<float>({1, 2}, {8, 9})),
            ACL_SUCCESS);
  EXPECT_EQ(read<float>(storage, 6), (std::vector<float>{1, 2, 8, 9, 5, 6}));
}

TEST_F(Primitives, sorts_keep_the_order_of_equals_where_it_is_asked_for) {
  aclTensor* matrix = tensor<float>({2, 3}, {2, 1, 1, -kInf, 5, 4});
  void* where = nullptr;
  const auto sort = [&](bool stable, bool descending) {
    EXPECT_EQ(call(aclnnSortGetWorkspaceSize, aclnnSort, matrix, stable, int64_t{1}, descending,
                   empty_like<float>({2, 3}, &memory), empty_like<int64_t>({2, 3}, &where)),
              ACL_SUCCESS);
  };
  sort(true, false);
  EXPECT_EQ(read<float>(memory, 6), (std::vector<float>{1, 1, 2, -kInf, 4, 5}));
  EXPECT_EQ(read<int64_t>(where, 6), (std::vector<int64_t>{1, 2, 0, 0, 2, 1}));
  sort(false, false);
  EXPECT_EQ(read<int64_t>(where, 6), (std::vector<int64_t>{2, 1, 0, 0, 2, 1}));
  sort(true, true);
  EXPECT_EQ(read<int64_t>(where, 6), (std::vector<int64_t>{0, 1, 2, 1, 2, 0}));
  uint64_t bytes = 0;
  aclOpExecutor* executor = nullptr;
  aclTensor* halves = tensor<uint16_t>({1, 2}, {0, 0}, nullptr, ACL_BF16);
  EXPECT_EQ(
      aclnnSortGetWorkspaceSize(halves, true, 1, false, halves, empty_like<int64_t>({1, 2}, &where), &bytes, &executor),
      ACLNN_ERR_PARAM_INVALID);
}

TEST_F(Primitives, gates_and_norms) {
  ASSERT_EQ(call(aclnnSwiGluGetWorkspaceSize, aclnnSwiGlu, tensor<float>({1, 4}, {0, 1, 3, 2}), int64_t{1},
                 empty_like<float>({1, 2}, &memory)),
            ACL_SUCCESS);
  EXPECT_EQ(read<float>(memory, 2), (std::vector<float>{0, 1 / (1 + std::exp(-1.0F)) * 2}));
  void* root = nullptr;
  // Rows of mean squares 4 and 16, the second but for the rounding of the root of 32.
  ASSERT_EQ(call(aclnnRmsNormGetWorkspaceSize, aclnnRmsNorm, tensor<float>({2, 2}, {2, -2, 0, std::sqrt(32.0F)}),
                 tensor<float>({2}, {3, 1}), 0.0, empty_like<float>({2, 2}, &memory), empty_like<float>({2, 1}, &root)),
            ACL_SUCCESS);
  EXPECT_EQ(read<float>(memory, 3), (std::vector<float>{3, -1, 0}));
  EXPECT_FLOAT_EQ(read<float>(root, 2)[0], 0.5F);
  EXPECT_FLOAT_EQ(read<float>(root, 2)[1], 0.25F);
  void* sum = nullptr;
  ASSERT_EQ(call(aclnnAddRmsNormGetWorkspaceSize, aclnnAddRmsNorm, tensor<float>({1, 2}, {1, 1}),
                 tensor<float>({1, 2}, {1, -3}), tensor<float>({2}, {3, 1}), 0.0, empty_like<float>({1, 2}, &memory),
                 empty_like<float>({1, 1}, &root), empty_like<float>({1, 2}, &sum)),
            ACL_SUCCESS);
  EXPECT_EQ(read<float>(memory, 2), (std::vector<float>{3, -1}));
  EXPECT_EQ(read<float>(sum, 2), (std::vector<float>{2, -2}));
}

TEST_F(Primitives, softmaxes_and_their_gradients) {
  aclTensor* const x = tensor<float>({2, 2}, {0, std::log(3.0F), -kInf, 5});
  aclTensor* const out = empty_like<float>({2, 2}, &memory);
  ASSERT_EQ(call(aclnnSoftmaxGetWorkspaceSize, aclnnSoftmax, x, int64_t{1}, out), ACL_SUCCESS);
  auto values = read<float>(memory, 4);
  EXPECT_FLOAT_EQ(values[0], 0.25F);
  EXPECT_FLOAT_EQ(values[1], 0.75F);
  EXPECT_EQ(values[2], 0);
  EXPECT_EQ(values[3], 1);
  ASSERT_EQ(call(aclnnLogSoftmaxGetWorkspaceSize, aclnnLogSoftmax, x, int64_t{-1}, out), ACL_SUCCESS);
  values = read<float>(memory, 4);
  EXPECT_FLOAT_EQ(values[0], std::log(0.25F));
  EXPECT_EQ(values[2], -kInf);
  // grad y - y sum(grad y), and grad - exp(y) sum(grad).
  aclTensor* const grad = tensor<float>({1, 2}, {4, 8});
  aclTensor* const to = empty_like<float>({1, 2}, &memory);
  ASSERT_EQ(call(aclnnSoftmaxBackwardGetWorkspaceSize, aclnnSoftmaxBackward, grad,
                 tensor<float>({1, 2}, {0.25F, 0.75F}), int64_t{1}, to),
            ACL_SUCCESS);
  EXPECT_EQ(read<float>(memory, 2), (std::vector<float>{-0.75F, 0.75F}));
  ASSERT_EQ(call(aclnnLogSoftmaxBackwardGetWorkspaceSize, aclnnLogSoftmaxBackward, grad,
                 tensor<float>({1, 2}, {0, -kInf}), int64_t{1}, to),
            ACL_SUCCESS);
  EXPECT_EQ(read<float>(memory, 2), (std::vector<float>{-8, 8}));
}

TEST_F(Primitives, rotary_embedding_of_halves_and_of_neighbours) {
  aclTensor* const x = tensor<float>({1, 1, 1, 4}, {1, 2, 3, 4});
  aclTensor* const cos = tensor<float>({1, 1, 1, 4}, {1, 0, 1, 0});
  aclTensor* const sin = tensor<float>({1, 1, 1, 4}, {0, 1, 2, 1});
  aclTensor* const out = empty_like<float>({1, 1, 1, 4}, &memory);
  ASSERT_EQ(
      call(aclnnRotaryPositionEmbeddingGetWorkspaceSize, aclnnRotaryPositionEmbedding, x, cos, sin, int64_t{0}, out),
      ACL_SUCCESS);
  EXPECT_EQ(read<float>(memory, 4), (std::vector<float>{1, -4, 3 + 2, 2}));
  ASSERT_EQ(
      call(aclnnRotaryPositionEmbeddingGetWorkspaceSize, aclnnRotaryPositionEmbedding, x, cos, sin, int64_t{1}, out),
      ACL_SUCCESS);
  EXPECT_EQ(read<float>(memory, 4), (std::vector<float>{1, 1, 3 - 8, 3}));
}

TEST_F(Primitives, products_broadcast_batches_keep_fp32_and_round_16_bits_once) {
  constexpr int8_t kKeepDtype = 0, kUseHf32 = 3;
  aclTensor* out = empty_like<float>({2, 1, 2}, &memory);
  ASSERT_EQ(call(aclnnMatmulGetWorkspaceSize, aclnnMatmul, tensor<float>({2, 1, 2}, {1, 2, 3, 4}),
                 tensor<float>({1, 2, 2}, {1, 10, 100, 1000}), out, kKeepDtype),
            ACL_SUCCESS);
  EXPECT_EQ(read<float>(memory, 4), (std::vector<float>{201, 2010, 403, 4030}));
  const float number = 1 + 0x1p-14F;
  const auto square = [&](int8_t type) {
    aclTensor* one = empty_like<float>({1, 1}, &memory);
    EXPECT_EQ(call(aclnnMatmulGetWorkspaceSize, aclnnMatmul, tensor<float>({1, 1}, {number}),
                   tensor<float>({1, 1}, {1}), one, type),
              ACL_SUCCESS);
    return read<float>(memory, 1)[0];
  };
  EXPECT_EQ(square(kKeepDtype), number);
  EXPECT_EQ(square(kUseHf32), 1);
  // 256 + 1 + 1 in bf16: rounded after each sum it would stay 256.
  aclTensor* sum = empty_like<uint16_t>({1, 1}, &memory, ACL_BF16);
  ASSERT_EQ(call(aclnnMatmulGetWorkspaceSize, aclnnMatmul,
                 tensor<uint16_t>({1, 3}, {0x4380, 0x3f80, 0x3f80}, nullptr, ACL_BF16),
                 tensor<uint16_t>({3, 1}, {0x3f80, 0x3f80, 0x3f80}, nullptr, ACL_BF16), sum, kKeepDtype),
            ACL_SUCCESS);
  EXPECT_EQ(read<uint16_t>(memory, 1)[0], 0x4381);
}

TEST_F(Primitives, wrong_shapes_are_a_status) {
  aclTensor* out = empty_like<float>({4}, &memory);
  uint64_t bytes = 0;
  aclOpExecutor* executor = nullptr;
  EXPECT_EQ(aclnnExpGetWorkspaceSize(tensor<float>({2}, {1, 2}), out, &bytes, &executor), ACLNN_ERR_PARAM_INVALID);
  EXPECT_EQ(aclnnExpGetWorkspaceSize(nullptr, out, &bytes, &executor), ACLNN_ERR_PARAM_NULLPTR);
}

TEST_F(Primitives, repeatable_executor_is_rebound) {
  void* first = nullptr;
  void* second = nullptr;
  // The executor destroys the tensors it holds, so the fixture must not know them.
  tensor<float>({2}, {0, 1}, &first);
  tensor<float>({2}, {2, 3}, &second);
  memory = allocate(8);
  const int64_t two = 2;
  aclTensor* in = aclCreateTensor(&two, 1, ACL_FLOAT, nullptr, 0, ACL_FORMAT_ND, &two, 1, nullptr);
  aclTensor* out = aclCreateTensor(&two, 1, ACL_FLOAT, nullptr, 0, ACL_FORMAT_ND, &two, 1, nullptr);
  const uint64_t live = fakeAscendLiveExecutors();
  uint64_t bytes = 0;
  aclOpExecutor* executor = nullptr;
  ASSERT_EQ(aclnnExpGetWorkspaceSize(in, out, &bytes, &executor), ACL_SUCCESS);
  ASSERT_EQ(aclSetAclOpExecutorRepeatable(executor), ACL_SUCCESS);
  void* workspace = allocate(bytes);
  ASSERT_EQ(aclSetOutputTensorAddr(executor, 0, out, memory), ACL_SUCCESS);
  for (void* source : {first, second}) {
    ASSERT_EQ(aclSetInputTensorAddr(executor, 0, in, source), ACL_SUCCESS);
    ASSERT_EQ(aclnnExp(workspace, bytes, executor, stream), ACL_SUCCESS);
    ASSERT_EQ(aclrtSynchronizeStream(stream), ACL_SUCCESS);
    const float base = source == first ? 0.0F : 2.0F;
    EXPECT_EQ(read<float>(memory, 2), (std::vector<float>{std::exp(base), std::exp(base + 1)}));
  }
  EXPECT_EQ(aclDestroyAclOpExecutor(executor), ACL_SUCCESS);
  EXPECT_EQ(fakeAscendLiveExecutors(), live);
}

}  // namespace
