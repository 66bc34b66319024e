"""A case of bench/device_torch.py: one operator on inputs of its own, as rlk and as PyTorch's users call it, and what it must
read, write and compute."""
import dataclasses
from typing import Callable, Union

import torch

BF16, F32 = torch.bfloat16, torch.float32
SHORT = {BF16: "bf16", F32: "f32"}
DEVICE = PIN = "cuda"


def use(device):
    """Where inputs are made, and the backend that rlk must call; before the first case."""
    global DEVICE, PIN
    DEVICE = PIN = device


def pin():
    return {"pin": PIN}


@dataclasses.dataclass
class Case:
    """make() gives a set of inputs; ours(**inputs) and theirs(**inputs) the same tensors. extra_reads: bytes that a
    second pass must read, where no algorithm does with one. flops: the formula's, which counted_as says in words, where
    products are most of the work. compiles: what torch.compile is given: theirs, another form of it, or nothing. product:
    the bare products, which no implementation does without; it takes the inputs, too. compared: so many of the outputs
    are held against torch's; None is all."""
    op: str
    sizes: tuple
    dtype: torch.dtype
    make: Callable
    ours: Callable
    theirs: Callable
    extra_reads: int = 0
    suffix: str = ""
    flops: float = 0
    counted_as: str = ""
    compiles: Union[bool, Callable] = True
    product: Union[Callable, None] = None
    compared: Union[int, None] = None
    note: str = ""

    @property
    def name(self):
        return f"{self.op} {'x'.join(map(str, self.sizes))} {SHORT[self.dtype]}{self.suffix}"

    def bytes(self, inputs, outputs):
        return sum(t.nbytes for t in [*inputs.values(), *outputs]) + self.extra_reads

    def compiled(self):
        """A function, or None."""
        if not self.compiles:
            return None
        form = self.theirs if self.compiles is True else self.compiles
        return form.compiled() if hasattr(form, "compiled") else torch.compile(form, dynamic=False)


def one_or_all(out):
    return out if isinstance(out, (tuple, list)) else (out,)


class Gradient:
    """A forward and the gradients of the inputs `names`, from ones for every number of its outputs. Compiled, the forward
    is, and its backward with it, as in a trainer."""

    def __init__(self, forward, *names):
        self.forward, self.names = forward, names

    def __call__(self, **inputs):
        leaves = [inputs[name].detach().requires_grad_() for name in self.names]
        out = one_or_all(self.forward(**{**inputs, **dict(zip(self.names, leaves))}))
        gradients = torch.autograd.grad(out, leaves, [torch.ones_like(o) for o in out])
        return *(o.detach() for o in out), *gradients

    def compiled(self):
        return Gradient(torch.compile(self.forward, dynamic=False), *self.names)


class Backward:
    """The gradients of the inputs `names` from `g`, that of the output: backward alone, of a forward that the first call
    with a set of inputs makes and keeps."""

    def __init__(self, forward, *names):
        self.forward, self.names, self.kept = forward, names, {}

    def __call__(self, g, **inputs):
        key = g.data_ptr(), torch.cuda.current_stream() if g.is_cuda else None  # a backward goes to its forward's stream
        if key not in self.kept:
            leaves = [inputs[name].detach().requires_grad_() for name in self.names]
            result = self.forward(**{**inputs, **dict(zip(self.names, leaves))})
            self.kept[key] = leaves, result, g  # g: no other set takes its address
        leaves, result, _ = self.kept[key]
        return torch.autograd.grad(result, leaves, g, retain_graph=True)

    def compiled(self):
        return Backward(torch.compile(self.forward, dynamic=False), *self.names)


def normal(*shape, dtype=F32, scale=1.0):
    return (torch.randn(*shape, device=DEVICE) * scale).to(dtype)


def uniform(*shape):
    return torch.rand(*shape, device=DEVICE)


def ids(high, *shape):
    return torch.randint(0, high, shape, device=DEVICE)


def on_device(tensor):
    return tensor.to(DEVICE)


def mask(*shape):
    return uniform(*shape) < 0.8


def token_logp(x, y):
    return torch.log_softmax(x.float(), -1).gather(-1, y[..., None])[..., 0]
