// Rows times a weight matrix, and the gradients: products of matrices (product.hpp). Sums over rows are products with
// ones.
#include <rlk/sdk/ops/linear.hpp>
#include <rlk/sdk/ops/linear_backward.hpp>

#include "core/cpu/linear/product.hpp"
#include "core/cpu/simd/registration.hpp"

namespace rlk::cpu {
namespace {

using Forward = CallOf<sdk::ops::Linear>;
using Backward = CallOf<sdk::ops::LinearBackward>;

Product forward(const Forward& call) {
  Product product = product_of(call.x, call.weight, call.y);
  product.bias = call.bias;
  return product;
}

DataError linear(const Forward& call, const Context& context) {
  multiply(context.parallel, context.workspace, forward(call));
  return {};
}

Product of_x(const Backward& call) {
  return product_of(call.grad_y, transposed(call.weight), call.grad_x);
}
Product of_weight(const Backward& call) {
  return product_of(transposed(call.grad_y), transposed(call.x), call.grad_weight);
}
// [1, N] ones times grad_y; `one` has room for a number of any dtype.
Product of_bias(const Backward& call, uint64_t* one) {
  store_element(one, call.grad_y.dtype, 0, 1.0);
  Product product;
  product.rows = 1;
  product.columns = call.M;
  product.depth = call.N;
  product.a = Array::vector(one, call.grad_y.dtype, 0);
  product.b = transposed(call.grad_y);
  product.y = call.grad_bias;
  product.y.strides[0] = 0;
  product.y.strides[1] = call.grad_bias.strides[0];
  return product;
}

DataError linear_backward(const Backward& call, const Context& context) {
  uint64_t one = 0;
  multiply(context.parallel, context.workspace, of_x(call));
  if (call.grad_weight.present()) multiply(context.parallel, context.workspace, of_weight(call));
  if (call.grad_bias.present()) multiply(context.parallel, context.workspace, of_bias(call, &one));
  return {};
}

int64_t forward_bytes(const Forward& call) {
  return product_bytes(forward(call));
}
int64_t backward_bytes(const Backward& call) {
  uint64_t one = 0;
  return std::max({product_bytes(of_x(call)), call.grad_weight.given() ? product_bytes(of_weight(call)) : 0,
                   call.grad_bias.given() ? product_bytes(of_bias(call, &one)) : 0});
}

double forward_operations(const Forward& call) {
  return operations_of_product(call.N, call.M, call.K);
}
double backward_operations(const Backward& call) {
  return operations_of_product(call.N, call.M, call.K) * (call.grad_weight.given() ? 2 : 1);
}

}  // namespace

RLK_CPU_KERNEL(Linear, .run = linear, .operations = forward_operations, .workspace_bytes = forward_bytes,
               .switches = ProductSwitches<'N', 'M', 'K'>::kAll);
RLK_CPU_KERNEL(LinearBackward, .run = linear_backward, .operations = backward_operations,
               .workspace_bytes = backward_bytes, .switches = ProductSwitches<'N', 'M', 'K'>::kAll);

}  // namespace rlk::cpu
