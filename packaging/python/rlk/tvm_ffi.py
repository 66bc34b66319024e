"""rlk's operators as functions of tvm-ffi, and the plugins that take kernels of it. Needs tvm_ffi (pip install
apache-tvm-ffi).

    import tvm_ffi, rlk.tvm_ffi
    rlk.tvm_ffi.register()
    tvm_ffi.get_global_func("rlk.rms_norm")(x, None, y)          # by place: inputs, outputs, parameters
    rlk.tvm_ffi.functions().rms_norm(x, y=y, eps=1e-5)           # outputs and parameters by name

Outputs are the caller's. None is an absent input, an output that is not wanted, a parameter at its default.
"""
import functools
import types

from rlk import _location, ops

try:
    import tvm_ffi
    from tvm_ffi.utils.kwargs_wrapper import make_kwargs_wrapper
except ImportError as _error:
    raise ImportError("rlk.tvm_ffi needs tvm_ffi: pip install apache-tvm-ffi") from _error


def library():
    """The path of librlk_tvmffi.so: a module of tvm-ffi's for programs in other languages."""
    return str(_location.PREFIX / "lib" / "librlk_tvmffi.so")


def plugins():
    """The folder of the plugins that take kernels with tvm-ffi's ABI, for RLK_ADD_PLUGIN_PATH."""
    installed = _location.PREFIX / "lib" / "rlk" / "plugins" / "tvmffi"
    return str(installed if installed.is_dir() else _location.PREFIX / "lib" / "tvmffi")


@functools.cache
def module():
    """librlk_tvmffi as a tvm_ffi.Module: an attribute for each operator."""
    return tvm_ffi.load_module(library())


def register():
    """Makes the operators global functions of tvm-ffi, "rlk.NAME", with "rlk.arguments", which lists an operator's."""
    module().register_globals()


@functools.cache
def functions():
    """The operators with named arguments: inputs also by place, outputs and parameters by name."""
    return types.SimpleNamespace(**{name: _named(name, op) for name, op in ops.operators.items()})


def _named(name, op):
    inputs = [a.python for a in op.inputs]
    required = len(inputs)  # the last ones that may be absent have a default; one before a required input has none
    while required > 0 and op.inputs[required - 1].optional:
        required -= 1
    outputs = {o.python or (o.name if o.name not in inputs else "out_" + o.name): o.optional
               for o in op.outputs if o.must_alias is None}
    defaults = {name: None for name, optional in outputs.items() if optional} | {p.python: None for p in op.params}
    return make_kwargs_wrapper(getattr(module(), name), inputs, (None,) * (len(inputs) - required),
                               [*outputs, *(p.python for p in op.params)], defaults)
