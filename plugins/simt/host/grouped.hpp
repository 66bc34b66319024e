// Products of rows with the matrix of their group, by kernels that read on the device where the groups begin
// (../grouped.cuh).
#pragma once

#include <rlk/sdk/ops/grouped_gemm.hpp>
#include <rlk/sdk/ops/grouped_gemm_backward.hpp>

#include "operator.hpp"

namespace rlk::simt::host {

struct GroupedGemmSimt {
  using Op = sdk::ops::GroupedGemm;
  static constexpr const char* kName = "simt";
  static sdk::Support query(Device& device, const sdk::Call<Op>& call);
  static std::unique_ptr<sdk::Plan> plan(Device& device, const sdk::Call<Op>& call);
};

struct GroupedGemmBackwardSimt {
  using Op = sdk::ops::GroupedGemmBackward;
  static constexpr const char* kName = "simt";
  static sdk::Support query(Device& device, const sdk::Call<Op>& call);
  static std::unique_ptr<sdk::Plan> plan(Device& device, const sdk::Call<Op>& call);
};

}  // namespace rlk::simt::host
