#include "direct.hpp"

#include <algorithm>
#include <array>
#include <vector>

#include "node.hpp"
#include "taken.hpp"

namespace rlk::torch {
namespace {

_object* none() {
  python.PyErr_Clear();
  python.Py_IncRef(python.none);
  return python.none;
}

_object* run_direct(_object* self, _object* const* given, ptrdiff_t n) {
  const Operator& op = *static_cast<const Operator*>(python.PyLong_AsVoidPtr(self));
  Taken taken;
  if (n < 2 || !taken.take(op, given[0], given[1], given + 2, n - 2, n - 2)) return none();
  return taken.run(given[0]).release();
}

// ---- a call that is as the last one was, in one go
// -------------------------------------------------------------------

// Whether the words given, of several tuples and two alone, are the very objects that were known.
bool are_known(_object* words, _object* const* given) {
  ptrdiff_t next = 0;
  const ptrdiff_t size = python.PyTuple_Size(words);
  for (_object* const some : {given[0], given[1]}) {
    const ptrdiff_t n = python.PyTuple_Size(some);
    if (next + n > size) return false;
    for (ptrdiff_t i = 0; i < n; ++i) {
      if (python.PyTuple_GetItem(words, next++) != python.PyTuple_GetItem(some, i)) return false;
    }
  }
  return next + 2 == size && python.PyTuple_GetItem(words, next) == given[2] &&
         python.PyTuple_GetItem(words, next + 1) == given[3];
}

bool needs_gradient(_object* x) {
  if (x == python.none) return false;
  _object* const answer = python.PyObject_GetAttr(x, python.names.requires_grad);
  if (answer == nullptr) return false;
  python.Py_DecRef(answer);
  return python.PyObject_IsTrue(answer) != 0;  // True and False live for ever
}

// The route that is known of these shapes, or nullptr.
_object* route_of(const Operator& op, const Call& call, _object* routes) {
  thread_local std::vector<int64_t> shapes;
  shapes.clear();
  for (size_t i = 0; i < static_cast<size_t>(op.n_inputs); ++i) {
    const rlk_tensor* const x = call.input(i);
    shapes.push_back(x == nullptr ? -1 : x->ndim);
    if (x != nullptr) shapes.insert(shapes.end(), x->shape, x->shape + x->ndim);
  }
  _object* const key = python.PyBytes_FromStringAndSize(reinterpret_cast<const char*>(shapes.data()),
                                                        static_cast<ptrdiff_t>(shapes.size() * sizeof(int64_t)));
  if (key == nullptr) return nullptr;
  _object* const route = python.PyDict_GetItemWithError(routes, key);
  python.Py_DecRef(key);
  return route;
}

// By the class whose node is Python's.
Object run_slow_node(_object* route, _object* const* given, ptrdiff_t n) {
  std::array<_object*, kMaxArguments + 2> arguments{route, python.yes};
  _object** const end = std::copy_if(given, given + n, arguments.begin() + 2, [](auto* x) { return x != python.none; });
  const Object packed = tuple_of(arguments.data(), end - arguments.begin());
  return packed ? Object(python.PyObject_CallObject(as_object(of_rlk.apply), packed.get())) : Object();
}

// state, inputs, parameters, flags, pin, numerics; see rlk_torch_callable.
_object* run_planned(_object* self, _object* const* given, ptrdiff_t n) {
  const Operator& op = *static_cast<const Operator*>(python.PyLong_AsVoidPtr(self));
  _object* const state = given[0];
  if (n != 6 || state == python.none || !are_known(python.PyTuple_GetItem(state, 0), given + 2) || !is_unwatched()) {
    return none();
  }
  std::array<_object*, kMaxArguments> inputs;
  const ptrdiff_t n_inputs = python.PyTuple_Size(given[1]);
  if (n_inputs != op.n_inputs) return none();
  for (ptrdiff_t i = 0; i < n_inputs; ++i) inputs[static_cast<size_t>(i)] = python.PyTuple_GetItem(given[1], i);
  Object outputs;
  {
    Taken taken;
    _object* const request = python.PyTuple_GetItem(state, 1);
    if (!taken.take(op, request, given[4], inputs.data(), n_inputs, n_inputs)) return none();
    if (records_gradients() && std::any_of(inputs.data(), inputs.data() + n_inputs, needs_gradient)) {
      _object* const kept = route_of(op, taken.call(), python.PyTuple_GetItem(state, 3));
      if (kept == nullptr) return none();
      _object* const route = python.PyTuple_GetItem(kept, 0);
      outputs = is_node(route) ? run_node(kept, &taken, inputs.data(), n_inputs)
                               : run_slow_node(route, inputs.data(), n_inputs);
    } else {
      outputs = taken.run(request);
    }
  }
  if (!outputs) return nullptr;
  _object* const kind = python.PyTuple_GetItem(state, 2);
  if (kind != python.none) return python.PyObject_CallObject(kind, outputs.get());
  _object* const result = python.PyTuple_GetItem(outputs.get(), 0);
  if (result != nullptr) python.Py_IncRef(result);
  return result;
}

Method direct = {"rlk_torch_direct", run_direct, kFastCall, nullptr};
Method planned = {"rlk_torch_planned", run_planned, kFastCall, nullptr};

}  // namespace

_object* callable(const Operator& op, const rlk_torch_python& given, bool is_planned) {
  const bool by_abi = shim.torch_tensor_from_pyobject != nullptr && shim.torch_tensor_to_pyobject != nullptr;
  if (!bind_python(given) || (!by_abi && (given.to_handle == nullptr || given.from_handles == nullptr))) return nullptr;
  const Object self(python.PyLong_FromVoidPtr(const_cast<Operator*>(&op)));
  return python.PyCMethod_New(as_definition(is_planned ? &planned : &direct), self.get(), nullptr, nullptr);
}

}  // namespace rlk::torch
