"""The losses of bench/cpu_torch.py and what goes with them: each with what PyTorch's users, the trainers, write."""
import torch
import torch.nn.functional as F

from cpu_torch_case import BF16, F32, Case, ids, mask, name_of, random, token_logp


def masked_mean(x, mask):
    m = mask.float()
    return (x * m).sum() / m.sum()


def cross_entropy(dtype, n, v):
    return Case("cross_entropy", {"N": n, "V": v}, dtype,
                {"logits": random(n, v, dtype=dtype, scale=4.0), "y": ids(n, v)},
                lambda ops, logits, y: ops.cross_entropy(logits, y),
                lambda logits, y: F.cross_entropy(logits.float(), y), flops=3 * n * v, gradients=("logits",))


def linear_cross_entropy(dtype, n, v, d):
    inputs = {"h": random(n, d, dtype=dtype), "w": random(v, d, dtype=dtype, scale=0.02), "y": ids(n, v)}
    return Case("linear_cross_entropy", {"N": n, "V": v, "D": d}, dtype, inputs,
                lambda ops, h, w, y: ops.linear_cross_entropy(hidden=h, weight=w, ids=y),
                lambda h, w, y: F.cross_entropy(F.linear(h, w).float(), y), flops=2 * n * v * d, products=True,
                gradients=("h", "w"), flops_factor=3)


def divergence(student, teacher):
    """TRL's generalized_jsd_loss with beta 1/2, of each row."""
    s, t = torch.log_softmax(student.float(), -1), torch.log_softmax(teacher.float(), -1)
    half = torch.tensor(0.5)
    mixture = torch.logsumexp(torch.stack([s + torch.log(half), t + torch.log(half)]), 0)
    of_teacher = F.kl_div(mixture, t, reduction="none", log_target=True)
    of_student = F.kl_div(mixture, s, reduction="none", log_target=True)
    return (0.5 * of_teacher + 0.5 * of_student).sum(-1)


def jsd(dtype, n, v):
    inputs = {"s": random(n, v, dtype=dtype, scale=2.0), "t": random(n, v, dtype=dtype, scale=2.0)}
    return Case("jsd", {"N": n, "V": v}, dtype, inputs, lambda ops, s, t: ops.jsd(s, t),
                lambda s, t: divergence(s, t), flops=14 * n * v, gradients=("s",))


def linear_jsd(dtype, n, v, d):
    inputs = {"h": random(n, d, dtype=dtype), "w": random(v, d, dtype=dtype, scale=0.02),
              "g": random(n, d, dtype=dtype), "u": random(v, d, dtype=dtype, scale=0.02)}
    return Case("linear_jsd", {"N": n, "V": v, "D": d}, dtype, inputs,
                lambda ops, h, w, g, u: ops.linear_jsd(h, w, g, u),
                lambda h, w, g, u: divergence(F.linear(h, w), F.linear(g, u)), flops=4 * n * v * d, products=True,
                gradients=("h", "w"))


def kl_div(dtype, n, v):
    inputs = {"x": torch.log_softmax(random(n, v), -1).to(dtype), "target": torch.softmax(random(n, v), -1).to(dtype)}
    return Case("kl_div", {"N": n, "V": v}, dtype, inputs, lambda ops, x, target: ops.kl_div(x, target),
                lambda x, target: F.kl_div(x, target, reduction="batchmean"), flops=4 * n * v, gradients=("x",))


def tvd(dtype, n, v):
    inputs = {"p": torch.softmax(random(n, v), -1).to(dtype), "q": torch.softmax(random(n, v), -1).to(dtype)}
    return Case("tvd", {"N": n, "V": v}, dtype, inputs, lambda ops, p, q: ops.tvd(p, q),
                lambda p, q: 0.5 * (p - q).abs().sum() / p.shape[0], flops=3 * n * v, gradients=("p",))


def preference_loss(dtype, n):
    """DPO."""
    inputs = {name: random(n, dtype=dtype) - 50 for name in ("c", "r", "ref_c", "ref_r")}
    return Case("preference_loss", {"N": n}, dtype, inputs,
                lambda ops, c, r, ref_c, ref_r: ops.preference_loss(c, r, ref_c, ref_r),
                lambda c, r, ref_c, ref_r: -F.logsigmoid(0.1 * ((c - r) - (ref_c - ref_r))).mean(), flops=8 * n,
                gradients=("c", "r"))


def grpo_loss(dtype, b, t, v):
    """Groups of four, with a reference model: TRL's GRPO."""
    logits = random(b, t, v, dtype=dtype, scale=2.0)
    y = torch.randint(0, v, (b, t))
    inputs = {"logits": logits, "y": y, "old": token_logp(logits, y) + 0.1 * random(b, t), "rewards": torch.rand(b),
              "ref": (logits.float() + 0.1 * random(b, t, v)).to(dtype), "m": mask(b, t)}

    def ours(ops, logits, y, old, rewards, ref, m):
        return ops.grpo_loss(logits, y, old, rewards, ref, m, samples_per_prompt=4, std="unbiased", eps_mode="additive",
                             eps=1e-4, beta=0.04)

    def theirs(logits, y, old, rewards, ref, m):
        groups = rewards.view(-1, 4)
        advantages = ((groups - groups.mean(1, True)) / (groups.std(1, keepdim=True) + 1e-4)).view(-1, 1)
        new, ref = token_logp(logits, y), token_logp(ref, y)
        ratio, d = torch.exp(new - old), ref - new
        loss = -torch.min(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages) + 0.04 * (torch.exp(d) - d - 1)
        return masked_mean(loss, m)
    return Case("grpo_loss", {"B": b, "T": t, "V": v}, dtype, inputs, ours, theirs, flops=6 * b * t * v,
                gradients=("logits",), cancelling=1)


def logits_ratio_kl(dtype, n, v):
    logits, y = random(n, v, dtype=dtype, scale=2.0), ids(n, v)
    inputs = {"logits": logits, "y": y, "ref": random(n, v, dtype=dtype, scale=2.0),
              "old": token_logp(logits, y) + 0.1 * random(n)}

    def theirs(logits, y, ref, old):
        new = token_logp(logits, y)
        d = token_logp(ref, y) - new
        return torch.exp(new - old), torch.exp(d.clamp(-5, 5)) - d.clamp(-5, 5) - 1
    return Case("logits_ratio_kl", {"N": n, "V": v}, dtype, inputs,
                lambda ops, logits, y, ref, old: ops.logits_ratio_kl(logits, y, ref, old, diff_clamp=5.0, kl=True),
                theirs, flops=6 * n * v, gradients=("logits",))


def topk_kl(dtype, n, v, k):
    """Of the teacher's k best tokens."""
    best = torch.log_softmax(random(n, v, scale=2.0), -1).topk(k)
    inputs = {"logits": random(n, v, dtype=dtype, scale=2.0), "y": best.indices, "t": best.values}

    def theirs(logits, y, t):
        s = torch.log_softmax(logits.float(), -1).gather(-1, y)
        return (t.exp() * (t - s)).sum(-1)
    return Case("topk_kl", {"N": n, "V": v, "K": k}, dtype, inputs, lambda ops, logits, y, t: ops.topk_kl(logits, y, t),
                theirs, flops=3 * n * v, gradients=("logits",))


def policy_loss(dtype, b, t):
    """PPO's clip."""
    new = random(b, t, dtype=dtype) - 3
    inputs = {"new": new, "old": new + 0.1 * random(b, t), "advantages": random(b, t), "m": mask(b, t)}

    def theirs(new, old, advantages, m):
        ratio = torch.exp(new - old)
        return masked_mean(torch.maximum(-advantages * ratio, -advantages * ratio.clamp(0.8, 1.2)), m)
    return Case("policy_loss", {"B": b, "T": t}, dtype, inputs,
                lambda ops, new, old, advantages, m: ops.policy_loss(new, advantages, old, m), theirs, flops=8 * b * t,
                gradients=("new",))


def value_loss(dtype, b, t):
    """verl's, with the values clipped to 0.2 around the old ones."""
    inputs = {"v": random(b, t), "returns": random(b, t), "old": random(b, t), "m": mask(b, t)}

    def theirs(v, returns, old, m):
        clipped = torch.clamp(v, old - 0.2, old + 0.2)
        return 0.5 * masked_mean(torch.max((v - returns) ** 2, (clipped - returns) ** 2), m)
    return Case("value_loss", {"B": b, "T": t}, dtype, inputs,
                lambda ops, v, returns, old, m: ops.value_loss(v, returns, old, m, clip_eps=0.2), theirs,
                flops=10 * b * t, gradients=("v",))


def ratio_kl(dtype, n):
    new = random(n) - 3
    inputs = {"new": new, "old": new + 0.1 * random(n), "ref": new + 0.1 * random(n)}

    def theirs(new, old, ref):
        d = ref - new
        return torch.exp(new - old), torch.exp(d) - d - 1
    return Case("ratio_kl", {"N": n}, dtype, inputs, lambda ops, new, old, ref: ops.ratio_kl(new, old, ref, kl=True),
                theirs, flops=6 * n, gradients=("new",))


def whiten(dtype, b, t):
    inputs = {"x": random(b, t), "m": mask(b, t)}

    def theirs(x, m):
        mean = masked_mean(x, m)
        m = m.float()
        variance = ((x - mean) ** 2 * m).sum() / (m.sum() - 1)
        return (x - mean) * torch.rsqrt(variance + 1e-8) * m
    return Case("whiten", {"B": b, "T": t}, dtype, inputs, lambda ops, x, m: ops.whiten(x, m), theirs, flops=6 * b * t)


def gae(dtype, b, t):
    """The trainers' loop over tokens, from the last to the first."""
    inputs = {"rewards": random(b, t), "values": random(b, t)}

    def theirs(rewards, values):
        advantage, following, out = 0, 0, []
        for i in reversed(range(rewards.shape[1])):
            delta = rewards[:, i] + 0.99 * following - values[:, i]
            advantage = delta + 0.99 * 0.95 * advantage
            following = values[:, i]
            out.append(advantage)
        advantages = torch.stack(out[::-1], 1)
        return advantages, advantages + values
    return Case("gae", {"B": b, "T": t}, dtype, inputs,
                lambda ops, rewards, values: ops.gae(rewards, values, gamma=0.99, lam=0.95, returns=True), theirs,
                flops=6 * b * t)


# Sizes, the first of which --small divides (not below 4: a group), and dtypes.
BOTH = (F32, BF16)
TABLE = [(cross_entropy, (8192, 32000), BOTH), (linear_cross_entropy, (256, 32000, 2048), BOTH),
         (linear_jsd, (256, 32000, 1024), BOTH), (jsd, (1024, 32000), BOTH), (kl_div, (2048, 32000), (F32,)),
         (tvd, (2048, 32000), (F32,)), (topk_kl, (1024, 32000, 64), BOTH), (grpo_loss, (8, 128, 32000), BOTH),
         (logits_ratio_kl, (256, 151936), BOTH), (policy_loss, (256, 2048), (F32,)), (value_loss, (256, 2048), (F32,)),
         (ratio_kl, (256 * 2048,), (F32,)), (whiten, (256, 2048), (F32,)), (gae, (256, 2048), (F32,)),
         (preference_loss, (4096,), (F32,))]


def cases(divisor):
    """Names, and functions that make the cases: forward, and forward and backward where there is a gradient."""
    for make, (n, *others), dtypes in TABLE:
        sizes = (max(4, n // divisor), *others)
        for dtype in dtypes:
            def forward(make=make, sizes=sizes, dtype=dtype):
                return make(dtype, *sizes)
            yield name_of(make.__name__, sizes, dtype), forward
            if make not in (whiten, gae):
                yield name_of(make.__name__, sizes, dtype, True), lambda forward=forward: forward().with_backward()
