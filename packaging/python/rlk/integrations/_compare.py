"""Is a trainer's function that rlk has never read still the one that rlk computes? Both are called with made-up arguments,
and their results and gradients compared."""
from typing import Callable, NamedTuple

import torch

from rlk.integrations._replace import Original

# Largest difference, as a part of the largest value, of results that have the same meaning: fp32 of different orders.
_TOLERANCE = 2e-4


class Untried(Exception):
    """The original cannot run on this machine; the text says what it needs."""


class Call(NamedTuple):
    """Floating-point tensors among the arguments that require a gradient get one."""
    arguments: tuple = ()
    named: dict = {}
    read: Callable = None  # (result) -> what of it a trainer reads, where that is not all; None: all


def difference(original, serve, calls):
    """None where every one of `calls` gives the same by both, else what differs."""
    compared = 0
    for number, call in enumerate(calls):
        expected, error = _run(original, call)
        if error is not None:
            return f"call {number}: the original raises {error}"
        try:
            found, error = _run(lambda *a, **n: serve(original, *a, **n), call)
        except Original:
            continue  # rlk leaves such calls to the original
        if error is not None:
            return f"call {number}: rlk raises {error}"
        if expected.keys() != found.keys():
            return f"call {number}: it gives {_listed(expected)}, rlk {_listed(found)}"
        for name, theirs in expected.items():
            ours = found[name]
            if theirs.shape != ours.shape or theirs.dtype != ours.dtype:
                return (f"call {number}: {name} is {theirs.dtype} {tuple(theirs.shape)}, rlk's {ours.dtype} "
                        f"{tuple(ours.shape)}")
            worst, scale = _apart(theirs.double(), ours.double())
            if not worst <= _TOLERANCE * max(scale, 1e-3):
                return f"call {number}: {name} differs by {worst:.3g} where the largest value is {scale:.3g}"
        compared += 1
    return None if compared else "rlk serves none of the calls that it is tried with"


def _apart(theirs, ours):
    """(the largest difference, the largest finite value). The same infinity, and NaN at the same place, is no difference."""
    gap = torch.where((theirs == ours) | (theirs.isnan() & ours.isnan()), 0.0, (theirs - ours).abs())
    size = torch.where(theirs.isfinite(), theirs.abs(), 0.0)
    return (gap.max().item(), size.max().item()) if theirs.numel() else (0.0, 0.0)


def _listed(results):
    return ", ".join(results) or "nothing"


def _run(function, call):
    """({name: result or gradient}, None), or (None, the error)."""
    leaves = {}

    def fresh(name, x):
        if not isinstance(x, torch.Tensor):
            return x
        x = x.detach().clone().requires_grad_(x.requires_grad)
        if x.requires_grad:
            leaves[f"the gradient of {name}"] = x
        return x

    arguments = [fresh(f"argument {i}", x) for i, x in enumerate(call.arguments)]
    named = {name: fresh(name, x) for name, x in call.named.items()}
    try:
        with torch.compiler.set_stance("force_eager"):  # a trial compiles nothing
            results = function(*arguments, **named)
        results = dict(_tensors("the result", results if call.read is None else call.read(results)))
        wanted = [x for x in results.values() if x.requires_grad]
        gradients = []
        if wanted and leaves:
            total = sum((x.double() * torch.linspace(0.5, 1.5, x.numel(), dtype=torch.float64, device=x.device).view(x.shape)).sum()
                        for x in wanted)
            gradients = torch.autograd.grad(total, list(leaves.values()), allow_unused=True)
        results.update((name, x) for name, x in zip(leaves, gradients) if x is not None)
        return {name: x.detach() for name, x in results.items()}, None
    except Original:
        raise
    except Exception as error:  # an unknown function may raise anything
        return None, f"{type(error).__name__}: {error}"


def _tensors(name, result):
    """(name, tensor) of each number in a result: a metric's name counts as much as its number."""
    if isinstance(result, torch.Tensor):
        yield name, result
    elif isinstance(result, dict):
        for key, value in result.items():
            yield from _tensors(f"{name}[{key!r}]", value)
    elif isinstance(result, (tuple, list)):
        for place, value in enumerate(result):
            yield from _tensors(f"{name}[{place}]", value)
    elif isinstance(result, (int, float)):
        yield name, torch.tensor(float(result), dtype=torch.float64)
