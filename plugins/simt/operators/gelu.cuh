#include "../skeleton/map.cuh"

#include <rlk/formula/activation.hpp>

RLK_SIMT_MAP_HEAVY(Gelu, (y), (x), (approximate), gelu_of(x, distribution_of(d, x, approximate)))
RLK_SIMT_MAP_HEAVY(GeluBackward, (grad_x), (grad_y, x), (approximate),
                   gelu_gradient(grad_y, x, distribution_of(d, x, approximate)))
