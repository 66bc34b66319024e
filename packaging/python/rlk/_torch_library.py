"""librlk_torch, the kernels of torch.ops.rlk on torch's stable ABI. One build serves torch 2.10 and newer; with an older
torch the kernels are Python's, and `served_by` says so."""
import ctypes
import os
import struct

import torch

from rlk import _abi, _devices, _location, _runtime, errors
from rlk._tensors import CPU, Torch

_RESOLVE = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int32, ctypes.c_int32, ctypes.POINTER(ctypes.c_void_p),
                            ctypes.POINTER(ctypes.c_char), ctypes.POINTER(_abi.Error))


class Description(ctypes.Structure):  # rlk_torch_operator
    _fields_ = [("struct_size", ctypes.c_uint32), ("n_inputs", ctypes.c_uint32), ("n_required", ctypes.c_uint32),
                ("n_outputs", ctypes.c_uint32), ("n_params", ctypes.c_uint32), ("gives_list", ctypes.c_uint32),
                ("bytes_as_u8", ctypes.c_uint64), ("changed", ctypes.c_uint64), ("required_outputs", ctypes.c_uint64),
                ("name", ctypes.c_char_p), ("param_kinds", ctypes.c_char_p), ("defaults", ctypes.c_void_p),
                ("must_alias", ctypes.c_void_p)]


class Python(ctypes.Structure):  # rlk_torch_python
    _fields_ = [(name, ctypes.c_void_p) for name in ("tensor_type", "parameter_type", "to_handle", "from_handles", "watchers",
                                                     "tangents", "records", "refused", "apply", "node", "backward")]


REQUEST = struct.Struct("=QII32s")  # rlk_torch_request


def _resolve(kind, index, runtime, backend, error):
    """The backend that serves the memory of torch's device: what rlk's probes found, never torch's word for it."""
    try:
        name = _devices.backend_of(*_dlpack_device(kind, index)).encode()
        runtime[0] = _runtime.runtime().handle
        ctypes.memmove(backend, name + b"\0", len(name) + 1)
        return errors.OK
    except errors.Error as e:
        status, text = e.status, str(e)
    except Exception as e:  # none may leave
        status, text = errors.Internal.status, f"{type(e).__name__}: {e}"
    error[0].status, error[0].text = status, text.encode()[:463]
    return status


def _dlpack_device(kind, index):
    """DLPack's words for a device that torch's C++ side calls by numbers, and the address of memory there."""
    name = torch.autograd.DeviceType(kind).name.lower()
    if name == "cpu":
        return (CPU, 0), 0
    if name == "privateuse1":
        name = torch._C._get_privateuse1_backend_name()
    try:
        sample = torch.empty(1, device=torch.device(name, index))
        number = Torch.device_of(sample)
    except Exception as e:
        raise errors.Unsupported(f"memory is on torch's device {name}:{index}, which has no number of DLPack's ({e}), and "
                                 "no implementation here serves that") from None
    return number, sample.data_ptr()


_held = _RESOLVE(_resolve)  # the library keeps its address
_library, _callable, _node, _python, served_by = None, None, None, None, ""
_introduced = {}  # of whose objects the library has the addresses


def open():
    """Finds the library and torch's C ABI; where that fails `served_by` says why. RLK_TORCH_LIBRARY=0 asks for Python."""
    global _library, _callable, _node, _python, served_by
    if os.environ.get("RLK_TORCH_LIBRARY") == "0":
        served_by = "Python: RLK_TORCH_LIBRARY is 0"
        return
    _runtime.library()  # librlk, which the library needs, from the same folder
    library = ctypes.CDLL(_location.torch_library())
    library.rlk_torch_open.argtypes = [_RESOLVE, ctypes.POINTER(_abi.Error)]
    library.rlk_torch_register.argtypes = [ctypes.POINTER(Description), ctypes.POINTER(_abi.Error)]
    library.rlk_torch_error.argtypes, library.rlk_torch_error.restype = [ctypes.POINTER(_abi.Error)], None
    library.rlk_torch_reloaded.argtypes, library.rlk_torch_reloaded.restype = [], None
    try:
        errors.check(library.rlk_torch_open, _held)
    except errors.NotFound as e:
        served_by = f"Python: torch {torch.__version__}: {e}"
        return
    _runtime.at_reload(library.rlk_torch_reloaded)
    _callable = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_char_p, ctypes.POINTER(Python), ctypes.c_void_p, ctypes.c_int32)(
        ("rlk_torch_callable", library))  # of Python's objects, so under the GIL
    library.rlk_torch_operator_address.argtypes, library.rlk_torch_operator_address.restype = [ctypes.c_char_p], ctypes.c_void_p
    _node = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.POINTER(Python), ctypes.c_void_p, ctypes.c_int32)(
        ("rlk_torch_node", library))
    _python = Python(id(torch.Tensor), id(torch.nn.Parameter), *map(id, _by_handles))
    _library, served_by = library, f"librlk_torch on the stable ABI of torch {torch.__version__}"


def _handles():
    """torch's functions that make a handle of a tensor, and tensors of a list of handles, for a torch whose stable ABI does not
    (before 2.14). They are those of its graphs in C++, and tried before they are believed."""
    try:
        to_handle = torch._C._aoti.unsafe_alloc_void_ptr_from_tensor
        from_handles = torch._C._aoti.alloc_tensors_by_stealing_from_void_ptrs
        sample = torch.empty(2)
        return (to_handle, from_handles) if from_handles([to_handle(sample)])[0] is sample else ()
    except (AttributeError, RuntimeError, TypeError):
        return ()


_by_handles = _handles()  # the library has their addresses


def register(function, n_required):
    """Makes the library's kernel that of the operator; False where Python's has to serve."""
    if _library is None:
        return False
    op = function.operator
    bits = lambda chosen: sum(1 << i for i, a in enumerate(op.inputs) if chosen(a))
    changed = {o.must_alias for o in op.outputs}
    place = {a.name: i for i, a in enumerate(op.inputs)}
    kinds = "".join("f" if p.type == "f64" else "i" for p in op.params)
    defaults = ctypes.create_string_buffer(op.packed_params.pack(0, 0, *function.defaults)[8:])
    alias = (ctypes.c_int32 * len(op.outputs))(*(place.get(o.must_alias, -1) for o in op.outputs))
    errors.check(_library.rlk_torch_register, Description(
        ctypes.sizeof(Description), len(op.inputs), n_required, len(op.outputs), len(op.params), bool(function.made),
        bits(lambda a: a.dtype == "u8"), bits(lambda a: a.name in changed), function.required, op.name.encode(),
        kinds.encode(), ctypes.addressof(defaults), ctypes.addressof(alias)))
    return True


def introduce(**objects):
    """Gives the library what it calls (rlk_torch_python)."""
    _introduced.update(objects, refused=lambda text: raise_own(RuntimeError(text.decode("utf-8", "replace"))))
    if _python is not None:
        for name, x in _introduced.items():
            setattr(_python, name, id(x))


def _made(address):
    """The object of a new reference, or None."""
    return ctypes.cast(address, ctypes.py_object).value if address else None


def node_methods(base):
    """forward of a class for calls with a gradient, and apply of what runs its backward, where the library has them."""
    made = [] if _node is None else [_made(_node(_python, id(base), is_backward)) for is_backward in (False, True)]
    return [] if None in made else made


def address(name):
    return None if _library is None else _library.rlk_torch_operator_address(name.encode())


def unknown(*call):
    """Of no call the library knows all."""


def callables(name):
    """The library's functions for calls around the dispatcher, or None, and for whole calls (rlk_torch.h)."""
    if _callable is None:
        return None, unknown
    direct, whole = [_made(_callable(name.encode(), _python, None, is_planned)) for is_planned in (False, True)]
    return direct, whole or unknown


def shorten(overload, name):
    """Lets an overload that graphs call go around the dispatcher. torch itself puts other functions in this place."""
    entry = getattr(overload, "_op", None)
    made = None if _callable is None or entry is None else _made(_callable(name.encode(), _python, id(entry), False))
    if made is not None:
        overload._op = made


def raise_own(error):
    """The exception of rlk's for the one that torch made of a kernel's."""
    if _library is not None:
        told = errors.fresh()
        _library.rlk_torch_error(told)
        if told.status < 0 and str(error).startswith(told.text.decode("utf-8", "replace")):
            errors.raise_for(told.status, told)
    raise error


open()
