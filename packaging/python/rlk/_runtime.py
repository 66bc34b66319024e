"""Runtime and streams: the library loaded once, the runtime of this process, and a stream for each thread and device."""
import ctypes
import operator
import os
import sys
import threading

from rlk import _abi, _entry_points, _location, errors

_lock = threading.RLock()
_default = None


def c_text(handle):
    """A string that the C API gave away."""
    try:
        return ctypes.string_at(handle.value).decode("utf-8", "replace")
    finally:
        library().rlk_string_free(handle)


def library():
    global _library
    if _library is None:
        with _lock:
            if _library is None:
                _library = _abi.load(_location.library())
    return _library


_library = None


def _whole(name, value, low, high):
    """The number, where C's type holds it: ctypes would cut the rest off."""
    try:
        number = operator.index(value)
    except TypeError:
        raise errors.ArgumentTypeError(f"{name} is {value!r}, expected an integer") from None
    if not low <= number <= high:
        raise errors.InvalidArgument(f"{name} is {number}, expected {low} to {high}")
    return number


def _ordinal(value):
    return _whole("ordinal", value, 0, 2**32 - 1)


def version():
    return library().rlk_version().decode()


class Runtime:
    """A runtime of rlk. Those of one process share the plugins, so that most programs need only runtime(), the one that
    operators use by themselves. wait=False returns before every plugin has its verdict; until then the CPU serves.
    plugin_path replaces RLK_PLUGIN_PATH, config_path RLK_CONFIG. Thread-safe."""

    def __init__(self, wait=True, plugin_path=None, config_path=None):
        self._handle = None
        options = _abi.RuntimeOptions(ctypes.sizeof(_abi.RuntimeOptions), int(bool(wait)), _path(plugin_path),
                                      _path(config_path), None)
        handle = ctypes.c_void_p()
        _entry_points.add_to_environment()
        errors.check(library().rlk_runtime_create, options, handle)
        self._handle = handle.value
        self._streams = 0

    @property
    def handle(self):
        """The C API's rlk_runtime*, as a number."""
        return self._alive()

    def _alive(self):
        if self._handle is None:
            raise errors.InvalidArgument("this rlk.Runtime is closed; make another")
        return self._handle

    def device_count(self, backend):
        count = ctypes.c_uint32()
        errors.check(library().rlk_device_count, self._alive(), errors.word(backend, "backend"), count)
        return count.value

    def device(self, backend, ordinal=0):
        """What is known of a device without opening it, as a dict."""
        out = _abi.DeviceProperties(struct_size=ctypes.sizeof(_abi.DeviceProperties))
        errors.check(library().rlk_device_describe, self._alive(), errors.word(backend, "backend"), _ordinal(ordinal), out)
        fields = {name: getattr(out, name) for name, *_ in out._fields_ if name not in ("struct_size", "reserved")}
        return {name: value.decode("utf-8", "replace") if isinstance(value, bytes) else bytes(value).hex()
                if name == "uuid" else value for name, value in fields.items()}

    def stream(self, backend="cpu", ordinal=0, priority=0):
        """A stream of its own."""
        handle = ctypes.c_void_p()
        errors.check(library().rlk_stream_create, self._alive(), errors.word(backend, "backend"), _ordinal(ordinal),
                     _whole("priority", priority, -2**31, 2**31 - 1), handle)
        return Stream(self, handle.value, backend, ordinal)

    def wrap(self, native, backend, ordinal=0):
        """A stream over one of the vendor's runtime: native is its handle as a number (torch.cuda.Stream.cuda_stream)."""
        handle = ctypes.c_void_p()
        errors.check(library().rlk_stream_wrap, self._alive(), errors.word(backend, "backend"), _ordinal(ordinal), native,
                     handle)
        return Stream(self, handle.value, backend, ordinal)

    def close(self):
        """Ends the runtime. Its streams must be closed before."""
        with _lock:
            if self._streams:
                raise errors.InvalidArgument(f"{self._streams} streams of this rlk.Runtime are open: close them first")
            if self._handle is not None:
                errors.check(library().rlk_runtime_destroy, self._handle)
                self._handle = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Stream:
    """A queue of work on one device, used by one thread at a time; on the CPU the work is done when a call returns. Made by
    Runtime.stream and Runtime.wrap."""

    def __init__(self, runtime, handle, backend, ordinal):
        self.runtime, self.backend, self.ordinal, self._handle = runtime, backend, ordinal, handle
        with _lock:
            runtime._streams += 1

    @property
    def handle(self):
        """The C API's rlk_stream*, as a number."""
        if self._handle is None:
            raise errors.InvalidArgument("this rlk.Stream is closed; make another")
        return self._handle

    def done(self):
        """True when all work is done. Raises DataError, once, for values that break their domain."""
        return errors.check(library().rlk_stream_query, self.handle) == errors.OK

    def synchronize(self, timeout=None):
        """Waits for the work, at most so many seconds. Raises DataError as done does, and Timeout."""
        if timeout is not None and not timeout >= 0:
            raise errors.InvalidArgument(f"timeout is {timeout!r}, expected seconds, 0 or more, or None: without a limit")
        nanoseconds = _abi.FOREVER if timeout is None or timeout * 1e9 >= _abi.FOREVER else int(timeout * 1e9)
        errors.check(library().rlk_stream_synchronize, self.handle, nanoseconds)

    def close(self):
        with _lock:
            handle, self._handle = self._handle, None
            if handle is not None:
                self.runtime._streams -= 1
        if handle is not None:
            errors.check(library().rlk_stream_destroy, handle)

    def __del__(self):
        # Of a thread that ended, say. At the end of the process nothing is ended: other threads may be in a call.
        if not sys.is_finalizing():
            try:
                self.close()
            except errors.Error:  # a destructor has no caller to tell
                pass

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __repr__(self):
        state = "closed" if self._handle is None else f"{self._handle:#x}"
        return f"<rlk.Stream {self.backend}:{self.ordinal} {state}>"


def _path(path):
    return None if path is None else os.fspath(path).encode()


def runtime():
    """The runtime that operators use when a call gives no stream; made at first use, kept until the process ends."""
    global _default
    if _default is None:
        with _lock:
            if _default is None:
                _default = Runtime()
    return _default


_reloads = 0
_at_reload = []


def at_reload(function):
    """Has it called after every reload that changed something: for code that keeps answers or streams of plugins."""
    _at_reload.append(function)


def note_reload():
    """Every thread makes its streams anew: the old ones stay with the plugins that were loaded before."""
    global _reloads
    with _lock:
        _reloads += 1
    for function in _at_reload:
        function()


class _Streams(threading.local):
    """The calling thread's streams of the default runtime."""

    def __init__(self):
        self.own, self.wrapped, self.reloads = {}, {}, _reloads


_streams = _Streams()


def stream_of_thread(backend="cpu", ordinal=0, native=None):
    """This thread's stream of the device, or the one around the vendor's stream `native`."""
    if _streams.reloads != _reloads:
        _streams.own, _streams.wrapped, _streams.reloads = {}, {}, _reloads
    if native is None:
        stream = _streams.own.get((backend, ordinal))
        if stream is None:
            stream = _streams.own[backend, ordinal] = runtime().stream(backend, ordinal)
        return stream
    stream = _streams.wrapped.get((backend, ordinal, native))
    if stream is None:
        stream = _streams.wrapped[backend, ordinal, native] = runtime().wrap(native, backend, ordinal)
    return stream
