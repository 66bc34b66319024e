#include "../map.hpp"

#include <rlk/formula/activation.hpp>

RLK_COMPOSED_MAP(Swiglu, (y), (gate, input), silu_gate(d, gate, input))
RLK_COMPOSED_MAP(SwigluBackward, (grad_gate, grad_input), (grad_y, gate, input),
                 silu_gate_gradients(d, grad_y, gate, input))
