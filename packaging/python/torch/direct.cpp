#include "direct.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
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
  if (n < 2 || !taken.take(op, request_of(given[0]), given[1], given + 2, n - 2, n - 2)) return none();
  return taken.run(request_of(given[0])).release();
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
    const rlk_torch_request& request = request_of(python.PyTuple_GetItem(state, 1));
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

// ---- the overload of compiled graphs

struct Whole {
  rlk_torch_request request{};
  Params params;
};

// The lists of parameters as the schema has them; false where the dispatcher is to say what is wrong with them.
bool fill_params(const Operator& op, _object* real, _object* whole, Params* out) {
  const ptrdiff_t n_real = python.PyList_Size(real), n_whole = python.PyList_Size(whole);
  ptrdiff_t next_real = 0, next_whole = 0;
  const size_t n = op.param_kinds.size();
  out->size = static_cast<uint32_t>(8 + 8 * n);
  for (size_t i = 0; i < n; ++i) {
    out->values[i] = op.defaults[i];
    if (op.param_kinds[i] == 'f' && next_real < n_real) {
      const double value = python.PyFloat_AsDouble(python.PyList_GetItem(real, next_real++));
      std::memcpy(&out->values[i], &value, sizeof(value));
    } else if (op.param_kinds[i] != 'f' && next_whole < n_whole) {
      const int64_t value = python.PyLong_AsLongLong(python.PyList_GetItem(whole, next_whole++));
      std::memcpy(&out->values[i], &value, sizeof(value));
    }
  }
  return next_real == n_real && next_whole == n_whole && python.PyErr_Occurred() == nullptr;
}

Object list_of(_object* tuple) {
  const ptrdiff_t n = python.PyTuple_Size(tuple);
  Object list(python.PyList_New(n));
  for (ptrdiff_t i = 0; list && i < n; ++i) {
    _object* const x = python.PyTuple_GetItem(tuple, i);
    python.Py_IncRef(x);
    python.PyList_SetItem(list.get(), i, x);
  }
  return list;
}

// The arguments of the schema, all of them; false: the call is the dispatcher's.
bool take_graphs(const Operator& op, _object* const* given, ptrdiff_t n, Taken* taken, Whole* whole) {
  if (n != op.n_inputs + 5 || !is_unwatched()) return false;
  _object* const* const rest = given + op.n_inputs;
  if (records_gradients() && std::any_of(given, rest, needs_gradient)) return false;
  ptrdiff_t length = 0;
  if (rest[4] != python.none && (python.PyUnicode_AsUTF8AndSize(rest[4], &length) == nullptr || length != 0)) {
    return false;
  }
  const long wanted = python.PyLong_AsLong(rest[2]);
  if (wanted < 0 || !fill_params(op, rest[0], rest[1], &whole->params)) return false;
  whole->request.wanted = wanted == 0 ? op.required_outputs : static_cast<uint64_t>(wanted);
  whole->request.n_tensors = static_cast<uint32_t>(op.n_inputs);
  std::iota(std::begin(whole->request.places), std::end(whole->request.places), static_cast<uint8_t>(0));
  return taken->take(op, whole->request, rest[3], given, op.n_inputs, op.n_inputs);
}

// self: the operator and torch's own entry.
_object* run_graphs(_object* self, _object* const* given, ptrdiff_t n) {
  const Operator& op = *static_cast<const Operator*>(python.PyLong_AsVoidPtr(python.PyTuple_GetItem(self, 0)));
  {
    Taken taken;
    Whole whole;
    if (take_graphs(op, given, n, &taken, &whole)) {
      const Object outputs = taken.run(whole.request);
      return outputs ? list_of(outputs.get()).release() : nullptr;
    }
  }
  python.PyErr_Clear();
  const Object packed = tuple_of(given, n);
  return packed ? python.PyObject_CallObject(python.PyTuple_GetItem(self, 1), packed.get()) : nullptr;
}

Method direct = {"rlk_torch_direct", run_direct, kFastCall, nullptr};
Method planned = {"rlk_torch_planned", run_planned, kFastCall, nullptr};
Method graphs = {"rlk_torch_graphs", run_graphs, kFastCall, nullptr};

}  // namespace

_object* callable(const Operator& op, const rlk_torch_python& given, _object* entry, bool is_planned) {
  const bool by_abi = shim.torch_tensor_from_pyobject != nullptr && shim.torch_tensor_to_pyobject != nullptr;
  if (!bind_python(given) || (!by_abi && (given.to_handle == nullptr || given.from_handles == nullptr))) return nullptr;
  const Object self(python.PyLong_FromVoidPtr(const_cast<Operator*>(&op)));
  if (entry != nullptr) {
    const std::array<_object*, 2> both{self.get(), entry};
    const Object pair = tuple_of(both.data(), 2);
    return python.PyCMethod_New(as_definition(&graphs), pair.get(), nullptr, nullptr);
  }
  return python.PyCMethod_New(as_definition(is_planned ? &planned : &direct), self.get(), nullptr, nullptr);
}

}  // namespace rlk::torch
