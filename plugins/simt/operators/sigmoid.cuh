#include "../skeleton/map.cuh"

#include <rlk/formula/activation.hpp>

RLK_SIMT_MAP(Sigmoid, (y), (x), sigmoid(d, x))
RLK_SIMT_MAP(SigmoidBackward, (grad_x), (grad_y, y), sigmoid_gradient(d, grad_y, y))
