"""What torch.autocast does to an operator's inputs.

rlk's operators sum in fp32 or better whatever their inputs are, so nothing has to be widened. Matrix products, which the
declarations mark (autocast = "lower"), get floating inputs in autocast's dtype, as torch's own do. In every other operator
inputs that must have one dtype and differ get the widest of theirs. Never touched: fp64, inputs of a dtype of their own (a
norm's weight in fp32), and operators that write into their inputs."""
import torch

KEYS = {"cpu": "AutocastCPU", "cuda": "AutocastCUDA", "xpu": "AutocastXPU", "privateuseone": "AutocastPrivateUse1"}
_REDUCED = (torch.bfloat16, torch.float16, torch.float32)


def register(library, function, overload):
    """Of one that autocast casts for: casts(inputs), which a plain call uses in place of the dispatcher's entry."""
    op = function.operator
    places = [i for i, a in enumerate(op.inputs) if a.dtype == "T"]
    if not function.pure or (len(places) < 2 and not op.is_product):
        return None
    for device_type, key in KEYS.items():
        library.impl(op.name, _kernel(overload, device_type, key, places, op.is_product), key)

    def casts(inputs):
        device_type = next(x for x in inputs if x is not None).device.type
        if _key_of(device_type) is None or not torch.is_autocast_enabled(device_type):
            return inputs
        return cast(inputs, places, torch.get_autocast_dtype(device_type) if op.is_product else None)
    return casts


def _key_of(device_type):
    return KEYS.get("privateuseone" if device_type == torch._C._get_privateuse1_backend_name() else device_type)


def _kernel(overload, device_type, key, places, is_product):
    off = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, key))

    def kernel(*arguments):
        name = torch._C._get_privateuse1_backend_name() if device_type == "privateuseone" else device_type
        with torch._C._ExcludeDispatchKeyGuard(off):
            return overload(*cast(arguments, places, torch.get_autocast_dtype(name) if is_product else None))

    return kernel


def cast(arguments, places, lower):
    """The arguments with those of the places in one dtype: lower, or the widest of theirs."""
    dtypes = {arguments[i].dtype for i in places if i < len(arguments) and arguments[i] is not None}
    if not dtypes.issubset(_REDUCED) or (lower is None and len(dtypes) < 2):
        return arguments
    target = lower or torch.float32  # where two of the three differ, fp32 is the first that holds both
    return tuple(x.to(target) if i in places and x is not None else x for i, x in enumerate(arguments))
