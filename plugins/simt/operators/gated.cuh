// Gated activations of feed-forward layers, and their gradients.
#include "../skeleton/map.cuh"

#include <rlk/formula/activation.hpp>

RLK_SIMT_MAP(Swiglu, (y), (gate, input), silu_gate(d, gate, input))
RLK_SIMT_MAP(SwigluBackward, (grad_gate, grad_input), (grad_y, gate, input),
             silu_gate_gradients(d, grad_y, gate, input))

RLK_SIMT_MAP_OF(SiluAndMul, (y), (call.y), (gate, input), (first_half(call.x), second_half(call.x)),
                silu_gate(d, gate, input))
RLK_SIMT_MAP_OF(SiluAndMulBackward, (grad_gate, grad_input), (first_half(call.grad_x), second_half(call.grad_x)),
                (grad_y, gate, input), (call.grad_y, first_half(call.x), second_half(call.x)),
                silu_gate_gradients(d, grad_y, gate, input))

RLK_SIMT_MAP_WITH(Geglu, (y), (gate, input), (approximate),
                  gelu_gate(gate, input, distribution_of(d, gate, approximate)))
RLK_SIMT_MAP_WITH(GegluBackward, (grad_gate, grad_input), (grad_y, gate, input), (approximate),
                  gelu_gate_gradients(grad_y, gate, input, distribution_of(d, gate, approximate)))
