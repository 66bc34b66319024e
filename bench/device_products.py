"""The products of bench/device_torch.py, and what is fused around them, beside the bare products of the same sizes."""
import torch
import torch.nn.functional as F

import rlk.torch as ops
from device_case import Case, Gradient, ids, normal, on_device, pin

CHUNK = 1024  # rows of logits that torch's form has in memory at once


def linear(n, k, m, dtype):
    return Case("linear", (n, k, m), dtype, lambda: {"x": normal(n, k, dtype=dtype), "w": normal(m, k, dtype=dtype)},
                lambda x, w: ops.linear(x, w, **pin()), lambda x, w: F.linear(x, w), flops=2 * n * k * m,
                counted_as="2 n k m", compiles=False)


def matmul(n, k, m, dtype):
    return Case("matmul", (n, k, m), dtype, lambda: {"a": normal(n, k, dtype=dtype), "b": normal(k, m, dtype=dtype)},
                lambda a, b: ops.matmul(a[None, None], b[None, None], **pin()), lambda a, b: a @ b, flops=2 * n * k * m,
                counted_as="2 n k m", compiles=False)


def grouped_gemm(groups, rows, k, m, dtype):
    """Groups of equally many rows. The host reads where they begin; torch's offsets are on the device."""
    def make():
        return {"x": normal(groups * rows, k, dtype=dtype), "w": normal(groups, m, k, dtype=dtype),
                "cu": on_device(torch.arange(groups + 1, dtype=torch.int32) * rows)}

    def theirs(x, w, cu):
        return torch._grouped_mm(x, w.transpose(1, 2), offs=cu[1:])
    return Case("grouped_gemm", (groups, rows, k, m), dtype, make, lambda x, w, cu: ops.grouped_gemm(x, w, cu, **pin()),
                theirs, flops=2 * groups * rows * k * m, counted_as="2 n k m", compiles=False)


def head(n, d, v, dtype):
    """Hidden states, the rows of the vocabulary, and tokens."""
    return {"h": normal(n, d, dtype=dtype), "w": normal(v, d, dtype=dtype, scale=d ** -0.5), "y": ids(v, n)}


def bare_products(n, d, v, dtype, gradient=False):
    """The scores, and the products of both gradients with a matrix like the scores; into memory that is there."""
    outputs = {}

    def run(h, w, **_):
        if not outputs:
            outputs.update(scores=normal(n, v, dtype=dtype), h=torch.empty_like(h), w=torch.empty_like(w))
        torch.mm(h, w.t(), out=outputs["scores"])
        if gradient:
            torch.mm(outputs["scores"], w, out=outputs["h"])
            torch.mm(outputs["scores"].t(), h, out=outputs["w"])
        return outputs["scores"]
    return run


def in_chunks(h, w, y, entropy):
    logps, entropies = [], []
    for part, of in zip(h.split(CHUNK), y.split(CHUNK)):
        logp = torch.log_softmax(F.linear(part, w).float(), -1)
        logps.append(logp.gather(-1, of[:, None])[:, 0])
        if entropy:
            entropies.append(-(logp.exp() * logp).sum(-1))
    return (torch.cat(logps), torch.cat(entropies)) if entropy else torch.cat(logps)


def linear_logp(n, d, v, dtype, entropy=False, gradient=False):
    """torch's form in chunks of rows. Of forward and backward the formula's three products count; rlk computes the
    scores twice, so four."""
    def ours(h, w, y):
        out = ops.linear_logp(h, w, y, entropy=entropy, **pin())
        return tuple(out) if entropy else out

    def theirs(h, w, y):
        return in_chunks(h, w, y, entropy)
    forms = [Gradient(form, "h", "w") if gradient else form for form in (ours, theirs)]
    return Case("linear_logp", (n, d, v), dtype, lambda: head(n, d, v, dtype), *forms,
                suffix=(" entropy" if entropy else "") + (" fwd+bwd" if gradient else ""),
                flops=(6 if gradient else 2) * n * d * v, counted_as="6 n d v (three products)" if gradient else "2 n d v",
                product=bare_products(n, d, v, dtype, gradient), compiles=not gradient and entropy,
                note="three bare products" if gradient else "the bare product")


def linear_cross_entropy(n, d, v, dtype):
    def ours(h, w, y):
        return ops.linear_cross_entropy(h, w, y, **pin())

    def theirs(h, w, y):
        return F.cross_entropy(F.linear(h, w).float(), y)
    return Case("linear_cross_entropy", (n, d, v), dtype, lambda: head(n, d, v, dtype), Gradient(ours, "h", "w"),
                Gradient(theirs, "h", "w"), suffix=" fwd+bwd", flops=6 * n * d * v, counted_as="6 n d v (three products)",
                product=bare_products(n, d, v, dtype, True), note="three bare products")


def linear_jsd(n, d, v, dtype):
    """From both models' hidden states; gradients of the student's."""
    def make():
        teacher = head(n, d, v, dtype)
        student = head(n, d, v, dtype)
        return {"h": student["h"], "w": student["w"], "g": teacher["h"], "u": teacher["w"]}

    def ours(h, w, g, u):
        return ops.linear_jsd(h, w, g, u, **pin()).mean()

    def theirs(h, w, g, u):
        return jsd(F.linear(h, w), F.linear(g, u)).mean()
    return Case("linear_jsd", (n, d, v), dtype, make, Gradient(ours, "h", "w"), Gradient(theirs, "h", "w"),
                suffix=" fwd+bwd", flops=8 * n * d * v, counted_as="8 n d v (four products)")


def jsd(x, t):
    """Of rows, with equal weights."""
    s, t = torch.log_softmax(x.float(), -1), torch.log_softmax(t.float(), -1)
    mixture = torch.logaddexp(s, t) - 0.6931471805599453
    return 0.5 * ((t.exp() * (t - mixture)).sum(-1) + (s.exp() * (s - mixture)).sum(-1))
