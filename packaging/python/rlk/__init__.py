"""rlk: verified operators for reinforcement learning of language models, from any vendor that has a plugin.

    import rlk
    logp = rlk.ops.logp(logits, ids, temperature=0.7)                    # numpy, torch, cupy, jax: no copies
    logp, lse = rlk.ops.logp(logits, ids, lse=True)

rlk.list() says which plugins there are and what is wrong with the others, rlk.explain("logp", logits, ids) where that call
would go and why, rlk.counters() where calls went, rlk.doctor() what to mend.
"""
import importlib
import typing

from rlk._location import cmake_dir, include
from rlk._questions import Report, counters, doctor, explain, list, ops_json, reload, require
from rlk._runtime import Runtime, Stream, runtime, version
from rlk.errors import (AbiMismatch, Absent, ArgumentTypeError, BackendError, CaptureForbids, DataError, DeviceLost, Error,
                        Internal, InvalidArgument, NotFound, OutOfMemory, PluginException, Timeout, Unsupported, WrongResult)

__all__ = ["AbiMismatch", "Absent", "ArgumentTypeError", "BackendError", "CaptureForbids", "DataError", "DeviceLost",
           "Error", "Internal", "InvalidArgument", "NotFound", "OutOfMemory", "PluginException", "Report", "Runtime",
           "Stream", "Timeout", "Unsupported", "WrongResult", "cmake_dir", "counters", "doctor", "explain", "include",
           "ops", "ops_json", "reload", "require", "runtime", "version"]  # and list, which is not Python's own


def __dir__():
    return sorted({*globals(), "__version__", "integrations", "ops", "torch"})


if typing.TYPE_CHECKING:
    from rlk import integrations, ops, torch  # noqa: F401


def __getattr__(name):
    if name in ("integrations", "ops", "torch"):  # torch is imported only when the caller asks for it
        return importlib.import_module("rlk." + name)
    if name == "__version__":
        return version()
    raise AttributeError(f"module 'rlk' has no attribute {name!r}")
