"""The losses of bench/device_torch.py that begin at logits or at tokens: each with what trainers write in PyTorch."""
import torch
import torch.nn.functional as F

import rlk.torch as ops
from device_case import BF16, F32, Case, Gradient, ids, mask, normal, one_or_all, pin, token_logp, uniform
from device_products import jsd


def logits_and_ids(n, v, dtype):
    return lambda: {"x": normal(n, v, dtype=dtype, scale=4.0), "y": ids(v, n)}


def logp(n, v, dtype):
    return Case("logp", (n, v), dtype, logits_and_ids(n, v, dtype), lambda x, y: ops.logp(x, y, **pin()), token_logp)


def logits(n, v, dtype):
    def loss_and_gradient(x, y):
        out = ops.cross_entropy(x, y, lse=True, **pin())
        loss, lse = out[0], out[-1]
        return loss, ops.cross_entropy_backward(x, y, lse, torch.ones_like(loss), **pin())

    def logp_and_gradient(x, y):
        out, lse = ops.logp(x, y, lse=True, **pin())
        return out, ops.logp_backward(x, y, lse, torch.ones_like(out), **pin())

    def two():
        return {"x": normal(n, v, dtype=dtype, scale=2.0), "t": normal(n, v, dtype=dtype, scale=2.0)}

    make, again = logits_and_ids(n, v, dtype), n * v * dtype.itemsize
    yield logp(n, v, dtype)
    yield Case("logp", (n, v), dtype, make, logp_and_gradient, Gradient(token_logp, "x"), suffix=" fwd+bwd",
               extra_reads=again)
    yield Case("cross_entropy", (n, v), dtype, make, loss_and_gradient,
               Gradient(lambda x, y: F.cross_entropy(x.float(), y), "x"), suffix=" fwd+bwd", extra_reads=again)
    yield Case("jsd", (n, v), dtype, two, lambda x, t: ops.jsd(x, t, **pin()), jsd)


def policy_loss(b, t):
    def make():
        new = -uniform(b, t)
        return {"new": new, "old": new + 0.1 * normal(b, t), "adv": normal(b, t), "m": mask(b, t)}

    def ours(new, old, adv, m):
        loss = one_or_all(ops.policy_loss(new, adv, old, m, **pin()))[0]
        return loss, one_or_all(ops.policy_loss_backward(new, adv, torch.ones_like(loss), old, m, **pin()))[0]

    def theirs(new, old, adv, m):
        ratio = torch.exp(new - old)
        loss = -torch.minimum(ratio * adv, ratio.clamp(0.8, 1.2) * adv)
        return (loss * m).sum() / m.sum()
    return Case("policy_loss", (b, t), F32, make, ours, Gradient(theirs, "new"), suffix=" fwd+bwd")


def ratio_kl(b, t):
    def k3(logp, ref):
        d = ref - logp
        return torch.exp(d) - d - 1

    yield Case("ratio_kl", (b * t,), F32, lambda: {"logp": -uniform(b * t), "ref": -uniform(b * t)},
               lambda logp, ref: ops.ratio_kl(logp, ref_logp=ref, kl=True, **pin())[1], k3)

    def make():
        return {name: -uniform(b * t) for name in ("logp", "old", "ref")}

    def ours(logp, old, ref):
        ratio, kl = ops.ratio_kl(logp, old, ref, kl=True, **pin())
        return ratio, kl, ops.ratio_kl_backward(logp, torch.ones_like(ratio), torch.ones_like(kl), old, ref, **pin())

    def theirs(logp, old, ref):
        return torch.exp(logp - old), k3(logp, ref)
    yield Case("ratio_kl", (b, t), F32, make, ours, Gradient(theirs, "logp"), suffix=" fwd+bwd",
               extra_reads=3 * b * t * F32.itemsize)


def whiten(b, t):
    def theirs(x, m):
        count = m.sum()
        mean = (x * m).sum() / count
        var = (((x - mean) ** 2) * m).sum() / (count - 1)
        return torch.where(m, (x - mean) * torch.rsqrt(var + 1e-8), 0)
    return Case("whiten", (b, t), F32, lambda: {"x": normal(b, t), "m": mask(b, t)},
                lambda x, m: ops.whiten(x, m, **pin()), theirs)


def group_advantages(count):
    def theirs(rewards):
        grouped = rewards.view(-1, 8)
        mean, std = grouped.mean(1, keepdim=True), grouped.std(1, keepdim=True)
        return ((grouped - mean) / (std + 1e-6)).view(-1)
    return Case("group_advantages", (count,), F32, lambda: {"rewards": normal(count)},
                lambda rewards: ops.group_advantages(rewards, samples_per_prompt=8, **pin()), theirs)


GAMMA, LAM = 0.99, 0.95


def gae_loop(rewards, values):
    """The trainers' loop over tokens, from the last to the first."""
    b, t = rewards.shape
    out = torch.empty_like(rewards)
    last = torch.zeros_like(rewards[:, 0])
    for i in range(t - 1, -1, -1):
        following = values[:, i + 1] if i + 1 < t else 0
        last = rewards[:, i] + GAMMA * following - values[:, i] + GAMMA * LAM * last
        out[:, i] = last
    return out


def gae_doubling(rewards, values):
    """The same without a loop over tokens: each step adds the discounted sum of as many tokens as are summed already. The
    discount of the next step is a square, and no fp32 number after eleven."""
    out = rewards + GAMMA * F.pad(values[:, 1:], (0, 1)) - values
    discount, step = GAMMA * LAM, 1
    while step < rewards.shape[1] and discount > 1e-38:
        out = out + discount * F.pad(out[:, step:], (0, step))
        discount, step = discount * discount, 2 * step
    return out


def gae(b, t):
    """torch.compile does not take a loop of thousands of steps: it is given the parallel form."""
    return Case("gae", (b, t), F32, lambda: {"rewards": normal(b, t), "values": normal(b, t)},
                lambda rewards, values: ops.gae(rewards, values, gamma=GAMMA, lam=LAM, **pin()), gae_loop,
                compiles=gae_doubling, note="compiled: a parallel form, for there is no compiled loop")


def tokens(b, t):
    yield policy_loss(b, t)
    yield from ratio_kl(b, t)
    yield whiten(b, t)
    yield group_advantages(b * t)
    yield gae(b, t)


def group_scores(rewards):
    """Less the mean of a group of eight, over its deviation; one a sequence."""
    groups = rewards.view(-1, 8)
    spread = groups.std(1, correction=0, keepdim=True).clamp(min=1e-6)
    return ((groups - groups.mean(1, keepdim=True)) / spread).view(-1)


def grpo(b, t, v, dtype=BF16):
    """From logits: rewards of groups of eight, no reference."""
    def make():
        return {"x": normal(b, t, v, dtype=dtype, scale=2.0), "y": ids(v, b, t), "old": -11 + normal(b, t),
                "rewards": normal(b)}

    def ours(x, y, old, rewards):
        out = ops.grpo_loss(x, y, old, rewards, samples_per_prompt=8, lse=True, **pin())
        loss, lse = out[0], out[-1]
        return loss, ops.grpo_loss_backward(x, y, old, rewards, lse, torch.ones_like(loss), samples_per_prompt=8, **pin())

    def theirs(x, y, old, rewards):
        logp = torch.cat([token_logp(part, of) for part, of in zip(x.split(1), y.split(1))])
        advantage = group_scores(rewards)[:, None]
        ratio = torch.exp(logp - old)
        return -torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean()
    return Case("grpo_loss", (b, t, v), dtype, make, ours, Gradient(theirs, "x"), suffix=" fwd+bwd",
                extra_reads=b * t * v * dtype.itemsize)
