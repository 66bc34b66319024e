#include "../map.hpp"

#include <rlk/formula/activation.hpp>

RLK_COMPOSED_MAP(Silu, (y), (x), silu_of(d, x, logistic(d, x)))
RLK_COMPOSED_MAP(SiluBackward, (grad_x), (grad_y, x), silu_gradient(d, grad_y, x))
