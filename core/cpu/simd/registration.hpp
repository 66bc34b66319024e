// How a kernel becomes the built-in implementation of an operator: one registration beside it.
//
//   DataError whiten(const CallOf<sdk::ops::Whiten>& call, const Context& context);
//   RLK_CPU_KERNEL(Whiten, .run = whiten, .operations = ..., .workspace_bytes = ...);
//
// Code that uses kernel<Op>() includes operator.hpp alone: a new operator then recompiles none of it.
#pragma once

#include <type_traits>

#include "core/cpu/simd/operator.hpp"

namespace rlk::cpu {

template <class Op>
const Kernel<Op>& kernel() {
  return registered(std::type_identity<Kernel<Op>>());
}

#define RLK_CPU_KERNEL(OP, ...)                                                             \
  static const Kernel<sdk::ops::OP>& registered(std::type_identity<Kernel<sdk::ops::OP>>) { \
    static constexpr Kernel<sdk::ops::OP> kRegistered = {__VA_ARGS__};                      \
    return kRegistered;                                                                     \
  }                                                                                         \
  template const Kernel<sdk::ops::OP>& kernel<sdk::ops::OP>()

}  // namespace rlk::cpu
