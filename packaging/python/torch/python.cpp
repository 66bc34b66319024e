#include "python.hpp"

#include <dlfcn.h>

namespace rlk::torch {
namespace {

Python bound;
rlk_torch_python known;

// Python is in the process; librlk_torch links nothing of it.
bool bind() {
  Python all;
#define F(name, result, parameters)                                              \
  all.name = reinterpret_cast<result(*) parameters>(dlsym(RTLD_DEFAULT, #name)); \
  if (all.name == nullptr) return false;
#include "python_functions.inc"
#undef F
  all.none = as_object(dlsym(RTLD_DEFAULT, "_Py_NoneStruct"));
  all.yes = as_object(dlsym(RTLD_DEFAULT, "_Py_TrueStruct"));
  all.no = as_object(dlsym(RTLD_DEFAULT, "_Py_FalseStruct"));
  auto* const error = static_cast<_object**>(dlsym(RTLD_DEFAULT, "PyExc_RuntimeError"));
  if (all.none == nullptr || all.yes == nullptr || all.no == nullptr || error == nullptr) return false;
  all.runtime_error = *error;
  const auto name = [&](const char* text) { return all.PyUnicode_InternFromString(text); };
  all.names = {name("is_neg"),
               name("requires_grad"),
               name("contiguous"),
               name("to"),
               name("dtype"),
               name("_cdata"),
               name("kept"),
               name("to_save"),
               name("saved_tensors"),
               name("needs_input_grad"),
               name("materialize_grads"),
               name("non_differentiable"),
               name("_current_level")};
  bound = all;
  return true;
}

}  // namespace

const Python& python = bound;
const rlk_torch_python& of_rlk = known;

bool bind_python(const rlk_torch_python& given) {
  static const bool is_bound = bind();
  known = given;
  return is_bound;
}

bool is_unwatched() {
  _object* const level = python.PyDict_GetItemWithError(as_object(of_rlk.tangents), python.names.level);
  if (level == nullptr || python.PyLong_AsLong(level) >= 0) return false;
  const ptrdiff_t n = python.PyTuple_Size(as_object(of_rlk.watchers));
  for (ptrdiff_t i = 0; i < n; ++i) {
    const Object answer(python.PyObject_CallObject(python.PyTuple_GetItem(as_object(of_rlk.watchers), i), nullptr));
    if (!answer || (answer.get() != python.no && python.PyObject_IsTrue(answer.get()) != 0)) return false;
  }
  return true;
}

bool records_gradients() {
  const Object answer(python.PyObject_CallObject(as_object(of_rlk.records), nullptr));
  return answer.get() != python.no;
}

Object tuple_of(_object* const* objects, ptrdiff_t n) {
  Object made(python.PyTuple_New(n));
  for (ptrdiff_t i = 0; made && i < n; ++i) {
    python.Py_IncRef(objects[i]);
    python.PyTuple_SetItem(made.get(), i, objects[i]);
  }
  return made;
}

}  // namespace rlk::torch
