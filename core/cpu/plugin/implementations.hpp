// The implementations of the built-in plugin: one per operator, all dtypes, options and strides, one variant per
// instruction set.
#pragma once

#include <rlk/sdk/implementation.hpp>

#include "core/cpu/plugin/device.hpp"

namespace rlk::cpu {

struct CpuLogp {
  using Op = sdk::ops::Logp;
  static constexpr const char* kName = "simd";
  // A second block of columns, and so many rows that blocks of one row are no longer spread over threads.
  static constexpr rlk_switch kSwitches[] = {{sizeof(rlk_switch), 0, "V", 4097}, {sizeof(rlk_switch), 0, "N", 64}};
  static sdk::Support query(CpuDevice&, const sdk::Call<Op>&);
  static std::unique_ptr<sdk::Plan> plan(CpuDevice&, const sdk::Call<Op>&);
};

struct CpuLogpBackward {
  using Op = sdk::ops::LogpBackward;
  static constexpr const char* kName = "simd";
  static constexpr rlk_switch kSwitches[] = {{sizeof(rlk_switch), 0, "V", 4097}};  // a second block of columns
  static sdk::Support query(CpuDevice&, const sdk::Call<Op>&);
  static std::unique_ptr<sdk::Plan> plan(CpuDevice&, const sdk::Call<Op>&);
};

struct CpuAttention {
  using Op = sdk::ops::Attention;
  static constexpr const char* kName = "simd";
  static sdk::Support query(CpuDevice&, const sdk::Call<Op>&);
  static std::unique_ptr<sdk::Plan> plan(CpuDevice&, const sdk::Call<Op>&);
};

struct CpuAdd {
  using Op = sdk::ops::Add;
  static constexpr const char* kName = "simd";
  static sdk::Support query(CpuDevice&, const sdk::Call<Op>&);
  static std::unique_ptr<sdk::Plan> plan(CpuDevice&, const sdk::Call<Op>&);
};

}  // namespace rlk::cpu
