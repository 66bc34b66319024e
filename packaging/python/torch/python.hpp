// Python as librlk_torch knows it: the functions of its stable ABI, found by name, and what rlk.torch gave of its own.
#pragma once

#include <cstddef>
#include <utility>

#include "rlk_torch.h"

struct _object;  // Python's own names of what it does not show
struct _typeobject;
struct _ts;
struct PyMethodDef;

namespace rlk::torch {

struct Python {
#define F(name, result, parameters) result(*name) parameters = nullptr;
#include "python_functions.inc"
#undef F
  _object *none = nullptr, *yes = nullptr, *no = nullptr, *runtime_error = nullptr;
  struct {
    _object *is_neg, *requires_grad, *contiguous, *to, *dtype, *cdata;                                    // of a tensor
    _object *kept, *to_save, *saved_tensors, *needs_input_grad, *materialize_grads, *non_differentiable;  // of a node
    _object* level;  // of torch.autograd.forward_ad
  } names = {};
};

extern const Python& python;            // after bind_python
extern const rlk_torch_python& of_rlk;  // the same

// False where Python lacks a function that is needed.
bool bind_python(const rlk_torch_python& given);

inline _object* as_object(void* given) {
  return static_cast<_object*>(given);
}

// Nothing of torch is to see a call: no transform, tracer, mode, autocast, profiler, and no tangents.
bool is_unwatched();
bool records_gradients();

// A reference of our own.
class Object {
public:
  Object() = default;
  explicit Object(_object* owned) : object_(owned) {}
  Object(Object&& other) noexcept : object_(other.release()) {}
  Object& operator=(Object&& other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;
  ~Object() {
    if (object_ != nullptr) python.Py_DecRef(object_);
  }
  static Object of(_object* borrowed) {
    python.Py_IncRef(borrowed);
    return Object(borrowed);
  }
  _object* get() const { return object_; }
  _object* release() { return std::exchange(object_, nullptr); }
  explicit operator bool() const { return object_ != nullptr; }

private:
  _object* object_ = nullptr;
};

// The bytes of a bytes object.
struct Bytes {
  explicit Bytes(_object* object)
      : data(reinterpret_cast<const unsigned char*>(python.PyBytes_AsString(object))),
        size(data == nullptr ? 0 : python.PyBytes_Size(object)) {}
  const unsigned char* begin() const { return data; }
  const unsigned char* end() const { return data + size; }
  const unsigned char* data;
  ptrdiff_t size;
};

// A tuple of the objects, which it takes references of.
Object tuple_of(_object* const* objects, ptrdiff_t n);

struct Method {  // PyMethodDef
  const char* name;
  _object* (*function)(_object*, _object* const*, ptrdiff_t);
  int flags;
  const char* text;
};
inline constexpr int kFastCall = 0x0080;  // METH_FASTCALL

inline PyMethodDef* as_definition(Method* method) {
  return reinterpret_cast<PyMethodDef*>(method);
}

}  // namespace rlk::torch
