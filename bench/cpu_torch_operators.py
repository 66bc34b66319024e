"""The hot operators of bench/cpu_torch.py that are no losses: each with what a user of PyTorch writes."""
import torch
import torch.nn.functional as F

from cpu_torch_case import BF16, F32, Case, ids, name_of, random, token_logp


def logp(dtype, n, v):
    return Case("logp", {"N": n, "V": v}, dtype, {"x": random(n, v, dtype=dtype, scale=4.0), "y": ids(n, v)},
                lambda ops, x, y: ops.logp(x, y), lambda x, y: token_logp(x, y), flops=3 * n * v)


def linear_logp(dtype, n, v, d):
    inputs = {"h": random(n, d, dtype=dtype), "w": random(v, d, dtype=dtype, scale=0.02), "y": ids(n, v)}
    return Case("linear_logp", {"N": n, "V": v, "D": d}, dtype, inputs, lambda ops, h, w, y: ops.linear_logp(h, w, y),
                lambda h, w, y: token_logp(F.linear(h, w), y), flops=2 * n * v * d, products=True)


def linear(dtype, n, k, m):
    inputs = {"x": random(n, k, dtype=dtype), "w": random(m, k, dtype=dtype, scale=0.02)}
    return Case("linear", {"N": n, "K": k, "M": m}, dtype, inputs, lambda ops, x, w: ops.linear(x, w),
                lambda x, w: F.linear(x, w), flops=2 * n * k * m, products=True)


def linear_backward(dtype, n, k, m):
    """Both gradients: two products of the forward's size."""
    inputs = {"x": random(n, k, dtype=dtype), "w": random(m, k, dtype=dtype, scale=0.02),
              "g": random(n, m, dtype=dtype)}
    return Case("linear_backward", {"N": n, "K": k, "M": m}, dtype, inputs,
                lambda ops, x, w, g: ops.linear_backward(g, x, w, grad_weight=True),
                lambda x, w, g: (g @ w, (g.t() @ x)), flops=4 * n * k * m, products=True)


def attention(dtype, queries, keys):
    """16 heads of 128, causal; of one query a step of decoding."""
    keys = queries if queries > 1 else keys  # where --small divides
    inputs = {"q": random(1, queries, 16, 128, dtype=dtype), "k": random(1, keys, 16, 128, dtype=dtype),
              "v": random(1, keys, 16, 128, dtype=dtype)}

    def theirs(q, k, v):
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))
        return F.scaled_dot_product_attention(q, k, v, is_causal=queries > 1).transpose(1, 2)
    pairs = queries * keys if queries == 1 else queries * (queries + 1) // 2
    return Case("attention", {"queries": queries, "keys": keys}, dtype, inputs,
                lambda ops, q, k, v: ops.attention(q, k, v, causal="on"), theirs, flops=4 * 16 * 128 * pairs,
                products=True, gradients=("q", "k", "v"), flops_factor=3.5)


def top_k(dtype, n, v, k):
    """The numbers: of equal ones the two may name different places."""
    return Case("top_k", {"N": n, "V": v, "K": k}, dtype, {"x": random(n, v, dtype=dtype, scale=3.0)},
                lambda ops, x: ops.top_k(x, k=k)[0], lambda x: torch.topk(x, k)[0], flops=n * v)


def sample(dtype, n, v):
    """A token a row, of those of the best 50 that hold 0.9 of their weight. The two draw different tokens: each must be one
    of those, or as likely."""
    x, rows = random(n, v, dtype=dtype, scale=3.0), torch.arange(n)

    def kept(x):
        values, places = torch.topk(x.float(), 50)
        p = torch.softmax(values, -1)
        return torch.where(p.cumsum(-1) - p < 0.9, p, 0), places

    def theirs(x):
        p, places = kept(x)
        return places.gather(-1, torch.multinomial(p, 1))[:, 0]

    def agree(ours, theirs):
        values = torch.topk(x.float(), 200)[0]
        values = torch.where(values >= values[:, 49:50], values, -torch.inf)  # rlk keeps all that equal the fiftieth
        p = torch.softmax(values, -1)
        least = torch.where(p.cumsum(-1) - p < 0.9, values, torch.inf).amin(-1)
        return all(bool((x.float().gather(-1, ids[:, None].long())[:, 0] >= least).all()) for ids in (ours, theirs))
    return Case("sample", {"N": n, "V": v}, dtype, {"x": x},
                lambda ops, x: ops.sample(x, rows, top_k=50, top_p=0.9, seed=1), theirs, flops=5 * n * v, agree=agree)


UNARY = {"silu": (F.silu, 4), "gelu": (F.gelu, 5), "relu": (F.relu, 1), "sigmoid": (torch.sigmoid, 3),
         "softmax": (lambda x: torch.softmax(x, -1), 5), "log_softmax": (lambda x: torch.log_softmax(x, -1), 5)}


def unary(op):
    def make(dtype, n, d):
        function, operations = UNARY[op]
        return Case(op, {"N": n, "D": d}, dtype, {"x": random(n, d, dtype=dtype)},
                    lambda ops, x: getattr(ops, op)(x), lambda x: function(x), flops=operations * n * d)
    make.__name__ = op
    return make


def rms_norm(dtype, n, d):
    inputs = {"x": random(n, d, dtype=dtype), "w": random(d, dtype=dtype)}
    return Case("rms_norm", {"N": n, "D": d}, dtype, inputs, lambda ops, x, w: ops.rms_norm(x, w),
                lambda x, w: F.rms_norm(x, (d,), w, 1e-6), flops=4 * n * d)


def add(dtype, n, d):
    inputs = {"a": random(n, d, dtype=dtype), "b": random(n, d, dtype=dtype)}
    return Case("add", {"N": n, "D": d}, dtype, inputs, lambda ops, a, b: ops.add(a, b),
                lambda a, b: torch.add(a, b), flops=n * d)


# Of each: the sizes, the first of which --small divides unless it is 1.
TABLE = [(logp, (16, 32000)), (logp, (512, 151936)), (linear_logp, (256, 32000, 2048)), (linear, (1024, 2048, 2048)),
         (linear_backward, (1024, 2048, 2048)), (linear, (1, 4096, 4096)), (linear_logp, (1, 32000, 2048)), (attention, (1024, 1024)),
         (attention, (1, 4096)), *((unary(op), (8192, 4096)) for op in UNARY), (rms_norm, (8192, 4096)),
         (add, (8192, 4096)), (top_k, (64, 151936, 50)), (sample, (64, 32000))]


def cases(divisor):
    """Names, and functions that make the cases."""
    for make, (n, *others) in TABLE:
        sizes = (max(1, n // divisor), *others)
        for dtype in (F32, BF16):
            def forward(make=make, sizes=sizes, dtype=dtype):
                return make(dtype, *sizes)
            yield name_of(make.__name__, sizes, dtype), forward
            if make is attention and sizes[0] > 1:
                yield name_of(make.__name__, sizes, dtype, True), lambda forward=forward: forward().with_backward()
