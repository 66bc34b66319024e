// The node of a call with a gradient: what torch.autograd.Function runs of it, without a step of Python's.
#pragma once

#include "taken.hpp"

namespace rlk::torch {

// Whether the library runs calls of this route; else their node is Python's.
bool is_node(_object* route);

// The outputs of a call with a gradient as a tuple, or nothing with an exception of Python's. kept: a tuple of the
// route and None. n inputs, None where one is absent.
Object run_node(_object* kept, Taken* taken, _object* const* given, ptrdiff_t n);

// forward(ctx, *tensors), or apply(ctx, *gradients) of its backward, as methods of the class.
_object* node_method(const rlk_torch_python& given, void* base, bool is_backward);

}  // namespace rlk::torch
