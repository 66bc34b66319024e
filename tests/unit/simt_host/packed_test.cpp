// Strided tensors of operators that want contiguous ones: are they packed on the device, in the call's workspace, and
// is what was written copied back?
#include <gtest/gtest.h>

#include "plugins/cuda/attention_parts_mma.hpp"
#include "plugins/simt/host/operators.hpp"
#include "tests/unit/simt_host/operator_calls.hpp"

namespace rlk::simt::host {
namespace {

using Names = std::vector<std::string>;

class PackedTest : public OperatorTest {
protected:
  // logp of four rows, bf16.
  Arranged<sdk::ops::Logp> logp() {
    Arranged<sdk::ops::Logp> call(RLK_LOGP_PARAMS_INIT, {4, 4, 512});
    call.input(RLK_LOGP_IN_LOGITS, kBf16, {4, 512});
    call.input(RLK_LOGP_IN_IDS, kI64, {4});
    call.output(RLK_LOGP_OUT_LOGP, kF32, {4});
    return call;
  }
};

TEST_F(PackedTest, ATransposedInputIsCopiedOnTheDeviceFirst) {
  Device device(0);
  Arranged<sdk::ops::Logp> plain = logp();
  const Names kernels = plain.launch<Packed<Logp>>(device);
  const uint64_t workspace = plain.workspace_bytes;

  Arranged<sdk::ops::Logp> call = logp();
  call.input(RLK_LOGP_IN_LOGITS).strides = {1, 4};
  EXPECT_EQ(call.query<Logp>(device).reason_code, "STRIDES");
  const sdk::Support support = call.query<Packed<Logp>>(device);
  EXPECT_NE(support.level, RLK_SUPPORT_NO) << support.reason;
  EXPECT_GT(support.cost_us, plain.query<Packed<Logp>>(device).cost_us);
  Names expected = {"move_map_Copy_b2"};
  expected.insert(expected.end(), kernels.begin(), kernels.end());
  EXPECT_EQ(call.launch<Packed<Logp>>(device), expected);
  EXPECT_EQ(call.workspace_bytes, workspace + 4 * 512 * 2);
}

TEST_F(PackedTest, AStridedOutputIsCopiedBack) {
  Device device(0);
  rlk_attention_params params = RLK_ATTENTION_PARAMS_INIT;
  Arranged<sdk::ops::Attention> call(params, {1, 4, 4, -1, -1, 2, 2, 16});
  for (const uint32_t input : {RLK_ATTENTION_IN_Q, RLK_ATTENTION_IN_K, RLK_ATTENTION_IN_V}) {
    call.input(input, kF32, {1, 4, 2, 16});
  }
  call.output(RLK_ATTENTION_OUT_OUT, kF32, {1, 4, 2, 16});
  call.output(RLK_ATTENTION_OUT_OUT).strides = {128, 2, 8, 8};
  EXPECT_EQ(call.query<AttentionSimt>(device).reason_code, "STRIDES");
  EXPECT_EQ(call.launch<Packed<AttentionSimt>>(device), (Names{"attention_simt_f32", "move_map_Copy_b4"}));
}

TEST_F(PackedTest, WhatNoStrideWouldMendIsDeclinedAsBefore) {
  Device device(0);
  Arranged<sdk::ops::Attention> call(RLK_ATTENTION_PARAMS_INIT, {1, 4, 4, -1, -1, 2, 2, 16});
  for (const uint32_t input : {RLK_ATTENTION_IN_Q, RLK_ATTENTION_IN_K, RLK_ATTENTION_IN_V}) {
    call.input(input, kF32, {1, 4, 2, 16});
    call.input(input).strides = {256, 64, 32, 2};
  }
  call.output(RLK_ATTENTION_OUT_OUT, kF32, {1, 4, 2, 16});
  EXPECT_EQ(call.query<Packed<cuda::AttentionSplit>>(device).reason_code, "DTYPE");
}

TEST_F(PackedTest, AnInOutArgumentIsCopiedBothWaysOnce) {
  Tensor strided(kF32, {2, 8});
  strided.strides = {1, 2};
  const rlk_tensor* const inputs[] = {&strided.tensor};
  const rlk_tensor* const outputs[] = {&strided.tensor};
  const int32_t alias[] = {0};
  rlk_call_desc call{};
  call.n_inputs = call.n_outputs = 1;
  call.inputs = inputs;
  call.outputs = outputs;
  call.output_alias = alias;
  const std::vector<PackedSlot> slots = packed_slots(call);
  ASSERT_EQ(slots.size(), 1U);
  EXPECT_EQ(slots[0].input, 0);
  EXPECT_EQ(slots[0].output, 0);
  const PackedArguments arguments(slots, call, nullptr);
  EXPECT_EQ(arguments.inputs[0], arguments.outputs[0]);
  EXPECT_TRUE(sdk::is_contiguous(*arguments.inputs[0]));
  EXPECT_EQ(arguments.bytes, 256U);
}

}  // namespace
}  // namespace rlk::simt::host
