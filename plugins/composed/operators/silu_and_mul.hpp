#include "../map.hpp"

#include <rlk/formula/activation.hpp>

RLK_COMPOSED_MAP_OF(SiluAndMul, (call.y), (gate, input), (first_half(call.x), second_half(call.x)),
                    silu_gate(d, gate, input))
RLK_COMPOSED_MAP_OF(SiluAndMulBackward, (first_half(call.grad_x), second_half(call.grad_x)), (grad_y, gate, input),
                    (call.grad_y, first_half(call.x), second_half(call.x)), silu_gate_gradients(d, grad_y, gate, input))
