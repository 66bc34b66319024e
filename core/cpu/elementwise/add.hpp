// out = a + alpha * b over broadcast operands of any strides.
#pragma once

#include "core/cpu/simd/kernel.hpp"

namespace rlk::cpu {

constexpr int kMaxAddDims = 8;

struct AddArgs {
  Dtype dtype = Dtype::f32;
  int ndim = 0;
  int64_t shape[kMaxAddDims] = {};  // of out
  // In elements, per dimension of out: 0 where an operand is repeated.
  int64_t a_strides[kMaxAddDims] = {}, b_strides[kMaxAddDims] = {}, out_strides[kMaxAddDims] = {};
  const void* a = nullptr;
  const void* b = nullptr;
  void* out = nullptr;  // may be exactly a or exactly b
  double alpha = 1.0;
};

void add(const AddArgs& args, const ParallelFor& hook);

}  // namespace rlk::cpu
