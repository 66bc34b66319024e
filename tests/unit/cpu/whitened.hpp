// Whitening as a step of trainers' formulas.
#pragma once

#include <rlk/sdk/ops/whiten.hpp>

#include "unit/cpu/operator.hpp"

namespace rlk::test {

// [rows, columns] of fp64 by the kernel of whiten.
inline Tensor whitened(const Tensor& x, const Tensor& mask, const ops::whiten::Params& params = {}) {
  CallOf<ops::Whiten> call;
  call.x = x;
  call.mask = mask;
  call.params = params;
  return run(call).y;
}

}  // namespace rlk::test
