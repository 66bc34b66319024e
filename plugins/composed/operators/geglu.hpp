#include "../map.hpp"

#include <rlk/formula/activation.hpp>

RLK_COMPOSED_MAP_WITH(Geglu, (y), (gate, input), (approximate),
                      gelu_gate(gate, input, distribution_of(d, gate, approximate)))
RLK_COMPOSED_MAP_WITH(GegluBackward, (grad_gate, grad_input), (grad_y, gate, input), (approximate),
                      gelu_gate_gradients(grad_y, gate, input, distribution_of(d, gate, approximate)))
