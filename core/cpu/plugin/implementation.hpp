// What every implementation of the built-in plugin has in common. Each serves all dtypes, options and strides of its
// operator, one variant per instruction set.
#pragma once

#include <rlk/sdk/implementation.hpp>

#include "core/cpu/plugin/device.hpp"

namespace rlk::cpu {

// The sizes at which a kernel changes its algorithm; most have none.
template <class Op>
struct CpuSwitches {};
template <>
struct CpuSwitches<sdk::ops::Logp> {
  // A second block of columns, and so many rows that blocks of one row are no longer spread over threads.
  static constexpr rlk_switch kSwitches[] = {{sizeof(rlk_switch), 0, "V", 4097}, {sizeof(rlk_switch), 0, "N", 64}};
};
template <>
struct CpuSwitches<sdk::ops::LogpBackward> {
  static constexpr rlk_switch kSwitches[] = {{sizeof(rlk_switch), 0, "V", 4097}};  // a second block of columns
};
template <>
struct CpuSwitches<sdk::ops::LinearLogp> {
  // A second segment of the vocabulary, a second batch of rows, a second packed piece of a hidden state.
  static constexpr rlk_switch kSwitches[] = {
      {sizeof(rlk_switch), 0, "V", 2049}, {sizeof(rlk_switch), 0, "N", 961}, {sizeof(rlk_switch), 0, "D", 129}};
};
template <>
struct CpuSwitches<sdk::ops::LinearLogpBackward> {
  // A second chunk of the vocabulary, when rows are few; the others as in the forward.
  static constexpr rlk_switch kSwitches[] = {
      {sizeof(rlk_switch), 0, "V", 2049}, {sizeof(rlk_switch), 0, "N", 961}, {sizeof(rlk_switch), 0, "D", 129}};
};

template <class OpType>
struct CpuImplementation : CpuSwitches<OpType> {
  using Op = OpType;
  static constexpr const char* kName = "simd";
};

}  // namespace rlk::cpu
