// What is known of an operator's kernel. The generated types name the call's arguments, symbols and parameters
// (<rlk/sdk/ops/whiten.hpp>); registration.hpp says how a kernel is registered.
#pragma once

#include <rlk/abi/op.h>

#include <span>

#include "core/cpu/simd/array.hpp"

namespace rlk::cpu {

// A call as kernels take it.
template <class Op>
using CallOf = typename Op::template Args<Array>;

// What a kernel works with beside its call.
struct Context {
  ParallelFor parallel;
  void* workspace = nullptr;  // what workspace_bytes asked for, aligned to 256 bytes
};

template <class Op>
struct Kernel {
  using Call = CallOf<Op>;

  DataError (*run)(const Call&, const Context&);
  // Of the whole call, as many as fit in its time beside the bytes it moves: 100 take a nanosecond. It is an estimate,
  // by which implementations are compared.
  double (*operations)(const Call&);
  int64_t (*workspace_bytes)(const Call&) = nullptr;  // none; may look at everything but data
  // Instead, of a kernel that has memory for each thread of its hook.
  int64_t (*workspace_of_threads)(const Call&, int64_t threads) = nullptr;
  // The sizes at which the kernel changes its algorithm.
  std::span<const rlk_switch> switches = {};
};

// The registration of an operator, whichever file it stands in.
template <class Op>
const Kernel<Op>& kernel();

template <class Op>
int64_t workspace_bytes(const CallOf<Op>& call, int64_t threads) {
  if (kernel<Op>().workspace_of_threads != nullptr) return kernel<Op>().workspace_of_threads(call, threads);
  return kernel<Op>().workspace_bytes != nullptr ? kernel<Op>().workspace_bytes(call) : 0;
}

}  // namespace rlk::cpu
