#include "node.hpp"

#include <algorithm>
#include <array>

namespace rlk::torch {
namespace {

constexpr unsigned char kAbsent = 255;

// What the library knows of a route (rlk_torch.h), the first of the route's own parts.
struct Node {
  explicit Node(_object* route) : parts(python.PyTuple_GetItem(route, 0)) {}
  _object* part(ptrdiff_t i) const { return python.PyTuple_GetItem(parts, i); }
  _object* request() const { return part(0); }
  _object* places() const { return part(1); }
  _object* saved() const { return part(2); }
  _object* idle() const { return part(3); }
  _object* ways() const { return part(4); }  // None: the backward is Python's, and asks for the dtypes of the inputs
  _object* pin() const { return part(5); }
  _object* parts;
};

// A call on its way through torch's apply to the forward below.
struct Pending {
  _object* kept;
  Taken* taken;
};
thread_local Pending* pending = nullptr;

bool set(_object* ctx, _object* name, _object* value) {
  return python.PyObject_SetAttr(ctx, name, value) == 0;
}

// The route with the dtypes of the inputs.
Object with_dtypes(_object* route, _object* const* given, ptrdiff_t n) {
  Object dtypes(python.PyTuple_New(n));
  for (ptrdiff_t i = 0; i < n; ++i) {
    _object* const dtype = dtypes ? python.PyObject_GetAttr(given[i], python.names.dtype) : nullptr;
    if (dtype == nullptr) return {};
    python.PyTuple_SetItem(dtypes.get(), i, dtype);
  }
  std::array<_object*, 2> both{route, dtypes.get()};
  return tuple_of(both.data(), 2);
}

bool keep(_object* ctx, const Node& node, _object* kept, _object* const* given, ptrdiff_t n, _object* outputs) {
  Object own;
  if (node.ways() == python.none) {
    own = with_dtypes(python.PyTuple_GetItem(kept, 0), given, n);
    if (!own) return false;
  }
  if (!set(ctx, python.names.kept, own ? own.get() : kept) || !set(ctx, python.names.materialize_grads, python.no)) {
    return false;
  }
  std::array<_object*, 2 * kMaxArguments> tensors;
  ptrdiff_t count = 0;
  for (const unsigned char i : Bytes(node.saved())) {
    tensors[static_cast<size_t>(count++)] =
        i == kAbsent ? python.none : (i < n ? given[i] : python.PyTuple_GetItem(outputs, i - n));
  }
  if (count == 0) return true;
  const Object saved = tuple_of(tensors.data(), count);
  return saved && set(ctx, python.names.to_save, saved.get());
}

// forward(ctx, *tensors)
_object* forward(_object* /*self*/, _object* const* given, ptrdiff_t n) {
  const Pending* const call = std::exchange(pending, nullptr);
  if (call == nullptr || n < 2) {
    python.PyErr_SetString(python.runtime_error, "this node of rlk.torch is for calls of rlk.torch alone");
    return nullptr;
  }
  const Node node(python.PyTuple_GetItem(call->kept, 0));
  Object outputs = call->taken->run(request_of(node.request()));
  if (!outputs || !keep(given[0], node, call->kept, given + 1, n - 1, outputs.get())) return nullptr;
  if (node.places() != python.none) {
    std::array<_object*, kMaxArguments> some;
    ptrdiff_t count = 0;
    for (const unsigned char i : Bytes(node.places())) {
      some[static_cast<size_t>(count++)] = python.PyTuple_GetItem(outputs.get(), i);
    }
    outputs = tuple_of(some.data(), count);
    if (!outputs) return nullptr;
  }
  const Bytes without_gradient(node.idle());
  if (without_gradient.size != 0) {
    std::array<_object*, kMaxArguments> idle;
    ptrdiff_t count = 0;
    for (const unsigned char i : without_gradient) {
      idle[static_cast<size_t>(count++)] = python.PyTuple_GetItem(outputs.get(), i);
    }
    const Object some = tuple_of(idle.data(), count);
    if (!some || !set(given[0], python.names.non_differentiable, some.get())) return nullptr;
  }
  return outputs.release();
}

// Not by the library: Python finds out how, and notes it in the node's ways.
_object* slow_backward(_object* ctx, _object* const* gradients, ptrdiff_t n) {
  std::array<_object*, kMaxArguments + 1> arguments{ctx};
  std::copy(gradients, gradients + n, arguments.begin() + 1);
  const Object packed = tuple_of(arguments.data(), n + 1);
  return packed ? python.PyObject_CallObject(as_object(of_rlk.backward), packed.get()) : nullptr;
}

// The way that is known of a backward with these gradients, for the inputs that need one; or nullptr.
_object* way_of(const Node& node, _object* needs, _object* const* gradients, ptrdiff_t n) {
  if (node.ways() == python.none) return nullptr;
  std::array<char, 2 * kMaxArguments> key;
  const ptrdiff_t n_needs = python.PyTuple_Size(needs);
  for (ptrdiff_t i = 0; i < n_needs; ++i) {
    key[static_cast<size_t>(i)] = static_cast<char>(python.PyTuple_GetItem(needs, i) == python.yes);
  }
  for (ptrdiff_t i = 0; i < n; ++i)
    key[static_cast<size_t>(n_needs + i)] = static_cast<char>(gradients[i] == python.none);
  const Object packed(python.PyBytes_FromStringAndSize(key.data(), n_needs + n));
  return packed ? python.PyDict_GetItemWithError(node.ways(), packed.get()) : nullptr;
}

// The gradient in the dtype of its input: sums of 16-bit gradients come in fp32.
Object of_dtype_of(_object* x, _object* gradient) {
  const Object wanted(python.PyObject_GetAttr(x, python.names.dtype));
  const Object own(python.PyObject_GetAttr(gradient, python.names.dtype));
  if (!wanted || !own) return {};
  if (wanted.get() == own.get()) return Object::of(gradient);
  return Object(python.PyObject_CallMethodObjArgs(gradient, python.names.to, wanted.get(), nullptr));
}

// apply(ctx, *gradients)
_object* backward(_object* ctx, _object* const* gradients, ptrdiff_t n) {
  const Object kept(python.PyObject_GetAttr(ctx, python.names.kept));
  const Object needs(python.PyObject_GetAttr(ctx, python.names.needs_input_grad));
  if (!kept || !needs) return nullptr;
  const Node node(python.PyTuple_GetItem(kept.get(), 0));
  _object* const way = way_of(node, needs.get(), gradients, n);
  // Where torch records gradients the caller wants a second derivative, and the library tells so.
  if (way == nullptr || !is_unwatched() || records_gradients()) return slow_backward(ctx, gradients, n);
  const Object saved(python.PyObject_GetAttr(ctx, python.names.saved_tensors));
  if (!saved) return nullptr;
  const ptrdiff_t n_saved = python.PyTuple_Size(saved.get());
  std::array<_object*, 3 * kMaxArguments> given;
  for (ptrdiff_t i = 0; i < n_saved; ++i) given[static_cast<size_t>(i)] = python.PyTuple_GetItem(saved.get(), i);
  std::copy(gradients, gradients + n, given.begin() + n_saved);
  const Operator& op = *static_cast<const Operator*>(python.PyLong_AsVoidPtr(python.PyTuple_GetItem(way, 2)));
  Object outputs;
  {
    Taken taken;
    const rlk_torch_request& request = request_of(python.PyTuple_GetItem(way, 0));
    if (!taken.take(op, request, node.pin(), given.data(), n_saved + n, n_saved)) {
      python.PyErr_Clear();
      return slow_backward(ctx, gradients, n);
    }
    outputs = taken.run(request);
  }
  if (!outputs) return nullptr;
  const ptrdiff_t n_inputs = python.PyTuple_Size(needs.get());
  std::array<_object*, kMaxArguments> places;
  std::fill_n(places.begin(), n_inputs, python.none);
  Object results = tuple_of(places.data(), n_inputs);
  const Bytes pairs(python.PyTuple_GetItem(way, 1));
  for (ptrdiff_t i = 0; results && i + 1 < pairs.size; i += 2) {
    Object gradient = of_dtype_of(given[pairs.data[i]], python.PyTuple_GetItem(outputs.get(), pairs.data[i + 1]));
    if (!gradient) return nullptr;
    python.PyTuple_SetItem(results.get(), pairs.data[i], gradient.release());
  }
  return results.release();
}

Method forward_method = {"forward", forward, kFastCall, nullptr};
Method backward_method = {"apply", backward, kFastCall, nullptr};

}  // namespace

bool is_node(_object* route) {
  return python.PyTuple_GetItem(route, 0) != python.none;
}

Object run_node(_object* kept, Taken* taken, _object* const* given, ptrdiff_t n) {
  std::array<_object*, kMaxArguments> tensors;
  _object** const end = std::copy_if(given, given + n, tensors.begin(), [](auto* x) { return x != python.none; });
  const Object packed = tuple_of(tensors.data(), end - tensors.begin());
  if (!packed) return {};
  Pending mine{kept, taken};
  Pending* const outer = std::exchange(pending, &mine);
  Object outputs(python.PyObject_CallObject(as_object(of_rlk.node), packed.get()));
  pending = outer;
  return outputs;
}

_object* node_method(const rlk_torch_python& given, void* base, bool is_backward) {
  if (!bind_python(given)) return nullptr;
  if (is_backward) return python.PyDescr_NewMethod(static_cast<_typeobject*>(base), as_definition(&backward_method));
  return python.PyCMethod_New(as_definition(&forward_method), nullptr, nullptr, nullptr);
}

}  // namespace rlk::torch
