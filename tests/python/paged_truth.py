"""Attention in fp64 over all keys that sequences had so far, for the engines' attention backends."""
import torch
from trainers_truth import ratio


class History:
    """The keys and values of each sequence, in the order of its tokens, wherever an engine's cache puts them."""

    def __init__(self, sequences):
        self.keys, self.values = [[] for _ in range(sequences)], [[] for _ in range(sequences)]

    def append(self, k, v, new):
        for kept, x in ((self.keys, k), (self.values, v)):
            for sequence, rows in zip(kept, x.double().split(new), strict=True):
                sequence.append(rows)

    def attention(self, q, new, scale, causal=True, window_left=-1, window_right=-1, softcap=0.0):
        """(out, its condition) of the last queries [tokens, heads, D] of each sequence."""
        parts = []
        for rows, keys, values in zip(q.double().split(new), self.keys, self.values, strict=True):
            k, v = (torch.cat(x).repeat_interleave(q.shape[1] // x[0].shape[1], 1).transpose(0, 1) for x in (keys, values))
            rows = rows.transpose(0, 1)
            x = scale * rows @ k.mT
            s = softcap * torch.tanh(x / softcap) if softcap else x
            at = torch.arange(k.shape[1] - rows.shape[1], k.shape[1])[:, None] - torch.arange(k.shape[1])
            seen = torch.ones_like(at, dtype=torch.bool)
            if causal:
                seen &= at >= 0
            if window_left >= 0:
                seen &= at <= window_left
            if window_right >= 0:
                seen &= at >= -window_right
            w = s.masked_fill(~seen, -torch.inf).softmax(-1)
            size = 1 + (scale * rows.abs() @ k.abs().mT).amax(-1, keepdim=True)
            parts.append([(w @ v).transpose(0, 1), (w @ v.abs() * size).transpose(0, 1)])
        return [torch.cat(x) for x in zip(*parts)]


def within(seen, truth, kind):
    """The worst error as a fraction of the bound; tolerance: weights may be rounded to the tensors' dtype."""
    weights = 0.5 * torch.finfo(kind).eps / (8 * 2.0**-24) if kind in (torch.bfloat16, torch.float16) else 0.0
    out, condition = truth
    return ratio(seen, out, condition * (2 + weights), kind)
