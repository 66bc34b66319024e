#include "../skeleton/map.cuh"

#include <rlk/formula/activation.hpp>

RLK_SIMT_MAP(Relu, (y), (x), relu_of(d, x))
RLK_SIMT_MAP(ReluBackward, (grad_x), (grad_y, y), relu_gradient(d, grad_y, y))
