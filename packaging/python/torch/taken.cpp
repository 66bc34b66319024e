#include "taken.hpp"

#include <algorithm>
#include <exception>
#include <string_view>

namespace rlk::torch {
namespace {

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
  if (type != of_rlk.tensor_type && type != of_rlk.parameter_type) return false;
  _object* const answer = python.PyObject_CallMethodObjArgs(x, python.names.is_neg, nullptr);
  const bool is_neg = answer == nullptr || python.PyObject_IsTrue(answer) != 0;
  if (answer != nullptr) python.Py_DecRef(answer);
  return !is_neg;  // the dispatcher makes numbers of a view that is negated lazily
}

// A handle of torch's own for a tensor of Python's, by a function of its graphs in C++.
Tensor made_handle(_object* x) {
  const Object capsule(python.PyObject_CallFunctionObjArgs(as_object(of_rlk.to_handle), x, nullptr));
  if (!capsule) return {};
  // The capsule's end does not end the handle.
  return Tensor(static_cast<AtenTensorOpaque*>(python.PyCapsule_GetPointer(capsule.get(), nullptr)));
}

void* address_of(_object* x) {
  const Object address(python.PyObject_GetAttr(x, python.names.cdata));
  return address ? python.PyLong_AsVoidPtr(address.get()) : nullptr;
}

// Before torch 2.14 no function of the stable ABI makes a handle of a tensor of Python's, and those of torch's graphs
// in C++ cost more than a call. A handle is the address of a tensor of C++, which is one pointer, and Python tells it
// as _cdata: believed where the first handle that torch makes is so. The other way is the function that all of torch's
// Python uses, whose name says what it takes; where torch has it.
bool is_one_pointer(_object* x) {
  static const bool is_so = [&] {
    const Tensor made = made_handle(x);
    void* const address = address_of(x);
    return made && address != nullptr && *reinterpret_cast<void**>(made.get()) == address;
  }();
  return is_so;
}

using Wrap = _object* (*)(AtenTensorOpaque*);
Wrap wrap() {
  static const auto found = reinterpret_cast<Wrap>(find_in_torch("_Z16THPVariable_WrapRKN2at10TensorBaseE"));
  return found;
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

bool is_dense(const rlk_tensor& x) {
  int64_t step = 1;
  for (int d = x.ndim - 1; d >= 0; --d) {
    if (x.shape[d] == 0) return true;
    if (x.shape[d] != 1 && x.strides[d] != step) return false;
    step *= x.shape[d];
  }
  return true;
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

_object* give_by_wrap(const Tensors& made, ptrdiff_t count) {
  Object outputs(python.PyTuple_New(count));
  ptrdiff_t next = 0;
  for (const Tensor& x : made) {
    if (!x) continue;
    _object* const output = outputs ? wrap()(x.get()) : nullptr;
    if (output == nullptr) return nullptr;
    python.PyTuple_SetItem(outputs.get(), next++, output);
  }
  return outputs.release();
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
  _object* const list = python.PyObject_CallFunctionObjArgs(as_object(of_rlk.from_handles), handles, nullptr);
  python.Py_DecRef(handles);
  if (list == nullptr) return nullptr;
  _object* const outputs = python.PyList_AsTuple(list);
  python.Py_DecRef(list);
  return outputs;
}

_object* give(Tensors& made) {
  const auto count = std::count_if(made.begin(), made.end(), [](const Tensor& x) { return static_cast<bool>(x); });
  if (shim.torch_tensor_to_pyobject != nullptr) return give_by_abi(made, count);
  return wrap() != nullptr ? give_by_wrap(made, count) : give_by_list(made, count);
}

}  // namespace

// x lives as long as the call.
bool Taken::read(size_t i, _object* x) {
  if (shim.torch_tensor_from_pyobject != nullptr) {
    AtenTensorOpaque* handle = nullptr;
    if (shim.torch_tensor_from_pyobject(x, &handle) != 0) return false;
    owned_[i] = Tensor(handle);
  } else if (is_one_pointer(x)) {
    cells_[i] = address_of(x);
    inputs_[i] = reinterpret_cast<AtenTensorOpaque*>(&cells_[i]);
    return cells_[i] != nullptr;
  } else {
    owned_[i] = made_handle(x);
  }
  inputs_[i] = owned_[i].get();
  return inputs_[i] != nullptr;
}

bool Taken::take(const Operator& op, const rlk_torch_request& asked, _object* pin, _object* const* given, ptrdiff_t n,
                 ptrdiff_t gradients) {
  if (n != static_cast<ptrdiff_t>(asked.n_tensors)) return false;
  options_.numerics = asked.numerics;
  options_.pin = pin == python.none ? nullptr : python.PyUnicode_AsUTF8AndSize(pin, nullptr);
  if (pin != python.none && options_.pin == nullptr) return false;
  for (size_t i = 0; i < static_cast<size_t>(op.n_inputs); ++i) {
    _object* const x = asked.places[i] < asked.n_tensors ? given[asked.places[i]] : python.none;
    if (x == python.none && i >= static_cast<size_t>(op.n_required)) continue;
    if (!is_plain(x) || !read(i, x)) return false;
  }
  try {
    call_.emplace(op, inputs_);
    if (!is_memory(op, *call_)) return false;
    if (gradients == n || call_->device().type == shim.aoti_torch_device_type_cpu()) return true;
    bool changed = false;
    for (size_t i = 0; i < static_cast<size_t>(op.n_inputs); ++i) {
      if (call_->input(i) == nullptr || asked.places[i] < gradients || is_dense(*call_->input(i))) continue;
      dense_[i] = Object(python.PyObject_CallMethodObjArgs(given[asked.places[i]], python.names.contiguous, nullptr));
      if (!dense_[i] || !read(i, dense_[i].get())) return false;
      changed = true;
    }
    if (changed) call_.emplace(op, inputs_);
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

Object Taken::run(const rlk_torch_request& request) {
  try {
    Tensors* made = nullptr;
    {
      const Unlocked others_may_run;
      made = &call_->run(&request + 1, request.wanted, options_);
    }
    return Object(give(*made));
  } catch (const std::exception& e) {
    const std::string_view text = e.what();
    const Object said(python.PyBytes_FromStringAndSize(text.data(), static_cast<ptrdiff_t>(text.size())));
    if (said) Object(python.PyObject_CallFunctionObjArgs(as_object(of_rlk.refused), said.get(), nullptr));
    return {};
  }
}

}  // namespace rlk::torch
