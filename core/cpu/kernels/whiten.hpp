// Masked normalisation of a whole batch to mean 0 and variance 1. One number per token, in fp64.
//
// Cost model: three passes over the numbers. Sums are taken over fixed chunks and added in their order, so that bits do
// not depend on threads.
#pragma once

#include "core/cpu/kernels/array.hpp"

namespace rlk::cpu {

struct WhitenArgs {
  enum class EpsMode { variance, variance_floor, deviation } eps_mode = EpsMode::variance;
  int64_t rows = 0, columns = 0;
  Array x;
  Mask mask;  // optional
  bool unbiased = true;
  double eps = 1e-8;
  bool shift_mean = true;
  Array y;
  void* workspace = nullptr;  // whiten_workspace_bytes, aligned to 8 bytes
};

int64_t whiten_workspace_bytes(int64_t rows, int64_t columns);
void whiten(const WhitenArgs& args, const ParallelFor& hook);

}  // namespace rlk::cpu
