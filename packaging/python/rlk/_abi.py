"""The C structs and constants of rlk.h and rlk/abi/*.h that Python touches. tests/python/abi_test.py compares every one of
them with what a C compiler makes of the headers."""
import ctypes
import struct
from ctypes import POINTER, c_char, c_char_p, c_double, c_int32, c_int64, c_uint8, c_uint16, c_uint32, c_uint64, c_void_p


class Error(ctypes.Structure):
    _fields_ = [("struct_size", c_uint32), ("status", c_int32), ("native_code", c_int64), ("domain", c_char * 32),
                ("text", c_char * 464)]


class Dtype(ctypes.Structure):
    _fields_ = [("code", c_uint8), ("bits", c_uint8), ("lanes", c_uint16)]


class Tensor(ctypes.Structure):
    _fields_ = [("struct_size", c_uint32), ("alignment", c_uint32), ("data", c_void_p), ("byte_offset", c_uint64),
                ("shape", c_void_p), ("strides", c_void_p), ("ndim", c_int32), ("dtype", Dtype)]


class RuntimeOptions(ctypes.Structure):
    _fields_ = [("struct_size", c_uint32), ("wait_for_probes", c_uint32), ("plugin_path", c_char_p),
                ("config_path", c_char_p), ("device_allocator", c_void_p)]


class CallOptions(ctypes.Structure):
    _fields_ = [("struct_size", c_uint32), ("numerics", c_uint32), ("pin", c_char_p), ("host_inputs", c_void_p),
                ("next", c_void_p), ("choice", c_void_p)]


class DeviceProperties(ctypes.Structure):
    _fields_ = [("struct_size", c_uint32), ("flags", c_uint32), ("simt_width", c_uint32), ("compute_units", c_uint32),
                ("memory_bytes", c_uint64), ("l2_bytes", c_uint64), ("numa_node", c_int32),
                ("dlpack_device_type", c_int32), ("uuid", c_uint8 * 16), ("name", c_char * 64), ("arch", c_char * 32), ("pci_bus_id", c_char * 24),
                ("driver_version", c_char * 32), ("runtime_version", c_char * 32)]


# C name: Python. The test finds the C names in the headers.
STRUCTS = {"rlk_error": Error, "rlk_dtype": Dtype, "rlk_tensor": Tensor, "rlk_runtime_options": RuntimeOptions,
           "rlk_call_options": CallOptions, "rlk_device_properties": DeviceProperties}

MAX_NDIM = 8
# name: (code, bits), as declarations call them.
DTYPES = {"f32": (2, 32), "bf16": (4, 16), "f16": (2, 16), "f64": (2, 64), "i8": (0, 8), "i16": (0, 16),
          "i32": (0, 32), "i64": (0, 64), "u8": (1, 8), "u16": (1, 16), "u32": (1, 32), "u64": (1, 64), "bool": (6, 8),
          "f8_e4m3fn": (10, 8), "f8_e5m2": (12, 8)}
DTYPE_NAMES = {pair: name for name, pair in DTYPES.items()}
NUMERICS = {"tolerance": 1, "accurate": 2, "deterministic": 4, "batch_invariant": 8, "portable": 16}
FOREVER = 2**64 - 1

# What calls pack by the thousand: the fields above without ctypes' price for each.
PACKED_TENSOR = struct.Struct("=IIQQQQiBBH")
PACKED_OPTIONS = struct.Struct("=IIQQQQ")

_STATUS = c_int32
_FUNCTIONS = {
    "rlk_version": (c_char_p, []),
    "rlk_runtime_create": (_STATUS, [POINTER(RuntimeOptions), POINTER(c_void_p), POINTER(Error)]),
    "rlk_runtime_destroy": (_STATUS, [c_void_p, POINTER(Error)]),
    "rlk_runtime_require": (_STATUS, [c_void_p, c_char_p, c_double, POINTER(Error)]),
    "rlk_runtime_reload": (_STATUS, [c_void_p, POINTER(c_void_p), POINTER(Error)]),
    "rlk_device_count": (_STATUS, [c_void_p, c_char_p, POINTER(c_uint32), POINTER(Error)]),
    "rlk_device_describe": (_STATUS, [c_void_p, c_char_p, c_uint32, POINTER(DeviceProperties), POINTER(Error)]),
    "rlk_device_find": (_STATUS, [c_void_p, c_int32, c_int32, c_void_p, POINTER(c_char_p), POINTER(Error)]),
    "rlk_stream_create": (_STATUS, [c_void_p, c_char_p, c_uint32, c_int32, POINTER(c_void_p), POINTER(Error)]),
    "rlk_stream_wrap": (_STATUS, [c_void_p, c_char_p, c_uint32, c_void_p, POINTER(c_void_p), POINTER(Error)]),
    "rlk_stream_destroy": (_STATUS, [c_void_p, POINTER(Error)]),
    "rlk_stream_query": (_STATUS, [c_void_p, POINTER(Error)]),
    "rlk_stream_synchronize": (_STATUS, [c_void_p, c_uint64, POINTER(Error)]),
    "rlk_op_find": (_STATUS, [c_char_p, POINTER(c_void_p), POINTER(Error)]),
    "rlk_call": (_STATUS, [c_void_p, c_void_p, c_void_p, c_void_p, c_uint32, c_void_p, c_uint32, c_void_p,
                           POINTER(Error)]),
    "rlk_list_json": (_STATUS, [c_void_p, POINTER(c_void_p), POINTER(Error)]),
    "rlk_ops_json": (_STATUS, [POINTER(c_void_p), POINTER(Error)]),
    "rlk_explain_json": (_STATUS, [c_void_p, c_void_p, c_void_p, c_void_p, c_uint32, c_void_p, c_uint32, c_void_p,
                                   POINTER(c_void_p), POINTER(Error)]),
    "rlk_counters_json": (_STATUS, [c_void_p, POINTER(c_void_p), POINTER(Error)]),
    "rlk_string_free": (None, [c_void_p]),
}


def load(path):
    """librlk with the types of its functions. ctypes gives the GIL up while one of them runs."""
    library = ctypes.CDLL(path)
    for name, (result, arguments) in _FUNCTIONS.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


def params_struct(name, params):
    """rlk_<op>_params: every parameter is eight bytes wide."""
    fields = [("struct_size", c_uint32), ("reserved", c_uint32)]
    fields += [(p.name, c_double if p.type == "f64" else c_int64) for p in params]
    return type(f"{name}_params", (ctypes.Structure,), {"_fields_": fields})
