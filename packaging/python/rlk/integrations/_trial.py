"""Is a trainer's function that rlk has never read still the one that rlk computes? Both are called with made-up arguments,
and their results and gradients compared."""
import torch

from rlk.integrations._replace import Original

# Largest difference, as a part of the largest value, of results that have the same meaning: fp32 of different orders.
_TOLERANCE = 2e-4


def difference(original, serve, calls):
    """None where every call of `calls` gives the same by both, else what differs. calls: [(arguments, named)], whose
    floating-point tensors that require a gradient get one."""
    compared = 0
    for number, (arguments, named) in enumerate(calls):
        expected, error = _run(original, arguments, named)
        if error is not None:
            return f"call {number}: the original raises {error}"
        try:
            found, error = _run(lambda *a, **n: serve(original, *a, **n), arguments, named)
        except Original:
            continue  # rlk leaves such calls to the original
        if error is not None:
            return f"call {number}: rlk raises {error}"
        if len(expected) != len(found):
            return f"call {number}: {len(expected)} results, rlk has {len(found)}"
        for name, theirs, ours in zip(_names(expected), expected, found):
            if theirs.shape != ours.shape or theirs.dtype != ours.dtype:
                return (f"call {number}: {name} is {theirs.dtype} {tuple(theirs.shape)}, rlk's {ours.dtype} "
                        f"{tuple(ours.shape)}")
            worst = (theirs.double() - ours.double()).abs().max().item() if theirs.numel() else 0.0
            scale = theirs.double().abs().max().item() if theirs.numel() else 0.0
            if not worst <= _TOLERANCE * max(scale, 1e-3):
                return f"call {number}: {name} differs by {worst:.3g} where the largest value is {scale:.3g}"
        compared += 1
    return None if compared else "rlk serves none of the calls that it is tried with"


def _names(results):
    return [f"result or gradient {i}" for i in range(len(results))]


def _run(function, arguments, named):
    """([results and gradients], None), or (None, the error)."""
    leaves = []

    def fresh(x):
        if not isinstance(x, torch.Tensor):
            return x
        x = x.detach().clone().requires_grad_(x.requires_grad)
        if x.requires_grad:
            leaves.append(x)
        return x

    arguments, named = [fresh(x) for x in arguments], {name: fresh(x) for name, x in named.items()}
    try:
        results = [x for x in _tensors(function(*arguments, **named)) if x is not None]
        wanted = [x for x in results if x.requires_grad]
        gradients = []
        if wanted and leaves:
            total = sum((x.double() * torch.linspace(0.5, 1.5, x.numel(), dtype=torch.float64).view(x.shape)).sum() for x in wanted)
            gradients = torch.autograd.grad(total, leaves, allow_unused=True)
        return [x.detach() for x in (*results, *gradients) if x is not None], None
    except Original:
        raise
    except Exception as error:  # whatever a function that nobody here has read may raise
        return None, f"{type(error).__name__}: {error}"


def _tensors(result):
    if isinstance(result, torch.Tensor) or result is None:
        return [result]
    if isinstance(result, dict):
        return [x for value in result.values() for x in _tensors(value)]
    if isinstance(result, (tuple, list)):
        return [x for value in result for x in _tensors(value)]
    return [torch.tensor(float(result), dtype=torch.float64)] if isinstance(result, (int, float)) else []


# ---- arguments ---------------------------------------------------------------------------------------------------

def _made(*shape, seed, scale=1.0):
    return scale * torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def logits(*more, **named):
    """Rows of logits alone, of two and of three dimensions: f(logits, *more)."""
    return [((_made(*shape, 37, seed=1, scale=3.0).requires_grad_(), *more), named) for shape in ((6,), (2, 5))]


def logits_and_ids(**named):
    """f(logits, ids, ...)"""
    calls = []
    for shape in ((6,), (2, 5)):
        ids = torch.arange(5 * 6)[:torch.Size(shape).numel()].view(shape) % 37
        calls.append(((_made(*shape, 37, seed=2, scale=3.0).requires_grad_(), ids), named))
    return calls


def hidden(*more, **named):
    """f(hidden [N, D], weight [V, D], *more) of which a callable is called with (N, V)."""
    n, d, v = 6, 16, 37
    made = [x(n, v) if callable(x) else x for x in more]
    return [((_made(n, d, seed=3).requires_grad_(), _made(v, d, seed=4).requires_grad_(), *made), named)]


def ids_of(n, v):
    return torch.arange(n) * 5 % v


def no_bias(n, v):
    return None
