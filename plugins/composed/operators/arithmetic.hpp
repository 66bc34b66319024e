// Sums, products, differences and quotients with broadcasting, and their gradients.
#include "../map.hpp"

#include <rlk/formula/arithmetic.hpp>

RLK_COMPOSED_MAP_WITH(Add, (out), (a, b), (alpha), add_times(d, a, b, alpha))
RLK_COMPOSED_MAP_WITH(Sub, (out), (a, b), (alpha), add_times(d, a, b, -alpha))
RLK_COMPOSED_MAP(Mul, (out), (a, b), Mul(a, b))
RLK_COMPOSED_MAP(MulBackward, (grad_a, grad_b), (grad_out, a, b), product_gradients(grad_out, a, b))
RLK_COMPOSED_MAP(Div, (out), (a, b), Div(a, b))
RLK_COMPOSED_MAP(DivBackward, (grad_a, grad_b), (grad_out, a, b), quotient_gradients(grad_out, a, b))
