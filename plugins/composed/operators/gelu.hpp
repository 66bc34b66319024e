#include "../map.hpp"

#include <rlk/formula/activation.hpp>

RLK_COMPOSED_MAP_WITH(Gelu, (y), (x), (approximate), gelu_of(x, distribution_of(d, x, approximate)))
RLK_COMPOSED_MAP_WITH(GeluBackward, (grad_x), (grad_y, x), (approximate),
                      gelu_gradient(grad_y, x, distribution_of(d, x, approximate)))
