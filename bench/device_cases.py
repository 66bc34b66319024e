"""The cases of bench/device_torch.py: what is elementwise, what goes by rows, and the table of all with their sizes."""
import torch
import torch.nn.functional as F

import device_attention
import device_losses
import device_products
import rlk.torch as ops
from device_case import BF16, F32, Backward, Case, ids, normal, on_device, pin


def elementwise(n, d, dtype):
    def case(op, names, ours, theirs):
        return Case(op, (n, d), dtype, lambda: {name: normal(n, d, dtype=dtype) for name in names}, ours, theirs)

    yield case("add", "ab", lambda a, b: ops.add(a, b, **pin()), lambda a, b: a + b)
    yield case("mul", "ab", lambda a, b: ops.mul(a, b, **pin()), lambda a, b: a * b)
    yield case("silu", "x", lambda x: ops.silu(x, **pin()), lambda x: F.silu(x))
    yield case("silu_backward", "gx", lambda g, x: ops.silu_backward(g, x, **pin()),
               lambda g, x: torch.ops.aten.silu_backward(g, x))
    yield case("gelu", "x", lambda x: ops.gelu(x, **pin()), lambda x: F.gelu(x))
    yield case("relu", "x", lambda x: ops.relu(x, **pin()), lambda x: torch.relu(x))
    yield case("swiglu", "ab", lambda a, b: ops.swiglu(a, b, **pin()), lambda a, b: a * F.silu(b))
    yield Case("silu_and_mul", (n, 2 * d), dtype, lambda: {"x": normal(n, 2 * d, dtype=dtype)},
               lambda x: ops.silu_and_mul(x, **pin()), lambda x: F.silu(x[:, :d]) * x[:, d:])


def rows(n, d, dtype):
    def inputs(*names):
        return lambda: {name: normal(d if name in "wb" else n, *(() if name in "wb" else (d,)), dtype=dtype)
                        for name in names}

    def case(op, names, ours, theirs, **more):
        return Case(op, (n, d), dtype, inputs(*names), ours, theirs, **more)

    def rms_norm(x, w):
        return F.rms_norm(x, (d,), w, 1e-6)

    def layer_norm(x, w, b):
        return F.layer_norm(x, (d,), w, b)

    yield case("rms_norm", "xw", lambda x, w: ops.rms_norm(x, w, **pin()), rms_norm)
    yield case("rms_norm_backward", "gxw", lambda g, x, w: ops.rms_norm_backward(g, x, w, grad_weight=True, **pin()),
               Backward(rms_norm, "x", "w"))
    yield case("add_rms_norm", "xrw", lambda x, r, w: ops.add_rms_norm(x, r, w, **pin()),
               lambda x, r, w: (rms_norm(x + r, w), x + r))
    yield case("layer_norm", "xwb", lambda x, w, b: ops.layer_norm(x, w, b, **pin()), layer_norm)
    yield case("layer_norm_backward", "gxwb",
               lambda g, x, w, b: ops.layer_norm_backward(g, x, w, grad_weight=True, grad_bias=True, **pin()),
               Backward(layer_norm, "x", "w", "b"))
    yield case("softmax", "x", lambda x: ops.softmax(x, **pin()), lambda x: torch.softmax(x, -1))
    yield case("log_softmax", "x", lambda x: ops.log_softmax(x, **pin()), lambda x: torch.log_softmax(x, -1))
    yield case("softmax_backward", "gx", lambda g, x: ops.softmax_backward(g, x, **pin()),
               lambda g, x: torch.ops.aten._softmax_backward_data(g, x, -1, dtype))
    yield case("sum", "x", lambda x: ops.sum(x, **pin()), lambda x: x.sum(-1))
    yield case("max", "x", lambda x: ops.max(x, **pin()), lambda x: x.amax(-1))
    yield case("cumsum", "x", lambda x: ops.cumsum(x, **pin()), lambda x: x.cumsum(-1), compiles=False)


def optimizer(count):
    def make():
        return {name: normal(count).abs() for name in ("grad", "param", "m", "v")}

    def theirs(grad, param, m, v):
        m = torch.lerp(m, grad, 0.1)
        v = v * 0.999 + 0.001 * grad * grad
        step = 1e-3 / (1 - 0.9)
        return param * (1 - 1e-5) - step * m / (v.sqrt() / (1 - 0.999) ** 0.5 + 1e-8), m, v
    return Case("adamw_step", (count,), F32, make,
                lambda grad, param, m, v: ops.adamw_step(grad, param, m, v, **pin()), theirs)


def lookup(n, v, d, dtype):
    return Case("embedding", (n, v, d), dtype, lambda: {"y": ids(v, n), "w": normal(v, d, dtype=dtype)},
                lambda y, w: ops.embedding(y, w, **pin()), lambda y, w: F.embedding(y, w), compiles=False,
                extra_reads=(n - v) * d * dtype.itemsize)  # the rows that are asked for, not the table


def selection(n, v, dtype):
    """What a step of decoding does with its logits. torch draws other tokens than rlk, and finds other ones of equal
    numbers: those are not compared."""
    def make():
        return {"x": normal(n, v, dtype=dtype, scale=3.0)}

    def torch_sample(x):
        values, places = torch.topk(x.float(), 50)
        p = torch.softmax(values, -1)
        kept = torch.where(p.cumsum(-1) - p < 0.9, p, 0)
        return places.gather(-1, torch.multinomial(kept, 1))

    row_ids = on_device(torch.arange(n))
    yield Case("sample", (n, v), dtype, make,
               lambda x: ops.sample(x, row_ids, top_k=50, top_p=0.9, seed=1, **pin()), torch_sample, compiles=False,
               compared=0)
    yield Case("top_k", (n, v), dtype, make, lambda x: ops.top_k(x, k=50, **pin()), lambda x: torch.topk(x, 50),
               compiles=False, compared=1)
    yield Case("sort", (n, v), dtype, make, lambda x: ops.sort(x, **pin()), lambda x: torch.sort(x, stable=True),
               compiles=False)


def small():
    """Of 64 rows, as a step of decoding has them: also timed in a CUDA graph."""
    yield from elementwise(64, 4096, BF16)
    yield from rows(64, 4096, BF16)
    yield device_losses.logp(64, 151936, BF16)


def cases(divisor=1):
    """divisor: of the number of rows."""
    def of(size, least=1):
        return max(least, size // divisor)

    for dtype in (BF16, F32):
        for case in elementwise(of(16384), 4096, dtype):
            case.compiles = dtype == BF16 or case.op in ("add", "silu_and_mul")
            yield case
        yield from rows(of(16384), 4096, dtype)
    for case in rows(of(8192), 4096, BF16):
        case.compiles = case.compiles and case.op.startswith("rms_norm")
        yield case
    yield from device_losses.logits(of(8192), 32000, BF16)
    yield from device_losses.logits(of(2048), 151936, BF16)
    yield device_losses.logp(of(4096), 151936, BF16)
    yield device_losses.logp(of(2048), 151936, F32)
    yield from device_losses.tokens(of(512, 8), 8192)
    yield lookup(of(16384), 151936, 2048, BF16)
    yield device_products.linear(of(16384, 64), 4096, 4096, BF16)
    yield device_products.linear(of(4096, 64), 4096, 4096, F32)
    for dtype in (BF16, F32):
        yield device_products.matmul(of(16384, 64), 4096, 4096, dtype)
    yield device_products.grouped_gemm(32, of(256, 4), of(4096), of(4096), BF16)
    for entropy, gradient in ((False, False), (True, False), (True, True)):
        yield device_products.linear_logp(of(8192, 64), of(4096), of(131072), BF16, entropy, gradient)
    yield device_products.linear_cross_entropy(of(4096, 64), of(4096), of(128256), BF16)
    yield device_products.linear_jsd(of(2048, 64), of(2048), of(151936), BF16)
    yield from selection(64, 151936, BF16)
    yield from selection(256, 151936, F32)
    yield device_losses.grpo(8, of(1024, 8), of(151936))
    yield from device_attention.cases(divisor)
    yield optimizer(of(1 << 26, 4096))
    yield from small()
