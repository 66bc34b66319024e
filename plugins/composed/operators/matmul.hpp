// Products of matrices, alone and scaled, and the gradients of a product.
#include "../products.hpp"

namespace rlk::composed {

// A gradient of what the batch repeats, [B0, B1, rows, columns]: a sum over the batch there.
inline Value batch_sum(Value x, int64_t first, int64_t second) {
  if (first == 1) x = sum_along(x, 0);
  return second == 1 ? sum_along(x, 1) : x;
}

}  // namespace rlk::composed

RLK_COMPOSED_PRODUCTS(Matmul, (), (), { out(call.y, product(factor(call.a, true), factor(call.b, true))); })
RLK_COMPOSED_PRODUCTS(MatmulBackward, (), (), {
  const auto gradient = [&](const View& to, int64_t first, int64_t second, auto of_batch) {
    if (!to.is_present()) return;
    const bool is_whole = first == call.grad_y.dims[0] && second == call.grad_y.dims[1];
    out(to, batch_sum(of_batch(is_whole), first, second));
  };
  gradient(call.grad_a, call.A0, call.A1,
           [&](bool is_whole) { return product(factor(call.grad_y, is_whole), transposed(factor(call.b, is_whole))); });
  gradient(call.grad_b, call.B0, call.B1,
           [&](bool is_whole) { return product(transposed(factor(call.a, is_whole)), factor(call.grad_y, is_whole)); });
})
RLK_COMPOSED_PRODUCTS(Gemm, (RLK_COMPOSED_NUMBER(alpha) RLK_COMPOSED_NUMBER(beta)),
                      (RLK_COMPOSED_FACTOR(alpha) RLK_COMPOSED_FACTOR(beta)), {
                        using Transpose = decltype(call.params.transpose);
                        const bool adds = call.c.is_present() && beta != 0, is_alone = alpha == 1 && !adds;
                        V a = factor(call.a, is_alone), b = factor(call.b, is_alone);
                        if (call.params.transpose == Transpose::a || call.params.transpose == Transpose::both)
                          a = transposed(a);
                        if (call.params.transpose == Transpose::b || call.params.transpose == Transpose::both)
                          b = transposed(b);
                        V y = product(a, b);
                        if (!is_alone) y = Mul(y, number(d, alpha));
                        if (adds) y = MulAdd(in(call.c), number(d, beta), y);
                        out(call.y, y);
                      })
