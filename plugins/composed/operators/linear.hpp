// Rows times a weight matrix, plus a bias, and the gradients.
#include "../products.hpp"

RLK_COMPOSED_PRODUCTS(Linear, (), (), {
  const bool is_alone = !call.bias.is_present();
  const V y = product(factor(call.x, is_alone), transposed(factor(call.weight, is_alone)));
  out(call.y, is_alone ? y : Add(y, in(call.bias)));
})
RLK_COMPOSED_PRODUCTS(LinearBackward, (), (), {
  out(call.grad_x, product(factor(call.grad_y, true), factor(call.weight, true)));
  // Its dtype is that of sums.
  if (call.grad_weight.is_present()) out(call.grad_weight, product(transposed(in(call.grad_y)), in(call.x)));
  if (call.grad_bias.is_present()) out(of_columns(call.grad_bias), sum_of_rows(in(call.grad_y)));
})
