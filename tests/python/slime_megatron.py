"""slime's modules that need Megatron, imported without it: megatron.core.mpu here says how the processes of a test are laid out,
and httpx, which slime's utilities for servers import, is a name. Everything that the tests compare is slime's source."""
import functools
import importlib
import importlib.util
import sys
import threading
import types


class Layout(threading.local):
    """Of context parallelism; each thread may be a rank."""
    rank, size = 0, 1


layout = Layout()


def on_ranks(size, function, cp_utils):
    """[function() of each rank], each in a thread; slime's sums over the ranks are made when all have come."""
    barrier, parts, found, errors = threading.Barrier(size), [None] * size, [None] * size, []

    def all_reduce(tensor, group):
        parts[layout.rank] = tensor.detach()
        barrier.wait()
        others = sum(part for rank, part in enumerate(parts) if rank != layout.rank)
        barrier.wait()
        return tensor + others

    def run(rank):
        layout.rank, layout.size = rank, size
        try:
            found[rank] = function()
        except BaseException as error:
            errors.append(error)
            barrier.abort()

    cp_utils.dist = types.SimpleNamespace(nn=types.SimpleNamespace(all_reduce=all_reduce))
    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return found


def made_up(name, **what):
    module = types.ModuleType(name)
    vars(module).update(what)
    return module


@functools.cache
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
