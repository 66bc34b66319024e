"""Made-up calls by which a function of an unknown source is tried (_compare.py): small, the same each time, with every option
that rlk serves. Arguments go by the names that the trainer's own calls use, so that a renamed one is noticed."""
import itertools

import torch

from rlk.integrations._compare import Call, Untried

_V = 37


def made(*shape, seed, scale=1.0):
    return scale * torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def _ids(*shape):
    return torch.arange(torch.Size(shape).numel()).view(shape) * 7 % _V


# ---- logits ------------------------------------------------------------------------------------------------------

def logits(*more, **named):
    """f(logits, *more), of two and of three dimensions."""
    return [Call((made(*shape, _V, seed=1, scale=3.0).requires_grad_(), *more), named) for shape in ((6,), (2, 5))]


def rows(*more, **named):
    """f(logits [N, V], *more) without a gradient, with barred tokens."""
    barred = made(6, _V, seed=5, scale=3.0)
    barred[1, 9:] = -torch.inf
    return [Call((x, *more), named) for x in (made(6, _V, seed=1, scale=3.0), barred)]


def logits_and_ids(**named):
    """f(logits, ids, ...)"""
    return [Call((made(*shape, _V, seed=2, scale=3.0).requires_grad_(), _ids(*shape)), named) for shape in ((6,), (2, 5))]


def logits_and_columns():
    """f(logits [N, V], ids [N, K]) of a kernel that only a CUDA device runs."""
    device = _cuda()
    return [Call((made(6, _V, seed=2, scale=3.0).to(device), (_ids(6, k) + torch.arange(6)[:, None]).remainder(_V).to(device)))
            for k in (1, 4)]


def _cuda():
    if not torch.cuda.is_available():
        raise Untried("a CUDA device")
    return "cuda"


def hidden(*more, device="cpu"):
    """f(hidden [N, D], weight [V, D], *more) of which a callable is called with (N, V)."""
    n, d = 6, 16
    made_up = [x(n, _V) if callable(x) else x for x in more]
    return [Call((made(n, d, seed=3).to(device).requires_grad_(), made(_V, d, seed=4).to(device).requires_grad_(), *made_up))]


def hidden_on_cuda(*more):
    device = _cuda()
    return hidden(*(lambda n, v, x=x: x(n, v).to(device) if callable(x) else x for x in more), device=device)


def ids_of(n, v):
    return torch.arange(n) * 5 % v


def no_bias(n, v):
    return None


# ---- tokens of sequences -----------------------------------------------------------------------------------------

def lengths_mask(*lengths, width):
    return (torch.arange(width) < torch.tensor(lengths)[:, None]).long()


class Batch:
    """Sequences of a policy loss: near the old policy, or one token far from it on either side."""

    def __init__(self, far=0.0, empty=True):
        self.logp = made(5, 9, seed=1).abs().neg()
        self.old = self.logp + made(5, 9, seed=7, scale=0.4)
        self.old[0, 1] += far
        self.old[3, 0] -= far
        self.advantages = made(5, 9, seed=8)
        self.mask = lengths_mask(9, 4, 0 if empty else 3, 1, 7, width=9)
        self.weights = made(5, 9, seed=9).abs()



def gae(with_values=True):
    """f(rewards, values, gamma, lambda) or f(rewards, discount), of rows shorter and longer than a chunk."""
    calls = []
    for width, (gamma, lam) in itertools.product((7, 150), ((1.0, 1.0), (0.99, 0.95), (0.9, 0.0))):
        rewards, values = made(3, width, seed=1), made(3, width, seed=2)
        calls.append(Call((rewards, values, gamma, lam) if with_values else (rewards, gamma * lam)))
    return calls


def log_probs_by_kind(kinds):
    """f(log_probs, log_probs_base, kind): some far enough to be clamped."""
    base = made(37, seed=2)
    own = made(37, seed=3)
    base[0], base[1] = own[0] + 4, own[1] - 4
    return [Call((own.requires_grad_(), base, kind)) for kind in kinds]
