"""What a caller passes as a tensor, seen as memory: numpy and torch by their own attributes, everything else by DLPack.
Nothing here copies or converts."""
import ctypes
import sys
from typing import Any, NamedTuple, Tuple

from rlk import _abi
from rlk.errors import ArgumentTypeError, InvalidArgument, Unsupported

Array = Any  # numpy.ndarray, torch.Tensor, cupy.ndarray, jax.Array: whatever has __dlpack__

# DLPack's device types.
CPU, CUDA, CUDA_HOST, ROCM, ROCM_HOST, EXT_DEV, CUDA_MANAGED = 1, 2, 3, 10, 11, 12, 13
_HOST = (CUDA_HOST, ROCM_HOST)


class View(NamedTuple):
    """A tensor as the C API sees it. owner keeps the memory, kind makes outputs beside it."""
    address: int
    dtype: Tuple[int, int]  # DLPack's code and bits
    shape: Tuple[int, ...]
    strides: Tuple[int, ...]  # in elements
    device: Tuple[int, int]  # DLPack's type and number
    readonly: bool
    kind: Any
    owner: Any


class Numpy:
    """numpy arrays; ml_dtypes' bfloat16 and 8-bit floats among them."""
    dtypes, by_name = {}, {}

    @classmethod
    def dtype(cls, dtype, argument):
        if dtype not in cls.dtypes:
            names = {"float32": "f32", "float64": "f64", "float16": "f16", "bfloat16": "bf16", "bool": "bool",
                     "float8_e4m3fn": "f8_e4m3fn", "float8_e5m2": "f8_e5m2"}
            names |= {f"{word}{bits}": f"{word[0]}{bits}" for word in ("int", "uint") for bits in (8, 16, 32, 64)}
            name = names.get(dtype.name)
            if name is None or not dtype.isnative:
                raise InvalidArgument(f"{argument} has numpy dtype {dtype.str if not dtype.isnative else dtype.name}, which "
                                      "no operator takes. Convert it (x.astype)")
            cls.dtypes[dtype] = _abi.DTYPES[name]
            cls.by_name.setdefault(name, dtype)
        return cls.dtypes[dtype]

    @classmethod
    def view(cls, x, argument):
        dtype = cls.dtype(x.dtype, argument)
        size = dtype[1] >> 3
        strides = x.strides
        if any(s % size for s in strides):
            raise InvalidArgument(f"{argument} has strides of {strides} bytes, which are no multiples of its element's "
                                  f"{size}. Copy it (numpy.ascontiguousarray)")
        address, readonly = x.__array_interface__["data"]
        return View(address, dtype, x.shape, tuple([s // size for s in strides]), (CPU, 0), readonly, cls, x)

    @classmethod
    def empty(cls, shape, name, like):
        import numpy
        if name not in cls.by_name:
            names = {"f32": "float32", "f64": "float64", "f16": "float16", "bool": "bool"}
            names |= {f"{w[0]}{b}": f"{w}{b}" for w in ("int", "uint") for b in (8, 16, 32, 64)}
            if name not in names:
                import ml_dtypes  # numpy has no such dtype of its own
                names |= {"bf16": ml_dtypes.bfloat16, "f8_e4m3fn": ml_dtypes.float8_e4m3fn,
                          "f8_e5m2": ml_dtypes.float8_e5m2}
            cls.by_name[name] = numpy.dtype(names[name])
        return numpy.empty(shape, cls.by_name[name])

    @staticmethod
    def name_of(dtype):
        """The declarations' name of a dtype of numpy's, or None."""
        import numpy
        if not isinstance(dtype, (numpy.dtype, type, str)):  # numpy.dtype(x) would take the dtype that an array has
            return None
        try:
            return _abi.DTYPE_NAMES[Numpy.dtype(numpy.dtype(dtype), "the dtype")]
        except (TypeError, ValueError, InvalidArgument):
            return None


class Torch:
    """torch tensors."""
    dtypes, by_name = {}, {}

    @classmethod
    def fill(cls):
        torch = sys.modules["torch"]
        names = {"f32": "float32", "f64": "float64", "f16": "float16", "bf16": "bfloat16", "bool": "bool",
                 "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64", "u8": "uint8", "u16": "uint16",
                 "u32": "uint32", "u64": "uint64", "f8_e4m3fn": "float8_e4m3fn", "f8_e5m2": "float8_e5m2"}
        cls.by_name = {ours: getattr(torch, theirs) for ours, theirs in names.items() if hasattr(torch, theirs)}
        cls.dtypes = {theirs: _abi.DTYPES[ours] for ours, theirs in cls.by_name.items()}

    @classmethod
    def view(cls, x, argument):
        if not cls.dtypes:
            cls.fill()
        torch = sys.modules["torch"]
        dtype = cls.dtypes.get(x.dtype)
        if dtype is None:
            raise InvalidArgument(f"{argument} has dtype {x.dtype}, which no operator takes. Convert it (x.to)")
        cls.refuse_nested(x, argument)
        if x.layout is not torch.strided:
            raise InvalidArgument(f"{argument} has layout {x.layout}. Pass a strided tensor (x.to_dense())")
        if x.is_neg() or x.is_conj():
            raise InvalidArgument(f"{argument} is a lazily negated or conjugated view. Call x.resolve_neg().resolve_conj()")
        try:
            device = cls.device_of(x)
        except ValueError:  # "meta", say
            raise InvalidArgument(f"{argument} is on {x.device}, which has no memory that rlk could reach") from None
        return View(x.data_ptr(), dtype, tuple(x.shape), x.stride(), device, False, cls, x)

    @staticmethod
    def refuse_nested(x, argument):
        if x.is_nested:
            raise InvalidArgument(f"{argument} is a nested tensor. Pass its values (x.values()), and where the operator takes "
                                  "sequences their cu_seqlens (x.offsets()); or a padded tensor (x.to_padded_tensor)") from None

    @staticmethod
    def device_of(x):
        """DLPack's type and number of a tensor's device; ValueError where it has none."""
        device = x.device
        if device.type == "cpu":
            return CPU, 0
        # torch's own answer leaves out the devices that extensions bring, whatever they call themselves.
        if device.type == sys.modules["torch"]._C._get_privateuse1_backend_name():
            return EXT_DEV, device.index or 0
        kind, number = x.__dlpack_device__()
        return int(kind), number

    @staticmethod
    def records(x):
        """Does torch expect a gradient of what is computed with x now?"""
        torch = sys.modules.get("torch")
        return torch is not None and isinstance(x, torch.Tensor) and x.requires_grad and torch.is_grad_enabled()

    @classmethod
    def refuse_gradient(cls, x, operator):
        if x.requires_grad and cls.records(x):
            raise InvalidArgument(f"{operator}: an input requires a gradient, which rlk.ops does not record. Call "
                                  f"rlk.torch.{operator}, or pass x.detach(), or call under torch.no_grad()")

    @staticmethod
    def note_change(tensors):
        """Says before a call that it changes them: a backward that has saved one must not compute with other numbers. A
        call that fails may have changed them too."""
        torch = sys.modules["torch"]
        for x in tensors:
            if isinstance(x, torch.Tensor) and not x.is_inference():  # those are in no graph, and count nothing
                torch.autograd.graph.increment_version(x)

    @classmethod
    def empty(cls, shape, name, like):
        torch = sys.modules["torch"]
        return torch.empty(shape, dtype=cls.by_name[name], device=like.device)

    @classmethod
    def name_of(cls, dtype):
        if not cls.dtypes:
            cls.fill()
        return _abi.DTYPE_NAMES.get(cls.dtypes.get(dtype))

    @staticmethod
    def native_stream(device):
        """The vendor's handle of torch's current stream on a device."""
        torch = sys.modules["torch"]
        if device[0] != EXT_DEV:
            return torch.cuda.current_stream(device[1]).cuda_stream
        # Vendors call it as torch.cuda does (torch.npu.current_stream().npu_stream); newer torch has one name for all.
        name = torch._C._get_privateuse1_backend_name()
        module = getattr(torch, name, None)
        current = getattr(module, "current_stream", None) or torch.accelerator.current_stream
        stream = current(torch.device(name, device[1]))
        for attribute in (f"{name}_stream", "native_handle"):
            handle = getattr(stream, attribute, None)
            if handle is not None:
                return int(handle)
        raise Unsupported(f"torch {torch.__version__} does not give the handle of {name}'s current stream: {stream!r} has "
                          f"neither {name}_stream nor native_handle. Pass stream=, made by rlk.runtime().wrap()")


class _Managed(ctypes.Structure):  # DLManagedTensor begins with a DLTensor
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
                ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
                ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
                ("byte_offset", ctypes.c_uint64)]


class _Versioned(ctypes.Structure):  # DLManagedTensorVersioned
    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("manager", ctypes.c_void_p),
                ("deleter", ctypes.c_void_p), ("flags", ctypes.c_uint64), ("tensor", _Managed)]


_READ_ONLY = 1
_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
_is_valid = ctypes.pythonapi.PyCapsule_IsValid
_is_valid.restype, _is_valid.argtypes = ctypes.c_int, [ctypes.py_object, ctypes.c_char_p]


class Dlpack:
    """Everything else that has __dlpack__. Outputs are numpy's on the CPU, and on a device what the array's own namespace
    makes."""

    @classmethod
    def view(cls, x, argument):
        if not hasattr(x, "__dlpack__"):
            raise ArgumentTypeError(f"{argument} is a {type(x).__name__}, expected a tensor with DLPack: of numpy, torch, "
                                    "cupy, jax (numpy.asarray makes one of numbers)")
        try:
            capsule = x.__dlpack__(max_version=(1, 0))
        except TypeError:  # a producer from before DLPack 1.0
            capsule = x.__dlpack__()
        readonly = False
        if _is_valid(capsule, b"dltensor_versioned"):
            whole = _Versioned.from_address(_pointer(capsule, b"dltensor_versioned"))
            if whole.major != 1:
                raise InvalidArgument(f"{argument} comes by DLPack {whole.major}.{whole.minor}; 1.x is known here")
            readonly, tensor = bool(whole.flags & _READ_ONLY), whole.tensor
        else:
            tensor = _Managed.from_address(_pointer(capsule, b"dltensor"))
        if tensor.lanes != 1:
            raise InvalidArgument(f"{argument} has elements of {tensor.lanes} lanes; 1 is expected")
        if tensor.ndim < 0 or (tensor.ndim > 0 and not tensor.shape):
            raise InvalidArgument(f"{argument} comes by DLPack with {tensor.ndim} dimensions"
                                  f"{'' if tensor.shape else ' and no shape'}; 0 or more and their sizes are expected")
        shape = tuple(tensor.shape[i] for i in range(tensor.ndim))
        if tensor.strides:
            strides = tuple(tensor.strides[i] for i in range(tensor.ndim))
        else:
            strides = row_major(shape)
        address, size = (tensor.data or 0) + tensor.byte_offset, max(1, tensor.bits // 8)
        if address >= 1 << 63 or address % size:
            raise InvalidArgument(f"{argument} comes by DLPack with its data at {tensor.data or 0:#x} and a byte_offset of "
                                  f"{tensor.byte_offset}; an address of memory is expected, a multiple of its elements' {size} "
                                  "bytes")
        device = (CPU, 0) if tensor.device_type in _HOST else (tensor.device_type, tensor.device_id)
        # The capsule is not consumed: its own destructor ends what the producer lent.
        return View(address, (tensor.code, tensor.bits), shape, strides, device, readonly,
                    cls, (capsule, x))

    @classmethod
    def empty(cls, shape, name, like):
        _, x = like
        if x.__dlpack_device__()[0] == CPU:
            return Numpy.empty(shape, name, None)
        namespace = x.__array_namespace__()
        names = {"f32": "float32", "f64": "float64", "f16": "float16", "bf16": "bfloat16", "i32": "int32", "i64": "int64",
                 "u8": "uint8"}
        return namespace.empty(shape, dtype=getattr(namespace, names[name]), device=x.device)

    @staticmethod
    def native_stream(device):
        """cupy's current stream, else the vendor's default one: the one that __dlpack__ without a stream answers for."""
        cupy = sys.modules.get("cupy")
        return 0 if cupy is None else cupy.cuda.get_current_stream().ptr


def row_major(shape):
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))


_kinds = {}


def view(x, argument):
    """The View of a tensor; argument is its name in errors."""
    kind = _kinds.get(type(x))
    if kind is None:
        numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
        if numpy is not None and isinstance(x, numpy.ma.MaskedArray):
            raise InvalidArgument(f"{argument} is a masked array of numpy's, whose mask no operator reads. Pass its data "
                                  "(x.data), filled (x.filled(0)), and where the operator has a mask that beside it")
        if numpy is not None and isinstance(x, numpy.ndarray):
            kind = Numpy
        elif torch is not None and isinstance(x, torch.Tensor):
            kind = Torch
        else:
            kind = Dlpack
        if kind is not Dlpack or hasattr(x, "__dlpack__"):
            _kinds[type(x)] = kind
    return kind.view(x, argument)


def dtype_name(dtype):
    """The declarations' name of a dtype: 'bf16', numpy.float32, torch.bfloat16; None when it has none."""
    if isinstance(dtype, str) and dtype in _abi.DTYPES:
        return dtype
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(dtype, torch.dtype):
        return Torch.name_of(dtype)
    return Numpy.name_of(dtype) if "numpy" in sys.modules else None
