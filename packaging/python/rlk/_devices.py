"""Which stream serves memory on a device. The backend is what rlk's probe found, never a framework's word for a device: a
torch built for another vendor calls its devices "cuda" too."""
from rlk import _runtime
from rlk._tensors import CPU, CUDA, CUDA_MANAGED, EXT_DEV, ROCM
from rlk.errors import InvalidArgument, Unsupported

_NAMES = {CPU: "the CPU", CUDA: "a CUDA device", CUDA_MANAGED: "a CUDA device (managed)", ROCM: "a ROCm device",
          EXT_DEV: "an extension device"}
# Backends whose memory DLPack gives that number to.
_BACKENDS = {CUDA: ("cuda", "maca"), CUDA_MANAGED: ("cuda", "maca"), ROCM: ("rocm",), EXT_DEV: ("ascend", "cambricon", "maca")}
_found = {}


def text(device):
    name = _NAMES.get(device[0], f"a device of DLPack's type {device[0]}")
    return name if device[0] == CPU else f"{name} {device[1]}"


def backend_of(device):
    """The one backend that has such a device here."""
    if device[0] == CPU:
        return "cpu"
    found = _found  # of before a reload that comes meanwhile, if one does
    if device not in found:
        known = _BACKENDS.get(device[0], ())
        runtime = _runtime.runtime()
        here = [name for name in known if _count(runtime, name) > device[1]]
        if not here:
            raise Unsupported(f"memory is on {text(device)}, and no plugin here serves that: expected one of "
                              f"{', '.join(known) or 'none'}. rlk.list() says why not")
        if len(here) > 1:
            raise Unsupported(f"memory is on {text(device)}, which may be of {' or '.join(here)}. Pass stream=, made by "
                              "rlk.runtime().wrap(native, backend, ordinal)")
        found[device] = here[0]
    return found[device]


def _forget():
    global _found
    _found = {}


_runtime.at_reload(_forget)  # another plugin may serve the device now


def _count(runtime, backend):
    try:
        return runtime.device_count(backend)
    except Exception:  # a backend that nobody registered has no devices
        return 0


def stream_for(device, kind):
    if device[0] == CPU:
        return _runtime.stream_of_thread()
    return _runtime.stream_of_thread(backend_of(device), device[1], kind.native_stream(device))


def check_stream(stream, device, operator):
    if not isinstance(stream, _runtime.Stream):
        raise InvalidArgument(f"{operator}: stream is {stream!r}, expected a rlk.Stream, of rlk.runtime().stream() or, around one "
                              "of a framework's, rlk.runtime().wrap()")
    on_host = device[0] == CPU
    if on_host != (stream.backend == "cpu") or (not on_host and stream.ordinal != device[1]):
        raise InvalidArgument(f"{operator}: the tensors are on {text(device)}, the stream is of {stream.backend}:"
                              f"{stream.ordinal}. Pass a stream of their device, or none")
