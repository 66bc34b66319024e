"""The cases of bench/device_torch.py: an operator on inputs of its own, as rlk, as PyTorch's users call it, and the
bytes that it must read and write."""
import dataclasses
from typing import Callable

import torch
import torch.nn.functional as F

import rlk.torch as ops

BF16, F32 = torch.bfloat16, torch.float32
SHORT = {BF16: "bf16", F32: "f32"}
PIN = "cuda"


@dataclasses.dataclass
class Case:
    """make() gives a set of inputs; ours(**inputs) and theirs(**inputs) the same tensors. extra_reads: bytes that a
    second pass must read, where no algorithm does with one."""
    op: str
    sizes: tuple
    dtype: torch.dtype
    make: Callable
    ours: Callable
    theirs: Callable
    extra_reads: int = 0
    suffix: str = ""

    @property
    def name(self):
        return f"{self.op} {'x'.join(map(str, self.sizes))} {SHORT[self.dtype]}{self.suffix}"

    def inputs(self):
        return self.make()

    def input_bytes(self):
        return sum(t.nbytes for t in self.make().values())

    def bytes(self, inputs, outputs):
        return sum(t.nbytes for t in [*inputs.values(), *outputs]) + self.extra_reads


def normal(*shape, dtype=F32, scale=1.0):
    return (torch.randn(*shape, device="cuda") * scale).to(dtype)


def ids(high, *shape):
    return torch.randint(0, high, shape, device="cuda")


def mask(*shape):
    return torch.rand(*shape, device="cuda") < 0.8


def elementwise(n, d, dtype):
    def case(op, names, ours, theirs, suffix=""):
        return Case(op, (n, d), dtype, lambda: {name: normal(n, d, dtype=dtype) for name in names}, ours, theirs,
                    suffix=suffix)

    def gate_inputs():
        return {"x": normal(n, 2 * d, dtype=dtype)}

    yield case("add", "ab", lambda a, b: ops.add(a, b, pin=PIN), lambda a, b: a + b)
    yield case("mul", "ab", lambda a, b: ops.mul(a, b, pin=PIN), lambda a, b: a * b)
    yield case("silu", "x", lambda x: ops.silu(x, pin=PIN), lambda x: F.silu(x))
    yield case("silu_backward", "gx", lambda g, x: ops.silu_backward(g, x, pin=PIN),
               lambda g, x: torch.ops.aten.silu_backward(g, x))
    yield case("gelu", "x", lambda x: ops.gelu(x, pin=PIN), lambda x: F.gelu(x))
    yield case("relu", "x", lambda x: ops.relu(x, pin=PIN), lambda x: torch.relu(x))
    yield case("swiglu", "ab", lambda a, b: ops.swiglu(a, b, pin=PIN), lambda a, b: a * F.silu(b))
    yield Case("silu_and_mul", (n, 2 * d), dtype, gate_inputs, lambda x: ops.silu_and_mul(x, pin=PIN),
               lambda x: F.silu(x[:, :d]) * x[:, d:])


def rows(n, d, dtype):
    def inputs(*names):
        return lambda: {name: normal(d if name in "wb" else n, *(() if name in "wb" else (d,)), dtype=dtype)
                        for name in names}

    def case(op, names, ours, theirs):
        return Case(op, (n, d), dtype, inputs(*names), ours, theirs)

    def rms_backward(g, x, w):
        return torch.autograd.grad(F.rms_norm(x.requires_grad_(), (d,), w.requires_grad_(), 1e-6), (x, w), g)

    def layer_backward(g, x, w):
        rstd = torch.rsqrt(x.float().var(-1, correction=0, keepdim=True) + 1e-5)
        out = torch.ops.aten.native_layer_norm_backward(g, x, (d,), x.float().mean(-1, keepdim=True), rstd, w, w,
                                                        (True, True, True))
        return out

    yield case("rms_norm", "xw", lambda x, w: ops.rms_norm(x, w, pin=PIN), lambda x, w: F.rms_norm(x, (d,), w, 1e-6))
    yield case("rms_norm_backward", "gxw", lambda g, x, w: ops.rms_norm_backward(g, x, w, grad_weight=True, pin=PIN),
               rms_backward)
    yield case("add_rms_norm", "xrw", lambda x, r, w: ops.add_rms_norm(x, r, w, pin=PIN),
               lambda x, r, w: (F.rms_norm(x + r, (d,), w, 1e-6), x + r))
    yield case("layer_norm", "xwb", lambda x, w, b: ops.layer_norm(x, w, b, pin=PIN),
               lambda x, w, b: F.layer_norm(x, (d,), w, b))
    yield case("layer_norm_backward", "gxw",
               lambda g, x, w: ops.layer_norm_backward(g, x, w, grad_weight=True, grad_bias=True, pin=PIN),
               layer_backward)
    yield case("softmax", "x", lambda x: ops.softmax(x, pin=PIN), lambda x: torch.softmax(x, -1))
    yield case("log_softmax", "x", lambda x: ops.log_softmax(x, pin=PIN), lambda x: torch.log_softmax(x, -1))
    yield case("softmax_backward", "gx", lambda g, x: ops.softmax_backward(g, x, pin=PIN),
               lambda g, x: torch.ops.aten._softmax_backward_data(g, x, -1, dtype))
    yield case("sum", "x", lambda x: ops.sum(x, pin=PIN), lambda x: x.sum(-1))
    yield case("max", "x", lambda x: ops.max(x, pin=PIN), lambda x: x.amax(-1))
    yield case("cumsum", "x", lambda x: ops.cumsum(x, pin=PIN), lambda x: x.cumsum(-1))


def logits(n, v, dtype):
    def token_logp(x, y):
        return torch.log_softmax(x.float(), -1).gather(-1, y[:, None])[:, 0]

    def loss_and_gradient(x, y):
        out = ops.cross_entropy(x, y, lse=True, pin=PIN)
        loss, lse = out[0], out[-1]
        return loss, ops.cross_entropy_backward(x, y, lse, torch.ones_like(loss), pin=PIN)

    def torch_loss_and_gradient(x, y):
        x = x.detach().requires_grad_()
        loss = F.cross_entropy(x.float(), y)
        return loss.detach(), torch.autograd.grad(loss, x)[0]

    def make():
        return {"x": normal(n, v, dtype=dtype, scale=4.0), "y": ids(v, n)}

    def two():
        return {"x": normal(n, v, dtype=dtype, scale=2.0), "t": normal(n, v, dtype=dtype, scale=2.0)}

    def torch_jsd(x, t):
        s, t = torch.log_softmax(x.float(), -1), torch.log_softmax(t.float(), -1)
        mixture = torch.logaddexp(s, t) - 0.6931471805599453
        return 0.5 * ((t.exp() * (t - mixture)).sum(-1) + (s.exp() * (s - mixture)).sum(-1))

    yield Case("logp", (n, v), dtype, make, lambda x, y: ops.logp(x, y, pin=PIN), token_logp)
    def logp_and_gradient(x, y):
        logp, lse = ops.logp(x, y, lse=True, pin=PIN)
        return logp, ops.logp_backward(x, y, lse, torch.ones_like(logp), pin=PIN)

    def torch_logp_and_gradient(x, y):
        x = x.detach().requires_grad_()
        logp = token_logp(x, y)
        return logp.detach(), torch.autograd.grad(logp.sum(), x)[0]

    yield Case("logp", (n, v), dtype, make, logp_and_gradient, torch_logp_and_gradient, suffix=" fwd+bwd",
               extra_reads=n * v * dtype.itemsize)
    yield Case("cross_entropy", (n, v), dtype, make, loss_and_gradient, torch_loss_and_gradient, suffix=" fwd+bwd",
               extra_reads=n * v * dtype.itemsize)
    yield Case("jsd", (n, v), dtype, two, lambda x, t: ops.jsd(x, t, pin=PIN), torch_jsd)


def tokens(b, t):
    def policy_inputs():
        new = -torch.rand(b, t, device="cuda")
        return {"new": new, "old": new + 0.1 * normal(b, t), "adv": normal(b, t), "m": mask(b, t)}

    def torch_policy(new, old, adv, m):
        ratio = torch.exp(new - old)
        loss = -torch.minimum(ratio * adv, ratio.clamp(0.8, 1.2) * adv)
        return (loss * m).sum() / m.sum()

    def policy(new, old, adv, m):
        loss = flat_first(ops.policy_loss(new, adv, old, m, pin=PIN))
        return loss, flat_first(ops.policy_loss_backward(new, adv, torch.ones_like(loss), old, m, pin=PIN))

    def torch_policy_gradient(new, old, adv, m):
        new = new.detach().requires_grad_()
        loss = torch_policy(new, old, adv, m)
        return loss.detach(), torch.autograd.grad(loss, new)[0]

    def torch_k3(logp, ref):
        d = ref - logp
        return torch.exp(d) - d - 1

    def torch_group(rewards):
        grouped = rewards.view(-1, 8)
        mean, std = grouped.mean(1, keepdim=True), grouped.std(1, keepdim=True)
        return ((grouped - mean) / (std + 1e-6)).view(-1)

    def torch_whiten(x, m):
        count = m.sum()
        mean = (x * m).sum() / count
        var = (((x - mean) ** 2) * m).sum() / (count - 1)
        return torch.where(m, (x - mean) * torch.rsqrt(var + 1e-8), 0)

    yield Case("policy_loss", (b, t), F32, policy_inputs, policy, torch_policy_gradient, suffix=" fwd+bwd")
    yield Case("ratio_kl", (b * t,), F32, lambda: {"logp": -torch.rand(b * t, device="cuda"),
                                                   "ref": -torch.rand(b * t, device="cuda")},
               lambda logp, ref: ops.ratio_kl(logp, ref_logp=ref, kl=True, pin=PIN)[1], torch_k3)
    yield Case("whiten", (b, t), F32, lambda: {"x": normal(b, t), "m": mask(b, t)},
               lambda x, m: ops.whiten(x, m, pin=PIN), torch_whiten)
    yield Case("group_advantages", (b * t,), F32, lambda: {"rewards": normal(b * t)},
               lambda rewards: ops.group_advantages(rewards, samples_per_prompt=8, pin=PIN), torch_group)
    yield Case("gae", (b, t), F32, lambda: {"rewards": normal(b, t), "values": normal(b, t)},
               lambda rewards, values: ops.gae(rewards, values, gamma=0.99, lam=0.95, pin=PIN), torch_gae)


def torch_gae(rewards, values):
    b, t = rewards.shape
    out = torch.empty_like(rewards)
    last = torch.zeros(b, device="cuda")
    for i in range(t - 1, -1, -1):
        following = values[:, i + 1] if i + 1 < t else 0
        last = rewards[:, i] + 0.99 * following - values[:, i] + 0.99 * 0.95 * last
        out[:, i] = last
    return out


def flat_first(out):
    return out[0] if isinstance(out, (tuple, list)) else out


def optimizer(count):
    def make():
        return {name: normal(count).abs() for name in ("grad", "param", "m", "v")}

    def theirs(grad, param, m, v):
        m = torch.lerp(m, grad, 0.1)
        v = v * 0.999 + 0.001 * grad * grad
        step = 1e-3 / (1 - 0.9)
        return param * (1 - 1e-5) - step * m / (v.sqrt() / (1 - 0.999) ** 0.5 + 1e-8), m, v
    return Case("adamw_step", (count,), F32, make,
                lambda grad, param, m, v: ops.adamw_step(grad, param, m, v, pin=PIN), theirs)


def attention(b, queries, keys, dtype, dim=128):
    """32 heads over 8 of keys; causal; of one query a step of decoding."""
    def make():
        return {"q": normal(b, queries, 32, dim, dtype=dtype), "k": normal(b, keys, 8, dim, dtype=dtype),
                "v": normal(b, keys, 8, dim, dtype=dtype)}

    def theirs(q, k, v):
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))
        out = F.scaled_dot_product_attention(q, k, v, is_causal=queries > 1, enable_gqa=True)
        return out.transpose(1, 2)
    return Case("attention", (b, queries, keys) if dim == 128 else (b, queries, keys, dim), dtype, make,
                lambda q, k, v: ops.attention(q, k, v, causal="on", pin=PIN), theirs)


def attention_gradients(b, t, dim, dtype):
    """32 heads over 8 of keys; causal. Backward alone: both sides keep what the forward told."""
    def sdpa(q, k, v):
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True).transpose(1, 2)

    kept = {}  # of torch's forward, by the address of its q

    def make():
        q, k, v, g = (normal(b, t, heads, dim, dtype=dtype) for heads in (32, 8, 8, 32))
        out, lse = ops.attention(q, k, v, causal="on", lse=True, pin=PIN)
        return {"q": q, "k": k, "v": v, "out": out, "lse": lse, "g": g}

    def theirs(q, k, v, out, lse, g):
        if q.data_ptr() not in kept:
            leaves = [x.detach().requires_grad_() for x in (q, k, v)]
            kept[q.data_ptr()] = leaves, sdpa(*leaves)
        leaves, result = kept[q.data_ptr()]
        return torch.autograd.grad(result, leaves, g, retain_graph=True)
    return Case("attention_backward", (b, t, t, dim), dtype, make,
                lambda q, k, v, out, lse, g: ops.attention_backward(q, k, v, out, lse, g, causal="on", pin=PIN), theirs)


def paged(b, keys, dtype, numerics=None):
    """A step of decoding, 32 heads of 128 over 8, pages of 16 tokens in any order. torch: the pages gathered first, and
    nothing promised about batches."""
    pages = keys // 16

    def make():
        table = torch.randperm(b * pages, device="cuda", dtype=torch.int32).view(b, pages)
        return {"q": normal(b, 32, 128, dtype=dtype), "k": normal(b * pages, 16, 8, 128, dtype=dtype),
                "v": normal(b * pages, 16, 8, 128, dtype=dtype), "table": table,
                "lens": torch.full((b,), keys, device="cuda", dtype=torch.int32)}

    def theirs(q, k, v, table, lens):
        k, v = (x[table.long()].view(b, keys, 8, 128).transpose(1, 2) for x in (k, v))
        return F.scaled_dot_product_attention(q[:, :, None], k, v, enable_gqa=True)[:, :, 0]
    return Case("paged_attention", (b, keys), dtype, make,
                lambda q, k, v, table, lens: ops.paged_attention(q, k, v, table, lens, pin=PIN, numerics=numerics),
                theirs, suffix="" if numerics is None else f" {numerics}")


def prefix_shared(group, queries, prefix, own, dtype):
    """A group's prompt once beside the tokens of each of its samples; 32 heads of 128 over 8. torch: joined."""
    def make():
        return {"q": normal(1, group, queries, 32, 128, dtype=dtype), "pk": normal(1, prefix, 8, 128, dtype=dtype),
                "pv": normal(1, prefix, 8, 128, dtype=dtype), "k": normal(1, group, own, 8, 128, dtype=dtype),
                "v": normal(1, group, own, 8, 128, dtype=dtype)}

    def theirs(q, pk, pv, k, v):
        k, v = (torch.cat([shared.expand(group, -1, -1, -1), part[0]], 1).transpose(1, 2)
                for shared, part in ((pk, k), (pv, v)))
        return F.scaled_dot_product_attention(q[0].transpose(1, 2), k, v, enable_gqa=True).transpose(1, 2)[None]
    return Case("prefix_shared_attention", (group, queries, prefix, own), dtype, make,
                lambda q, pk, pv, k, v: ops.prefix_shared_attention(q, pk, pv, k, v, pin=PIN), theirs)


def lookup(n, v, d, dtype):
    yield Case("embedding", (n, v, d), dtype, lambda: {"y": ids(v, n), "w": normal(v, d, dtype=dtype)},
               lambda y, w: ops.embedding(y, w, pin=PIN), lambda y, w: F.embedding(y, w),
               extra_reads=(n - v) * d * dtype.itemsize)  # the rows that are asked for, not the table


def products(n, k, m, dtype):
    """flops are what counts of these: the bytes are little beside them."""
    yield Case("linear", (n, k, m), dtype, lambda: {"x": normal(n, k, dtype=dtype), "w": normal(m, k, dtype=dtype)},
               lambda x, w: ops.linear(x, w, pin=PIN), lambda x, w: F.linear(x, w))


def linear_losses(n, d, v, dtype):
    def make():
        return {"h": normal(n, d, dtype=dtype), "w": normal(v, d, dtype=dtype, scale=d ** -0.5), "y": ids(v, n)}

    def in_chunks(h, w, y):
        rows = 1024
        return torch.cat([torch.log_softmax(F.linear(part, w).float(), -1).gather(-1, of[:, None])[:, 0]
                          for part, of in zip(h.split(rows), y.split(rows))])
    yield Case("linear_logp", (n, d, v), dtype, make, lambda h, w, y: ops.linear_logp(h, w, y, pin=PIN), in_chunks)


def linear_cross_entropy(n, d, v, dtype):
    def make():
        return {"h": normal(n, d, dtype=dtype), "w": normal(v, d, dtype=dtype, scale=d ** -0.5), "y": ids(v, n)}

    def ours(h, w, y):
        h, w = h.detach().requires_grad_(), w.detach().requires_grad_()
        loss = ops.linear_cross_entropy(h, w, y, pin=PIN)
        return loss.detach(), *torch.autograd.grad(loss, (h, w))

    def theirs(h, w, y):
        h, w = h.detach().requires_grad_(), w.detach().requires_grad_()
        loss = F.cross_entropy(F.linear(h, w).float(), y)
        return loss.detach(), *torch.autograd.grad(loss, (h, w))
    return Case("linear_cross_entropy", (n, d, v), dtype, make, ours, theirs, suffix=" fwd+bwd")


def selection(n, v, dtype):
    """What a step of decoding does with its logits."""
    def make():
        return {"x": normal(n, v, dtype=dtype, scale=3.0)}

    def torch_sample(x):
        values, places = torch.topk(x.float(), 50)
        p = torch.softmax(values, -1)
        kept = torch.where(p.cumsum(-1) - p < 0.9, p, 0)
        return places.gather(-1, torch.multinomial(kept, 1))

    row_ids = torch.arange(n, device="cuda")
    yield Case("sample", (n, v), dtype, make,
               lambda x: ops.sample(x, row_ids, top_k=50, top_p=0.9, seed=1, pin=PIN), torch_sample)
    yield Case("top_k", (n, v), dtype, make, lambda x: ops.top_k(x, k=50, pin=PIN), lambda x: torch.topk(x, 50))
    yield Case("sort", (n, v), dtype, make, lambda x: ops.sort(x, pin=PIN), lambda x: torch.sort(x, stable=True))


def grpo(b, t, v, dtype):
    """From logits: rewards of groups of eight, no reference."""
    def make():
        return {"x": normal(b, t, v, dtype=dtype, scale=2.0), "y": ids(v, b, t), "old": -11 + normal(b, t),
                "rewards": normal(b)}

    def ours(x, y, old, rewards):
        out = ops.grpo_loss(x, y, old, rewards, samples_per_prompt=8, lse=True, pin=PIN)
        loss, lse = out[0], out[-1]
        return loss, ops.grpo_loss_backward(x, y, old, rewards, lse, torch.ones_like(loss), samples_per_prompt=8, pin=PIN)

    def theirs(x, y, old, rewards):
        x = x.detach().requires_grad_()
        logp = torch.cat([torch.log_softmax(part.float(), -1).gather(-1, of[..., None])[..., 0]
                          for part, of in zip(x.split(1), y.split(1))])
        groups = rewards.view(-1, 8)
        spread = groups.std(1, correction=0, keepdim=True).clamp(min=1e-6)
        advantage = ((groups - groups.mean(1, keepdim=True)) / spread).view(-1, 1)
        ratio = torch.exp(logp - old)
        loss = -torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean()
        return loss.detach(), torch.autograd.grad(loss, x)[0]
    yield Case("grpo_loss", (b, t, v), dtype, make, ours, theirs, suffix=" fwd+bwd",
               extra_reads=b * t * v * dtype.itemsize)


def cases(divisor=1):
    """divisor: of the number of rows."""
    for dtype in (BF16, F32):
        yield from elementwise(max(1, 16384 // divisor), 4096, dtype)
        yield from rows(max(1, 16384 // divisor), 4096, dtype)
    yield from rows(max(1, 8192 // divisor), 4096, BF16)
    yield from logits(max(1, 8192 // divisor), 32000, BF16)
    yield from logits(max(1, 2048 // divisor), 151936, BF16)
    yield from tokens(max(8, 512 // divisor), 8192)
    yield from lookup(max(1, 16384 // divisor), 151936, 2048, BF16)
    yield from products(max(64, 16384 // divisor), 4096, 4096, BF16)
    yield from products(max(64, 4096 // divisor), 4096, 4096, F32)
    yield from linear_losses(max(64, 8192 // divisor), 4096 // divisor, 131072 // divisor, BF16)
    yield linear_cross_entropy(max(64, 4096 // divisor), 4096 // divisor, 128256 // divisor, BF16)
    yield from selection(64, 151936, BF16)
    yield from selection(256, 151936, F32)
    yield from grpo(8, max(8, 1024 // divisor), 151936 // divisor, BF16)
    for b, length, dim in ((2, 4096, 128), (1, 16384, 128), (8, 2048, 64)):
        yield attention(b, max(64, length // divisor), max(64, length // divisor), BF16, dim)
    for b, keys in ((8, 32768), (64, 4096), (1, 131072)):
        yield attention(b, 1, max(64, keys // divisor), BF16)
        for numerics in (None, "batch_invariant"):
            yield paged(b, max(64, keys // divisor // 16 * 16), BF16, numerics)
    for b, length, dim in ((2, 4096, 128), (1, 16384, 128), (8, 2048, 64)):
        yield attention_gradients(b, max(64, length // divisor), dim, BF16)
    yield prefix_shared(16, max(16, 512 // divisor), max(64, 8192 // divisor), max(16, 512 // divisor), BF16)
    yield prefix_shared(64, 1, max(64, 8192 // divisor), 16, BF16)
    yield optimizer(max(4096, (1 << 26) // divisor))
    yield from elementwise(64, 4096, BF16)
    yield from rows(64, 4096, BF16)
