"""Which stream serves memory on a device. The backend is what rlk's probe found, never a framework's word for a device: a
torch built for another vendor calls its devices "cuda" too."""
import ctypes

from rlk import _runtime, errors
from rlk._tensors import CPU, CUDA, CUDA_MANAGED, EXT_DEV, ROCM
from rlk.errors import InvalidArgument

_NAMES = {CPU: "the CPU", CUDA: "a CUDA device", CUDA_MANAGED: "a CUDA device (managed)", ROCM: "a ROCm device",
          EXT_DEV: "an extension device"}
_found = {}


def text(device):
    name = _NAMES.get(device[0], f"a device of DLPack's type {device[0]}")
    return name if device[0] == CPU else f"{name} {device[1]}"


def backend_of(device, address):
    """The backend that has the memory at `address` on such a device here, 0 where there is none to look at."""
    if device[0] == CPU:
        return "cpu"
    found = _found  # of before a reload that comes meanwhile, if one does
    if device not in found:
        backend = ctypes.c_char_p()
        errors.check(_runtime.library().rlk_device_find, _runtime.runtime().handle, *device, address or None, backend)
        found[device] = backend.value.decode()
    return found[device]


def _forget():
    global _found
    _found = {}


_runtime.at_reload(_forget)  # another plugin may serve the device now


def stream_for(device, address, kind):
    if device[0] == CPU:
        return _runtime.stream_of_thread()
    return _runtime.stream_of_thread(backend_of(device, address), device[1], kind.native_stream(device))


def check_stream(stream, device, operator):
    if not isinstance(stream, _runtime.Stream):
        raise InvalidArgument(f"{operator}: stream is {stream!r}, expected a rlk.Stream, of rlk.runtime().stream() or, around one "
                              "of a framework's, rlk.runtime().wrap()")
    on_host = device[0] == CPU
    if on_host != (stream.backend == "cpu") or (not on_host and stream.ordinal != device[1]):
        raise InvalidArgument(f"{operator}: the tensors are on {text(device)}, the stream is of {stream.backend}:"
                              f"{stream.ordinal}. Pass a stream of their device, or none")
