#include "direct.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <exception>
#include <optional>
#include <vector>

#include "call.hpp"

namespace rlk::torch {
namespace {

struct Python {
#define F(name, result, parameters) result(*name) parameters = nullptr;
#include "python_functions.inc"
#undef F
  _object *none = nullptr, *runtime_error = nullptr, *yes = nullptr, *is_neg = nullptr, *requires_grad = nullptr;
};

// Python is in the process; librlk_torch links nothing of it.
std::optional<Python> bind() {
  Python all;
#define F(name, result, parameters)                                              \
  all.name = reinterpret_cast<result(*) parameters>(dlsym(RTLD_DEFAULT, #name)); \
  if (all.name == nullptr) return std::nullopt;
#include "python_functions.inc"
#undef F
  all.none = static_cast<_object*>(dlsym(RTLD_DEFAULT, "_Py_NoneStruct"));
  auto* const error = static_cast<_object**>(dlsym(RTLD_DEFAULT, "PyExc_RuntimeError"));
  all.yes = static_cast<_object*>(dlsym(RTLD_DEFAULT, "_Py_TrueStruct"));
  if (all.none == nullptr || all.yes == nullptr || error == nullptr) return std::nullopt;
  all.runtime_error = *error;
  all.is_neg = all.PyUnicode_InternFromString("is_neg");
  all.requires_grad = all.PyUnicode_InternFromString("requires_grad");
  return all;
}

Python python;
_object *tensor = nullptr, *parameter = nullptr;  // the two classes that no code of Python's stands behind
// A handle of a tensor of Python's and back, where torch's stable ABI has no functions for it (before 2.14): torch's
// own for the graphs that it compiles to C++.
_object *to_handle = nullptr, *from_handles = nullptr;
_object* apply = nullptr;  // of the node of a call with a gradient

class Unlocked {
public:
  Unlocked() : state_(python.PyEval_SaveThread()) {}
  Unlocked(const Unlocked&) = delete;
  Unlocked& operator=(const Unlocked&) = delete;
  ~Unlocked() { python.PyEval_RestoreThread(state_); }

private:
  _ts* state_;
};

// torch's own classes; of others, FakeTensor or DTensor say, the dispatcher knows what a call means.
bool is_plain(_object* x) {
  _object* const type = python.PyObject_Type(x);
  python.Py_DecRef(type);  // x keeps it
  if (type != tensor && type != parameter) return false;
  _object* const answer = python.PyObject_CallMethodObjArgs(x, python.is_neg, nullptr);
  const bool is_neg = answer == nullptr || python.PyObject_IsTrue(answer) != 0;
  if (answer != nullptr) python.Py_DecRef(answer);
  return !is_neg;  // the dispatcher makes numbers of a view that is negated lazily
}

AtenTensorOpaque* handle_of(_object* x) {
  if (shim.torch_tensor_from_pyobject != nullptr) {
    AtenTensorOpaque* handle = nullptr;
    return shim.torch_tensor_from_pyobject(x, &handle) == 0 ? handle : nullptr;
  }
  _object* const capsule = python.PyObject_CallFunctionObjArgs(to_handle, x, nullptr);
  if (capsule == nullptr) return nullptr;
  auto* const handle = static_cast<AtenTensorOpaque*>(python.PyCapsule_GetPointer(capsule, nullptr));
  python.Py_DecRef(capsule);  // does not end the handle
  return handle;
}

// Meta tensors and those of efficient zeros are the dispatcher's, and so are devices that torch has no stream of.
bool is_memory(const Operator& op, const Call& call) {
  if (call.device().type != shim.aoti_torch_device_type_cpu() &&
      call.device().type != shim.aoti_torch_device_type_cuda()) {
    return false;
  }
  for (size_t i = 0; i < static_cast<size_t>(op.n_inputs); ++i) {
    const rlk_tensor* const x = call.input(i);
    if (x != nullptr && x->data == nullptr && std::count(x->shape, x->shape + x->ndim, 0) == 0) return false;
  }
  return true;
}

_object* none() {
  python.PyErr_Clear();
  python.Py_IncRef(python.none);
  return python.none;
}

// The tensors in order, or nullptr with an exception of Python's.
_object* give_by_abi(const Tensors& made, ptrdiff_t count) {
  _object* const outputs = python.PyTuple_New(count);
  ptrdiff_t next = 0;
  for (const Tensor& x : made) {
    if (!x) continue;
    void* output = nullptr;
    if (outputs == nullptr || shim.torch_tensor_to_pyobject(x.get(), nullptr, &output) != 0) {
      if (outputs != nullptr) python.Py_DecRef(outputs);
      python.PyErr_SetString(python.runtime_error, "torch makes no tensor of an output; torch has logged why");
      return nullptr;
    }
    python.PyTuple_SetItem(outputs, next++, static_cast<_object*>(output));
  }
  return outputs;
}

_object* give_by_list(Tensors& made, ptrdiff_t count) {
  _object* const handles = python.PyList_New(count);
  ptrdiff_t next = 0;
  for (const Tensor& x : made) {
    if (!x) continue;
    _object* const capsule = handles == nullptr ? nullptr : python.PyCapsule_New(x.get(), nullptr, nullptr);
    if (capsule == nullptr) {
      if (handles != nullptr) python.Py_DecRef(handles);
      return nullptr;
    }
    python.PyList_SetItem(handles, next++, capsule);
  }
  if (handles == nullptr) return nullptr;
  for (Tensor& x : made) x.release();  // torch takes them over
  _object* const list = python.PyObject_CallFunctionObjArgs(from_handles, handles, nullptr);
  python.Py_DecRef(handles);
  if (list == nullptr) return nullptr;
  _object* const outputs = python.PyList_AsTuple(list);
  python.Py_DecRef(list);
  return outputs;
}

_object* give(Tensors& made) {
  const auto count = std::count_if(made.begin(), made.end(), [](const Tensor& x) { return static_cast<bool>(x); });
  return shim.torch_tensor_to_pyobject != nullptr ? give_by_abi(made, count) : give_by_list(made, count);
}

// The parts of a call: inputs that are memory, and the outputs and parameters that the caller wants.
class Taken {
public:
  // False where the call is the dispatcher's, which says what is wrong, or knows better; or with an exception of
  // Python's.
  bool take(const Operator& op, _object* request, _object* pin, _object* const* given, ptrdiff_t n) {
    bytes_ = python.PyBytes_AsString(request);
    if (bytes_ == nullptr || n != static_cast<ptrdiff_t>(asked().n_tensors)) return false;
    options_.numerics = asked().numerics;
    if (pin != python.none) options_.pin = python.PyUnicode_AsUTF8AndSize(pin, nullptr);
    if (pin != python.none && options_.pin == nullptr) return false;
    for (size_t i = 0; i < static_cast<size_t>(op.n_inputs); ++i) {
      _object* const x = asked().places[i] < asked().n_tensors ? given[asked().places[i]] : python.none;
      if (x == python.none && i >= static_cast<size_t>(op.n_required)) continue;
      if (!is_plain(x)) return false;
      inputs_[i] = Tensor(handle_of(x));
      if (!inputs_[i]) return false;
    }
    try {
      call_.emplace(op, inputs_);
    } catch (const std::exception&) {
      return false;
    }
    return is_memory(op, *call_);
  }

  const Call& call() const { return *call_; }

  // The outputs as a tuple, or nullptr with an exception of Python's.
  _object* run() {
    try {
      Tensors* made = nullptr;
      {
        const Unlocked others_may_run;
        made = &call_->run(bytes_ + sizeof(rlk_torch_request), asked().wanted, options_);
      }
      return give(*made);
    } catch (const std::exception& e) {
      python.PyErr_SetString(python.runtime_error, e.what());
      return nullptr;
    }
  }

private:
  const rlk_torch_request& asked() const { return *reinterpret_cast<const rlk_torch_request*>(bytes_); }

  const char* bytes_ = nullptr;
  rlk_call_options options_ = RLK_CALL_OPTIONS_INIT;
  Tensors inputs_;
  std::optional<Call> call_;
};

_object* run_direct(_object* self, _object* const* given, ptrdiff_t n) {
  const Operator& op = *static_cast<const Operator*>(python.PyLong_AsVoidPtr(self));
  Taken taken;
  if (n < 2 || !taken.take(op, given[0], given[1], given + 2, n - 2)) return none();
  return taken.run();
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
  _object* const answer = python.PyObject_GetAttr(x, python.requires_grad);
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

_object* run_node(_object* route, _object* const* given, ptrdiff_t n) {
  _object* const arguments =
      python.PyTuple_New(2 + std::count_if(given, given + n, [](auto* x) { return x != python.none; }));
  if (arguments == nullptr) return nullptr;
  auto put = [&, next = ptrdiff_t{0}](_object* x) mutable {
    python.Py_IncRef(x);
    python.PyTuple_SetItem(arguments, next++, x);
  };
  put(route);
  put(python.yes);
  for (ptrdiff_t i = 0; i < n; ++i) {
    if (given[i] != python.none) put(given[i]);
  }
  _object* const outputs = python.PyObject_CallObject(apply, arguments);
  python.Py_DecRef(arguments);
  return outputs;
}

// state, inputs, parameters, flags, pin, numerics, whether gradients are recorded; see rlk_torch_callable.
_object* run_planned(_object* self, _object* const* given, ptrdiff_t n) {
  const Operator& op = *static_cast<const Operator*>(python.PyLong_AsVoidPtr(self));
  _object* const state = given[0];
  if (n != 7 || state == python.none || !are_known(python.PyTuple_GetItem(state, 0), given + 2)) return none();
  std::array<_object*, kMaxArguments> inputs;
  const ptrdiff_t n_inputs = python.PyTuple_Size(given[1]);
  if (n_inputs != op.n_inputs) return none();
  for (ptrdiff_t i = 0; i < n_inputs; ++i) inputs[static_cast<size_t>(i)] = python.PyTuple_GetItem(given[1], i);
  _object* outputs = nullptr;
  {
    Taken taken;
    if (!taken.take(op, python.PyTuple_GetItem(state, 1), given[4], inputs.data(), n_inputs)) return none();
    if (given[6] == python.yes && std::any_of(inputs.data(), inputs.data() + n_inputs, needs_gradient)) {
      _object* const route = route_of(op, taken.call(), python.PyTuple_GetItem(state, 3));
      if (route == nullptr) return none();
      outputs = run_node(route, inputs.data(), n_inputs);
    } else {
      outputs = taken.run();
    }
  }
  if (outputs == nullptr) return nullptr;
  _object* const kind = python.PyTuple_GetItem(state, 2);
  _object* result = nullptr;
  if (kind == python.none) {
    result = python.PyTuple_GetItem(outputs, 0);
    if (result != nullptr) python.Py_IncRef(result);
  } else {
    result = python.PyObject_CallObject(kind, outputs);
  }
  python.Py_DecRef(outputs);
  return result;
}

struct Method {  // PyMethodDef
  const char* name;
  _object* (*function)(_object*, _object* const*, ptrdiff_t);
  int flags;
  const char* text;
};
constexpr int kFastCall = 0x0080;  // METH_FASTCALL
Method direct = {"rlk_torch_direct", run_direct, kFastCall, nullptr};
Method planned = {"rlk_torch_planned", run_planned, kFastCall, nullptr};

}  // namespace

_object* callable(const Operator& op, const rlk_torch_python& given, bool is_planned) {
  static const std::optional<Python> bound = bind();
  const bool by_abi = shim.torch_tensor_from_pyobject != nullptr && shim.torch_tensor_to_pyobject != nullptr;
  if (!bound || (!by_abi && (given.to_handle == nullptr || given.from_handles == nullptr))) return nullptr;
  python = *bound;
  tensor = static_cast<_object*>(given.tensor_type);
  parameter = static_cast<_object*>(given.parameter_type);
  to_handle = static_cast<_object*>(given.to_handle);
  from_handles = static_cast<_object*>(given.from_handles);
  apply = static_cast<_object*>(given.apply);
  _object* const self = python.PyLong_FromVoidPtr(const_cast<Operator*>(&op));
  _object* const made =
      python.PyCMethod_New(reinterpret_cast<PyMethodDef*>(is_planned ? &planned : &direct), self, nullptr, nullptr);
  python.Py_DecRef(self);
  return made;
}

}  // namespace rlk::torch
