// Operators that aclnn has as one call, beside the programs of the same formulas: one reading of the rows in place of
// one for each word. What a call's documentation leaves out is declined, and the program serves it.
#pragma once

#include <rlk/sdk/ops/add_rms_norm.hpp>
#include <rlk/sdk/ops/apply_rotary_pos_emb.hpp>
#include <rlk/sdk/ops/log_softmax.hpp>
#include <rlk/sdk/ops/log_softmax_backward.hpp>
#include <rlk/sdk/ops/rms_norm.hpp>
#include <rlk/sdk/ops/silu_and_mul.hpp>
#include <rlk/sdk/ops/softmax.hpp>
#include <rlk/sdk/ops/softmax_backward.hpp>

#include "plan.hpp"

namespace rlk::ascend {

#define RLK_ASCEND_FUSED(OP, name)                                         \
  struct OP##Fused {                                                       \
    using Op = sdk::ops::OP;                                               \
    static constexpr const char* kName = name;                             \
    static sdk::Support query(Device&, const sdk::Call<Op>&);              \
    static std::unique_ptr<sdk::Plan> plan(Device&, const sdk::Call<Op>&); \
  };
RLK_ASCEND_FUSED(SiluAndMul, "swi_glu")
RLK_ASCEND_FUSED(RmsNorm, "rms_norm")
RLK_ASCEND_FUSED(AddRmsNorm, "add_rms_norm")
RLK_ASCEND_FUSED(Softmax, "softmax")
RLK_ASCEND_FUSED(SoftmaxBackward, "softmax_backward")
RLK_ASCEND_FUSED(LogSoftmax, "log_softmax")
RLK_ASCEND_FUSED(LogSoftmaxBackward, "log_softmax_backward")
RLK_ASCEND_FUSED(ApplyRotaryPosEmb, "rotary_position_embedding")
#undef RLK_ASCEND_FUSED

}  // namespace rlk::ascend
