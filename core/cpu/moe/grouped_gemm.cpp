// Rows of each expert times its own weight matrix, and the gradients: many products at once (linear/product.hpp).
#include <rlk/sdk/ops/grouped_gemm.hpp>
#include <rlk/sdk/ops/grouped_gemm_backward.hpp>

#include "core/cpu/linear/product.hpp"
#include "core/cpu/simd/data_error.hpp"
#include "core/cpu/simd/registration.hpp"
#include "core/cpu/simd/sequences.hpp"

namespace rlk::cpu {
namespace {

using Forward = CallOf<sdk::ops::GroupedGemm>;
using Backward = CallOf<sdk::ops::GroupedGemmBackward>;

// The rows of expert e, and its own matrix.
template <class Call>
Array rows_of(const Call& call, const Array& array, int64_t e) {
  const IntArray begins = call.cu_seqlens.integers();
  Array rows = matrix_at(array, begins.get(e) * array.strides[0]);
  rows.shape[0] = begins.get(e + 1) - begins.get(e);
  return rows;
}
Array matrix_of(const Array& array, int64_t e) {
  return matrix_at(array, e * array.strides[0]);
}

DataError grouped_gemm(const Forward& call, const Context& context) {
  const DataError error = check_seqlens(call.cu_seqlens.integers(), call.E, call.R);
  if (error.kind != kNoDataError) return all_nan(call, error);
  multiply(context.parallel, context.workspace, call.E, call.x.dtype, call.K, [&](int64_t e) {
    return product_of(rows_of(call, call.x, e), matrix_of(call.weight, e), rows_of(call, call.y, e));
  });
  return {};
}

DataError grouped_gemm_backward(const Backward& call, const Context& context) {
  const DataError error = check_seqlens(call.cu_seqlens.integers(), call.E, call.R);
  if (error.kind != kNoDataError) return all_nan(call, error);
  multiply(context.parallel, context.workspace, call.E, call.x.dtype, call.M, [&](int64_t e) {
    return product_of(rows_of(call, call.grad_y, e), transposed(matrix_of(call.weight, e)),
                      rows_of(call, call.grad_x, e));
  });
  if (!call.grad_weight.present()) return {};
  multiply(context.parallel, context.workspace, call.E, call.x.dtype, call.R, [&](int64_t e) {
    return product_of(transposed(rows_of(call, call.grad_y, e)), transposed(rows_of(call, call.x, e)),
                      matrix_of(call.grad_weight, e));
  });
  return {};
}

int64_t forward_bytes(const Forward& call) {
  return products_bytes({call.E, call.R, call.E * call.M, call.K}, call.x.dtype);
}
int64_t backward_bytes(const Backward& call) {
  const int64_t of_weight =
      call.grad_weight.given() ? products_bytes({call.E, call.E * call.M, call.E * call.K, call.R}, call.x.dtype) : 0;
  return std::max(products_bytes({call.E, call.R, call.E * call.K, call.M}, call.x.dtype), of_weight);
}

double forward_operations(const Forward& call) {
  return operations_of_product(call.R, call.M, call.K);
}
double backward_operations(const Backward& call) {
  return operations_of_product(call.R, call.M, call.K) * (call.grad_weight.given() ? 2 : 1);
}

}  // namespace

RLK_CPU_KERNEL(GroupedGemm, .run = grouped_gemm, .operations = forward_operations, .workspace_bytes = forward_bytes,
               .switches = ProductSwitches<'R', 'M', 'K'>::kAll);
RLK_CPU_KERNEL(GroupedGemmBackward, .run = grouped_gemm_backward, .operations = backward_operations,
               .workspace_bytes = backward_bytes, .switches = ProductSwitches<'R', 'M', 'K'>::kAll);

}  // namespace rlk::cpu
