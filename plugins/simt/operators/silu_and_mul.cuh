#include "../skeleton/map.cuh"

#include <rlk/formula/activation.hpp>

RLK_SIMT_MAP_OF(SiluAndMul, (y), (call.y), (gate, input), (first_half(call.x), second_half(call.x)),
                silu_gate(d, gate, input))
RLK_SIMT_MAP_OF(SiluAndMulBackward, (grad_gate, grad_input), (first_half(call.grad_x), second_half(call.grad_x)),
                (grad_y, gate, input), (call.grad_y, first_half(call.x), second_half(call.x)),
                silu_gate_gradients(d, grad_y, gate, input))
