"""What a call of rlk can raise: Error and a class for each status, most of them also what Python calls such a thing."""
from rlk import _abi


class Error(RuntimeError):
    """A call failed: what was seen, what was expected, what to do. status is the C API's number, native_code the vendor's
    own (0 when there is none), domain whose code that is."""
    status = 0

    def __init__(self, text, native_code=0, domain=""):
        super().__init__(text)
        self.native_code, self.domain = native_code, domain

    def __reduce__(self):
        return type(self), (str(self), self.native_code, self.domain)


def word(text, what):
    """A text as C reads it: none that holds a NUL, where C's ends."""
    if not isinstance(text, str) or "\0" in text:
        raise InvalidArgument(f"{what} is {text!r}, expected a text without a NUL")
    return text.encode()


class InvalidArgument(Error, ValueError):
    """The call broke the declaration of its operator, or a function was given what it does not take."""
    status = -1


class Unsupported(Error, NotImplementedError):
    """Legal, but no plugin here offers it."""
    status = -2


class OutOfMemory(Error, MemoryError):
    """Of the device or of the host."""
    status = -3


class DataError(Error, ValueError):
    """Values in a tensor break their domain (an id out of range). The rows concerned are NaN. Calls on the CPU raise it; on a
    device Stream.done and Stream.synchronize do."""
    status = -4


class Timeout(Error, TimeoutError):
    """A deadline passed; the work goes on."""
    status = -5


class DeviceLost(Error):
    """Every further call on the device fails the same way."""
    status = -6


class BackendError(Error):
    """The vendor's runtime failed."""
    status = -7


class AbiMismatch(Error):
    """Host and plugin do not fit."""
    status = -8



class NotFound(Error, LookupError):
    """A name that is not registered."""
    status = -9


class Absent(Error):
    """No such hardware, driver or runtime on this machine."""
    status = -10


class PluginException(Error):
    """A C++ exception reached a plugin's boundary and was stopped there."""
    status = -11


class CaptureForbids(Error):
    """Would break the graph capture in progress; nothing was enqueued."""
    status = -12


class Internal(Error):
    """A defect of rlk or of a plugin: report it with the text."""
    status = -13


class WrongResult(Error):
    """An earlier call's result was compared and is wrong; its implementation is off."""
    status = -14


class ArgumentTypeError(Error, TypeError):
    """An argument that is no tensor, or one that Python cannot hand over. The C API was not called."""
    status = -1


OK = 0
NOT_READY = 1
CLASSES = {kind.status: kind for kind in
           (InvalidArgument, Unsupported, OutOfMemory, DataError, Timeout, DeviceLost, BackendError, AbiMismatch, NotFound,
            Absent, PluginException, CaptureForbids, Internal, WrongResult)}


def fresh():
    return _abi.Error(struct_size=_SIZE)


def raise_for(status, error):
    text = error.text.decode("utf-8", "replace") or f"rlk failed with status {status} and without a text"
    raise CLASSES.get(status, Error)(text, error.native_code, error.domain.decode("utf-8", "replace"))


def check(function, *arguments):
    """Calls a function of the C API whose last argument is the error, and raises what it says."""
    error = fresh()
    status = function(*arguments, error)
    if status < OK:
        raise_for(status, error)
    return status


_SIZE = _abi.ctypes.sizeof(_abi.Error)
