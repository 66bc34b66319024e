// Calls that Python makes around torch's dispatcher. What the dispatcher, its argument parser and the conversions of
// the stable ABI add to a call of small tensors is several times the call itself.
#pragma once

#include "operator.hpp"
#include "python.hpp"

namespace rlk::torch {

// A function of Python's that calls the operator; see rlk_torch_callable. nullptr where this torch or this Python lacks
// a function that it needs.
_object* callable(const Operator& op, const rlk_torch_python& given, _object* entry, bool is_planned);

}  // namespace rlk::torch
