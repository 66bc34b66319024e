"""A case of bench/cpu_torch.py: one operator on inputs of its own, as rlk and as PyTorch's users call it."""
import dataclasses
from typing import Callable, Optional

import torch

BF16, F32 = torch.bfloat16, torch.float32
SHORT = {BF16: "bf16", F32: "f32"}
TOLERANCE = {BF16: 2e-2, F32: 1e-4}  # of a result's norm; of bf16 some roundings to it


@dataclasses.dataclass
class Case:
    """ours(rlk.torch, **inputs) and theirs(**inputs) give the same tensors. flops: the formula's, a function counts as
    one; products: they are those of a matrix product in the tensors' dtype, else of fp32. A call of what with_backward()
    gives is backward too: from ones for every number of the outputs to the inputs that `gradients` names. agree(ours,
    theirs) says of results that may differ whether both are right."""
    op: str
    shape: dict
    dtype: torch.dtype
    inputs: dict
    ours: Callable
    theirs: Callable
    flops: float = 0
    products: bool = False
    gradients: tuple = ()
    flops_factor: float = 2  # of forward and backward, over those of forward
    cancelling: float = 0  # the size of what adds up to a loss near 0
    agree: Optional[Callable] = None
    backward: bool = False

    def with_backward(self):
        return dataclasses.replace(self, backward=True, flops=self.flops_factor * self.flops)

    def sets(self, bytes_in_all):
        """Inputs again and again in memory of their own, until they are so many bytes together."""
        count = max(1, -(-bytes_in_all // self.bytes_read()))
        return [self._leaves({name: tensor.clone() for name, tensor in self.inputs.items()}) for _ in range(count)]

    def bytes_read(self):
        return sum(tensor.nbytes for tensor in self.inputs.values())

    def functions(self, ops):
        """rlk's and PyTorch's call with a set of inputs; each returns a list of tensors."""
        return [lambda inputs: self._call(self.ours, inputs, ops), lambda inputs: self._call(self.theirs, inputs)]

    def check(self, ops):
        """The bytes of the results, which must be the same: no two formulas are compared."""
        ours, theirs = [function(self._leaves(self.inputs)) for function in self.functions(ops)]
        if len(ours) != len(theirs):
            raise ValueError(f"{len(ours)} results of rlk, {len(theirs)} of torch")
        if self.agree is not None:
            if not self.agree(*ours, *theirs):
                raise ValueError("the results disagree")
            return sum(a.nbytes for a in ours)
        for i, (a, b) in enumerate(zip(ours, theirs)):
            b = b.reshape(a.shape).double()
            difference, size = float((a.double() - b).norm()), float(b.norm()) + self.cancelling
            if not difference <= TOLERANCE[self.dtype] * size:  # a NaN is no agreement
                raise ValueError(f"result {i} differs by {difference} (norm) from torch's, of {float(b.norm())}")
        return sum(a.nbytes for a in ours)

    def _leaves(self, inputs):
        return {name: t.detach().requires_grad_(self.backward and name in self.gradients) for name, t in inputs.items()}

    def _call(self, function, inputs, *first):
        out = function(*first, **inputs)
        out = list(out) if isinstance(out, (tuple, list)) else [out]
        if not self.backward:
            return out
        leaves = [inputs[name] for name in self.gradients]
        return [*(o.detach() for o in out), *torch.autograd.grad(out, leaves, [torch.ones_like(o) for o in out])]


def random(*shape, dtype=F32, scale=1.0):
    return (torch.randn(*shape) * scale).to(dtype)


def ids(n, v):
    return torch.randint(0, v, (n,))


def mask(*shape):
    return torch.rand(*shape) < 0.8


def token_logp(logits, ids):
    return torch.log_softmax(logits.float(), -1).gather(-1, ids[..., None])[..., 0]


def name_of(op, sizes, dtype, backward=False):
    return f"{op} {' x '.join(map(str, sizes))} {SHORT[dtype]}" + (" fwd+bwd" if backward else "")
