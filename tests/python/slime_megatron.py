"""slime's modules that need Megatron, imported without it: megatron.core.mpu here says how the processes of a test are laid out,
and httpx, which slime's utilities for servers import, is a name. Everything that the tests compare is slime's source."""
import importlib
import sys
import types

layout = types.SimpleNamespace(rank=0, size=1)  # of context parallelism


def made_up(name, **what):
    module = types.ModuleType(name)
    vars(module).update(what)
    return module


def modules():
    """(slime's loss, its cp_utils), with the made-up modules in place of those that are not installed."""
    mpu = made_up("megatron.core.mpu", get_context_parallel_world_size=lambda: layout.size,
                  get_context_parallel_rank=lambda: layout.rank, get_context_parallel_group=lambda: None,
                  get_tensor_model_parallel_group=lambda: None, get_tensor_model_parallel_rank=lambda: 0,
                  is_pipeline_last_stage=lambda: True)
    core = made_up("megatron.core", mpu=mpu)
    sys.modules.update({"megatron": made_up("megatron", core=core), "megatron.core": core, "megatron.core.mpu": mpu})
    if importlib.util.find_spec("httpx") is None:
        sys.modules["httpx"] = made_up("httpx", AsyncClient=object)
    return tuple(importlib.import_module(f"slime.backends.megatron_utils.{name}") for name in ("loss", "cp_utils"))
