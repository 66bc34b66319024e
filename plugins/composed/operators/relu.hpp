#include "../map.hpp"

#include <rlk/formula/activation.hpp>

RLK_COMPOSED_MAP(Relu, (y), (x), relu_of(d, x))
RLK_COMPOSED_MAP(ReluBackward, (grad_x), (grad_y, y), relu_gradient(d, grad_y, y))
