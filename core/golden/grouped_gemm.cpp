// Rows of each expert times its own weight matrix, and the gradients: the declarations' formulas, fp64.
#include <rlk/sdk/ops/grouped_gemm.hpp>
#include <rlk/sdk/ops/grouped_gemm_backward.hpp>

#include <limits>

#include "core/golden/operator.hpp"
#include "core/golden/products.hpp"
#include "core/golden/sequences.hpp"

namespace rlk::golden {
namespace {}  // namespace

DataError grouped_gemm(CallOf<sdk::ops::GroupedGemm>& call) {
  if (const DataError error = check_seqlens(call.cu_seqlens, call.R); error.kind != kNoDataError) {
    fill(call.y, call.R * call.M, kNan);
    return error;
  }
  const std::vector<double> x = numbers_of(call.x), weight = numbers_of(call.weight);
  for (int64_t e = 0; e < call.E; ++e) {
    for (int64_t t = call.cu_seqlens.load_int(e); t < call.cu_seqlens.load_int(e + 1); ++t) {
      for (int64_t m = 0; m < call.M; ++m) {
        put(call.y, dot({x, t * call.K, 1}, {weight, (e * call.M + m) * call.K, 1}, call.K));
      }
    }
  }
  return {};
}

DataError grouped_gemm_backward(CallOf<sdk::ops::GroupedGemmBackward>& call) {
  if (const DataError error = check_seqlens(call.cu_seqlens, call.R); error.kind != kNoDataError) {
    fill(call.grad_x, call.R * call.K, kNan);
    fill(call.grad_weight, call.E * call.M * call.K, kNan);
    return error;
  }
  const std::vector<double> grad_y = numbers_of(call.grad_y), x = numbers_of(call.x), weight = numbers_of(call.weight);
  for (int64_t e = 0; e < call.E; ++e) {
    const int64_t begin = call.cu_seqlens.load_int(e), end = call.cu_seqlens.load_int(e + 1);
    for (int64_t t = begin; t < end; ++t) {
      for (int64_t k = 0; k < call.K; ++k) {
        put(call.grad_x, dot({grad_y, t * call.M, 1}, {weight, e * call.M * call.K + k, call.K}, call.M));
      }
    }
    for (int64_t m = 0; call.grad_weight.wanted && m < call.M; ++m) {
      for (int64_t k = 0; k < call.K; ++k) {
        const Numbers of_feature = {grad_y, begin * call.M + m, call.M};
        put(call.grad_weight, dot(of_feature, {x, begin * call.K + k, call.K}, end - begin));
      }
    }
  }
  return {};
}

}  // namespace rlk::golden
