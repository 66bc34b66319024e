"""What the trainers' functions mean, in fp64, and how far a result may be from it: one unit in the last place of the result's
dtype, and 8 * 2^-24 (of fp64: 2^-53) times the condition, which is what the absolute values sum to. The inputs are taken as
they were rounded. worst() is what the table of agreement is made of."""
import atexit
import collections
import importlib.metadata
import json
import os
import pathlib

import torch

FACTOR = 8
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16, "f64": torch.float64}
_worst = collections.defaultdict(lambda: {"rlk": 0.0, "original": None, "cases": 0})


def record(trainer, function, operator, dtype, ours, theirs=None):
    """Ratios to the bound, of rlk and of the original where that runs here."""
    row = _worst[trainer, function, operator, dtype]
    row["rlk"], row["cases"] = max(row["rlk"], ours), row["cases"] + 1
    if theirs is not None:
        row["original"] = max(row["original"] or 0.0, theirs)


@atexit.register
def write():
    """Into the file that RLK_AGREEMENT names, in place of what it has of these trainers."""
    path = pathlib.Path(os.environ.get("RLK_AGREEMENT", ""))
    if not os.environ.get("RLK_AGREEMENT") or not _worst:
        return
    document = json.loads(path.read_text()) if path.is_file() else {"versions": {}, "rows": []}
    new = [dict(zip(("trainer", "function", "operator", "dtype"), key), **row) for key, row in _worst.items()]
    trainers = {row["trainer"] for row in new}
    for trainer in trainers:
        document["versions"][trainer] = f"{importlib.metadata.version(trainer)}, torch {importlib.metadata.version('torch')}"
    rows = [row for row in document["rows"] if row["trainer"] not in trainers] + new
    document["rows"] = sorted(rows, key=lambda row: (row["trainer"], row["function"], list(DTYPES).index(row["dtype"])))
    path.write_text(json.dumps(document, indent=1) + "\n")


def ulp(truth, dtype):
    """Of the binade that a number of the dtype is in."""
    info = torch.finfo(dtype)
    return torch.clamp(truth.abs(), min=info.smallest_normal).log2().floor().exp2() * info.eps


def ratio(seen, truth, condition, dtype, slack=0.0):
    """The worst error as a fraction of the bound, of a result that may be coarser than what it was computed in; slack is what
    the trainer's formula adds to a length so that nothing is divided by 0."""
    assert torch.equal(seen.isfinite(), truth.isfinite()), (seen, truth)
    unit = 2.0**-53 if dtype == torch.float64 and seen.dtype == torch.float64 else 2.0**-24
    allowed = ulp(truth, seen.dtype) + FACTOR * unit * condition + slack
    error = torch.where(truth.isfinite(), (seen.double() - truth).abs() / allowed, (seen != truth).double())
    return error.max().item() if error.numel() else 0.0


class Scores:
    """Rows of z = cap(scale x) / temperature, their outputs, and gradients of them."""

    def __init__(self, x, ids, *, temperature=1.0, softcap=None, scale=1.0, mask=None, condition=None):
        x = x.detach().double()
        capped = x * scale if softcap is None else softcap * torch.tanh(x * scale / softcap)
        self.slope = (scale / temperature) * (1 if softcap is None else 1 - (capped / softcap) ** 2)
        self.z, self.ids = capped / temperature, ids.long()
        self.keep = torch.ones_like(ids, dtype=torch.float64) if mask is None else (mask != 0).double()
        self.size = (x if condition is None else condition).abs() * scale / temperature  # of the terms behind a score
        self.lse = self.z.logsumexp(-1)
        self.log_p = self.z - self.lse[..., None]
        self.p = self.log_p.exp()
        finite = self.log_p.where(self.p > 0, 0)
        self.entropy = -(self.p * finite).sum(-1) * self.keep
        self.logp = self.log_p.gather(-1, self.ids[..., None])[..., 0] * self.keep
        self.sum_p2 = (self.p * self.p).sum(-1)
        self.largest = self.size.where(self.z.isfinite(), 0).amax(-1) + 1

    def conditions(self):
        """(of logp, of entropy)"""
        of_logp = self.z.gather(-1, self.ids[..., None])[..., 0].abs() + self.lse.abs() + 2 * self.largest
        return of_logp, (self.p * self.z.where(self.p > 0, 0).abs()).sum(-1) + self.lse.abs() + 2 * self.largest

    def grad(self, of_logp, of_entropy=None):
        """(gradient of x, its condition)"""
        one = torch.zeros_like(self.z).scatter_(-1, self.ids[..., None], 1.0)
        g = (of_logp.double() * self.keep)[..., None]
        dz, size = g * (one - self.p), g.abs() * (one + self.p)
        if of_entropy is not None:
            h = (of_entropy.double() * self.keep)[..., None]
            inner = self.log_p.where(self.p > 0, 0)
            dz = dz - h * self.p * (inner + self.entropy[..., None])
            size = size + h.abs() * self.p * (inner.abs() + self.entropy[..., None])
        slope = self.slope if isinstance(self.slope, torch.Tensor) else torch.full_like(dz, self.slope)
        return dz * slope, size * self.largest[..., None] * 2 * max(slope.abs().max().item(), 1e-30)


# ---- functions over logits ---------------------------------------------------------------------------------------

def made(*shape, dtype=torch.float32, scale=1.0, seed=0):
    return (torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * scale).to(dtype)


def layouts(vocabulary, kind):
    """Logits in every way that trainers lay them out: matrices, batches, batches less their last position."""
    whole = made(3, 6, vocabulary, dtype=kind, scale=2.0)
    barred = whole[0].clone()
    barred[1, 4] = -torch.inf
    yield barred
    yield whole[0]
    yield whole
    yield whole[:, :-1]
    yield whole.transpose(0, 1)
    yield whole[:, :0]


def with_gradient(function, logits, grads):
    logits = logits.detach().requires_grad_()
    outputs = function(logits)
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    wanted = [(x, g) for x, g in zip(outputs, grads) if x.requires_grad]
    return outputs, torch.autograd.grad([x for x, _ in wanted], logits, [g.to(x.dtype) for x, g in wanted])[0]


def compare_logits(trainer, name, dtype, ours, theirs, logits, ids, *, logp, entropy, temperature=1.0, mask=None,
                   entropy_gradient=True):
    """Of functions that give logp, entropy, or both: shapes, dtypes, values and the gradient of the logits."""
    kind, grads = DTYPES[dtype], [made(*ids.shape, seed=n).to(DTYPES[dtype]) for n in (4, 5)]
    scores = Scores(logits, ids, temperature=temperature, mask=mask)
    kinds = [what for what, wanted in (("logp", logp), ("entropy", entropy)) if wanted]
    truths = [x for x, wanted in zip(zip((scores.logp, scores.entropy), scores.conditions()), (logp, entropy)) if wanted]
    of = dict(zip(kinds, grads))
    dx, size = scores.grad(of.get("logp", torch.zeros_like(grads[0])), of.get("entropy") if entropy_gradient else None)
    found = [with_gradient(function, logits, grads) for function in (ours, theirs)]
    for a, b in zip(found[0][0], found[1][0], strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
    ratios = [ratio(x.detach(), *truth, kind) for x, truth in zip(found[0][0], truths, strict=True)]
    ratios.append(ratio(found[0][1], dx, size, kind))
    # Their entropy of a logit of -inf is NaN, 0 times -inf, forward or backward: then there is nothing to compare with.
    their = None
    if all(x.isfinite().all() for x in (*found[1][0], found[1][1])):
        their = max([ratio(x.detach(), *truth, kind) for x, truth in zip(found[1][0], truths)]
                    + [ratio(found[1][1], dx, size, kind)])
    record(trainer, name, "logp", dtype, max(ratios), their)
    assert max(ratios) <= 1, ratios
    assert their is None or kind != torch.float32 or their <= 1, their  # the truth is the trainer's


# ---- attention ---------------------------------------------------------------------------------------------------

def attention_truth(q, k, v, mask, causal, scaling, softcap, g):
    """Of attention [sequences, heads, tokens, size]: (out, gradients of q, k and v, the condition of each) in fp64; heads
    repeated."""
    q, k, v, g = (x.detach().double() for x in (q, k, v, g.transpose(1, 2)))
    groups = q.shape[1] // k.shape[1]
    k, v = (x.repeat_interleave(groups, 1) for x in (k, v))
    scale = q.shape[-1]**-0.5 if scaling is None else scaling
    x = scale * q @ k.mT
    s = x if softcap is None else softcap * torch.tanh(x / softcap)
    slope = scale * (1 if softcap is None else 1 - (s / softcap) ** 2)
    seen = torch.ones(x.shape[-2:], dtype=torch.bool, device=x.device)
    if causal:
        seen = seen.tril(x.shape[-1] - x.shape[-2])
    if mask is not None:
        seen = seen & mask[:, None, None, :]
    w = s.masked_fill(~seen, -torch.inf).softmax(-1).nan_to_num()
    size = 1 + (scale * q.abs() @ k.abs().mT).amax(-1, keepdim=True)
    out, dw = w @ v, g @ v.mT
    ds = w * (dw - (w * dw).sum(-1, keepdim=True)) * slope
    of_ds = w * (g.abs() @ v.abs().mT + (w * (g.abs() @ v.abs().mT)).sum(-1, keepdim=True)) * scale * size

    def merged(x):
        return x.unflatten(1, (-1, groups)).sum(2)
    return [(out.transpose(1, 2), (w @ v.abs() * size).transpose(1, 2)), (ds @ k, of_ds @ k.abs()),
            (merged(ds.mT @ q), merged(of_ds.mT @ q.abs())), (merged(w.mT @ g), merged((w * size).mT @ g.abs()))]
