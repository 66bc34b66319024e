// Operators that CNNL has as one call, beside the programs of the same formulas: one reading of the rows in place of
// one for each word. What public frameworks never ask of a call is declined, and the program serves it.
#pragma once

#include <rlk/sdk/ops/layer_norm.hpp>
#include <rlk/sdk/ops/rms_norm.hpp>

#include "program.hpp"

namespace rlk::cambricon {

#define RLK_CAMBRICON_FUSED(OP, name)                                      \
  struct OP##Fused {                                                       \
    using Op = sdk::ops::OP;                                               \
    static constexpr const char* kName = name;                             \
    static sdk::Support query(Device&, const sdk::Call<Op>&);              \
    static std::unique_ptr<sdk::Plan> plan(Device&, const sdk::Call<Op>&); \
  };
RLK_CAMBRICON_FUSED(LayerNorm, "cnnl_layer_norm")
RLK_CAMBRICON_FUSED(RmsNorm, "cnnl_rms_norm")
#undef RLK_CAMBRICON_FUSED

}  // namespace rlk::cambricon
