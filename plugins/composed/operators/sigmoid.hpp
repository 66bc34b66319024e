#include "../map.hpp"

#include <rlk/formula/activation.hpp>

RLK_COMPOSED_MAP(Sigmoid, (y), (x), sigmoid(d, x))
RLK_COMPOSED_MAP(SigmoidBackward, (grad_x), (grad_y, y), sigmoid_gradient(d, grad_y, y))
