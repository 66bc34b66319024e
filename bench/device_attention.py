"""Attention in bench/device_torch.py: 32 heads over 8 of keys, beside torch's scaled_dot_product_attention."""
import torch
import torch.nn.functional as F

import rlk.torch as ops
from device_case import BF16, Backward, Case, ids, normal, on_device, pin

HEADS, KEY_HEADS, DIM = 32, 8, 128


def demanded(numerics):
    return ("", pin()) if numerics is None else (f" {numerics}", {**pin(), "numerics": numerics})


def flops_of(b, queries, keys, dim):
    """Two products of the pairs that a causal mask leaves."""
    return 4 * b * HEADS * dim * (queries * keys - queries * (queries - 1) // 2)


def sdpa(q, k, v, **_):
    """Causal, unless it is one query: it sees every key."""
    causal = q.shape[1] > 1
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=True).transpose(1, 2)


def attention(b, queries, keys, dtype=BF16, dim=DIM, numerics=None):
    """Causal; of one query a step of decoding. torch promises nothing about numerics."""
    suffix, options = demanded(numerics)

    def make():
        return {"q": normal(b, queries, HEADS, dim, dtype=dtype), "k": normal(b, keys, KEY_HEADS, dim, dtype=dtype),
                "v": normal(b, keys, KEY_HEADS, dim, dtype=dtype)}
    sizes = (b, queries, keys) if dim == DIM else (b, queries, keys, dim)
    return Case("attention", sizes, dtype, make, lambda q, k, v: ops.attention(q, k, v, causal="on", **options), sdpa,
                suffix=suffix, compiles=False,
                flops=flops_of(b, queries, keys, dim), counted_as="4 d for each pair of a query and a key it sees")


def gradients(b, t, dim, dtype=BF16):
    """Causal. Backward alone: both sides keep what the forward told."""
    def make():
        q, k, v, g = (normal(b, t, heads, dim, dtype=dtype) for heads in (HEADS, KEY_HEADS, KEY_HEADS, HEADS))
        out, lse = ops.attention(q, k, v, causal="on", lse=True, **pin())
        return {"q": q, "k": k, "v": v, "out": out, "lse": lse, "g": g}
    return Case("attention_backward", (b, t, t, dim), dtype, make,
                lambda q, k, v, out, lse, g: ops.attention_backward(q, k, v, out, lse, g, causal="on", **pin()),
                Backward(sdpa, "q", "k", "v"), compiles=False, flops=2.5 * flops_of(b, t, t, dim),
                counted_as="10 d for each pair of a query and a key it sees")


def paged(b, keys, dtype=BF16, numerics=None):
    """A step of decoding over pages of 16 tokens in any order. torch: the pages gathered first, and nothing promised about
    batches."""
    pages = keys // 16
    suffix, options = demanded(numerics)

    def make():
        return {"q": normal(b, HEADS, DIM, dtype=dtype), "k": normal(b * pages, 16, KEY_HEADS, DIM, dtype=dtype),
                "v": normal(b * pages, 16, KEY_HEADS, DIM, dtype=dtype),
                "table": on_device(torch.randperm(b * pages, dtype=torch.int32).view(b, pages)),
                "lens": ids(1, b).int() + keys}

    def theirs(q, k, v, table, lens):
        k, v = (x[table.long()].view(b, keys, KEY_HEADS, DIM).transpose(1, 2) for x in (k, v))
        return F.scaled_dot_product_attention(q[:, :, None], k, v, enable_gqa=True)[:, :, 0]
    return Case("paged_attention", (b, keys), dtype, make,
                lambda q, k, v, table, lens: ops.paged_attention(q, k, v, table, lens, **options), theirs, suffix=suffix,
                compiles=False)


def prefix_shared(group, queries, prefix, own, dtype=BF16):
    """A group's prompt once beside the tokens of each of its samples. torch: joined."""
    def make():
        return {"q": normal(1, group, queries, HEADS, DIM, dtype=dtype), "pk": normal(1, prefix, KEY_HEADS, DIM, dtype=dtype),
                "pv": normal(1, prefix, KEY_HEADS, DIM, dtype=dtype),
                "k": normal(1, group, own, KEY_HEADS, DIM, dtype=dtype),
                "v": normal(1, group, own, KEY_HEADS, DIM, dtype=dtype)}

    def theirs(q, pk, pv, k, v):
        k, v = (torch.cat([shared.expand(group, -1, -1, -1), part[0]], 1).transpose(1, 2)
                for shared, part in ((pk, k), (pv, v)))
        return F.scaled_dot_product_attention(q[0].transpose(1, 2), k, v, enable_gqa=True).transpose(1, 2)[None]
    return Case("prefix_shared_attention", (group, queries, prefix, own), dtype, make,
                lambda q, pk, pv, k, v: ops.prefix_shared_attention(q, pk, pv, k, v, **pin()), theirs, compiles=False)


def cases(divisor):
    def length(tokens):
        return max(64, tokens // divisor)

    for b, t, dim in ((2, 4096, 128), (1, 16384, 128), (8, 2048, 64)):
        yield attention(b, length(t), length(t), dim=dim)
    yield attention(1, length(16384), length(16384), numerics="accurate")
    for b, keys in ((8, 32768), (64, 4096), (1, 131072)):
        yield attention(b, 1, length(keys))
        if b == 8:
            yield attention(b, 1, length(keys), numerics="batch_invariant")
        for numerics in (None, "batch_invariant"):
            yield paged(b, length(keys) // 16 * 16, numerics=numerics)
    for b, t, dim in ((2, 4096, 128), (1, 16384, 128), (8, 2048, 64)):
        yield gradients(b, length(t), dim)
    yield prefix_shared(16, max(16, 512 // divisor), length(8192), max(16, 512 // divisor))
    yield prefix_shared(64, 1, length(8192), 16)
