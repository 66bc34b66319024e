#include "direct.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <cstddef>
#include <exception>
#include <optional>

#include "call.hpp"

namespace rlk::torch {
namespace {

struct Python {
#define F(name, result, parameters) result(*name) parameters = nullptr;
#include "python_functions.inc"
#undef F
  _object *none = nullptr, *runtime_error = nullptr, *is_neg = nullptr;
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
  if (all.none == nullptr || error == nullptr) return std::nullopt;
  all.runtime_error = *error;
  all.is_neg = all.PyUnicode_InternFromString("is_neg");
  return all;
}

Python python;
_object *tensor = nullptr, *parameter = nullptr;  // the two classes that no code of Python's stands behind

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

bool take(const Operator& op, const rlk_torch_request& asked, _object* const* given, Tensors* inputs) {
  for (size_t i = 0; i < static_cast<size_t>(op.n_inputs); ++i) {
    _object* const x = asked.places[i] < asked.n_tensors ? given[asked.places[i]] : python.none;
    if (x == python.none && i >= static_cast<size_t>(op.n_required)) continue;
    AtenTensorOpaque* handle = nullptr;
    if (!is_plain(x) || shim.torch_tensor_from_pyobject(x, &handle) != 0) return false;
    (*inputs)[i] = Tensor(handle);
  }
  return true;
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

_object* give(const Tensors& made) {
  const auto count = std::count_if(made.begin(), made.end(), [](const Tensor& x) { return static_cast<bool>(x); });
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

_object* run_direct(_object* self, _object* const* given, ptrdiff_t n) {
  const Operator& op = *static_cast<const Operator*>(python.PyLong_AsVoidPtr(self));
  const char* const bytes = n >= 2 ? python.PyBytes_AsString(given[0]) : nullptr;
  if (bytes == nullptr) return none();
  const auto& asked = *reinterpret_cast<const rlk_torch_request*>(bytes);
  if (n != 2 + static_cast<ptrdiff_t>(asked.n_tensors)) return none();
  rlk_call_options options = RLK_CALL_OPTIONS_INIT;
  options.numerics = asked.numerics;
  if (given[1] != python.none) {
    options.pin = python.PyUnicode_AsUTF8AndSize(given[1], nullptr);
    if (options.pin == nullptr) return nullptr;
  }
  Tensors inputs;
  std::optional<Call> call;
  try {
    if (!take(op, asked, given + 2, &inputs)) return none();
    call.emplace(op, inputs);
  } catch (const std::exception&) {
    return none();  // the dispatcher says what is wrong, or knows better
  }
  if (!is_memory(op, *call)) return none();
  try {
    const Tensors* made = nullptr;
    {
      const Unlocked others_may_run;
      made = &call->run(bytes + sizeof(asked), asked.wanted, options);
    }
    return give(*made);
  } catch (const std::exception& e) {
    python.PyErr_SetString(python.runtime_error, e.what());
    return nullptr;
  }
}

struct Method {  // PyMethodDef
  const char* name;
  _object* (*function)(_object*, _object* const*, ptrdiff_t);
  int flags;
  const char* text;
};
constexpr int kFastCall = 0x0080;  // METH_FASTCALL
Method method = {"rlk_torch_callable", run_direct, kFastCall, nullptr};

}  // namespace

_object* callable(const Operator& op, _object* tensor_type, _object* parameter_type) {
  static const std::optional<Python> bound = bind();
  if (!bound || shim.torch_tensor_from_pyobject == nullptr || shim.torch_tensor_to_pyobject == nullptr) return nullptr;
  python = *bound;
  tensor = tensor_type;
  parameter = parameter_type;
  _object* const self = python.PyLong_FromVoidPtr(const_cast<Operator*>(&op));
  _object* const made = python.PyCMethod_New(reinterpret_cast<PyMethodDef*>(&method), self, nullptr, nullptr);
  python.Py_DecRef(self);
  return made;
}

}  // namespace rlk::torch
