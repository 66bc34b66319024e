#!/usr/bin/env python3
"""rlk and PyTorch on the CPU, in one process and on the same tensors, with all threads of both.

    PYTHONPATH=build/release/python python3 bench/cpu_torch.py [--threads N] [NAME...]

Prints a table: median time of a call of each, and torch's over rlk's (above 1: rlk is faster). They take turns of ten
calls after a pause, so that both see the same machine, and neither the threads of the other, which wait for more work
without sleeping (OpenMP's for milliseconds); inputs are random, and those of memory-bound cases larger than the caches.
PyTorch is called as its users call it: a fused function where it has one; rlk as torch's users call it, by rlk.torch. Its
kernels are those of librlk_torch; with RLK_TORCH_LIBRARY=0 they are Python's, some 40 us a call slower, and the first line
says so. Exit code 1 when a case failed.
"""
import argparse
import os
import statistics
import sys
import time

import torch
import torch.nn.functional as F

BF16, F32 = torch.bfloat16, torch.float32
CASES = {}


def case(name):
    def register(make):
        CASES[name] = make
        return make
    return register


def random(*shape, dtype=F32, scale=1.0):
    return (torch.randn(*shape) * scale).to(dtype)


def ids(n, v):
    return torch.randint(0, v, (n,))


def logp_case(n, v, dtype):
    def make(ops):
        x, y = random(n, v, dtype=dtype, scale=4.0), ids(n, v)
        return (lambda: ops.logp(x, y)), (lambda: torch.log_softmax(x.float(), -1).gather(-1, y[:, None])[:, 0])
    return make


def linear_case(n, v, d, dtype):
    def make(ops):
        h, w, y = random(n, d, dtype=dtype), random(v, d, dtype=dtype, scale=0.02), ids(n, v)
        return ((lambda: ops.linear_logp(h, w, y)),
                (lambda: torch.log_softmax(F.linear(h, w).float(), -1).gather(-1, y[:, None])[:, 0]))
    return make


def product_case(n, k, m, dtype):
    def make(ops):
        x, w = random(n, k, dtype=dtype), random(m, k, dtype=dtype, scale=0.02)
        return (lambda: ops.linear(x, w)), (lambda: F.linear(x, w))
    return make


def product_gradient_case(n, k, m, dtype):
    """Both gradients: two products of the forward's size."""
    def make(ops):
        x, w, g = random(n, k, dtype=dtype), random(m, k, dtype=dtype, scale=0.02), random(n, m, dtype=dtype)
        return (lambda: ops.linear_backward(g, x, w, grad_weight=True)), (lambda: (g @ w, g.t() @ x))
    return make


def attention_case(queries, keys, dtype):
    """16 heads of 128, causal; of one query a step of decoding."""
    def make(ops):
        q, k, v = random(1, queries, 16, 128, dtype=dtype), *(random(1, keys, 16, 128, dtype=dtype) for _ in range(2))
        theirs = [t.transpose(1, 2) for t in (q, k, v)]
        return ((lambda: ops.attention(q, k, v, causal="on")),
                (lambda: F.scaled_dot_product_attention(*theirs, is_causal=queries > 1)))
    return make


def linear_loss_case(n, v, d, dtype):
    def make(ops):
        h, w, y = random(n, d, dtype=dtype), random(v, d, dtype=dtype, scale=0.02), ids(n, v)
        return ((lambda: ops.linear_cross_entropy(hidden=h, weight=w, ids=y)),
                (lambda: F.cross_entropy(F.linear(h, w).float(), y)))
    return make


for dtype in (F32, BF16):
    short = str(dtype).split(".")[1].replace("bfloat16", "bf16").replace("float32", "f32")
    CASES[f"logp 16 x 32000 {short}"] = logp_case(16, 32000, dtype)
    CASES[f"logp 512 x 151936 {short}"] = logp_case(512, 151936, dtype)
    CASES[f"linear_logp 256 x 32000 x 2048 {short}"] = linear_case(256, 32000, 2048, dtype)
    CASES[f"linear 1024 x 2048 x 2048 {short}"] = product_case(1024, 2048, 2048, dtype)
    CASES[f"linear_backward 1024 x 2048 x 2048 {short}"] = product_gradient_case(1024, 2048, 2048, dtype)
    CASES[f"linear_cross_entropy 256 x 32000 x 2048 {short}"] = linear_loss_case(256, 32000, 2048, dtype)
    CASES[f"linear_logp 1 x 32000 x 2048 {short}"] = linear_case(1, 32000, 2048, dtype)

    CASES[f"attention 1024 x 1024 {short}"] = attention_case(1024, 1024, dtype)
    CASES[f"attention 1 x 4096 {short}"] = attention_case(1, 4096, dtype)

    def unary(name, function, dtype=dtype):
        def make(ops):
            x = random(8192, 4096, dtype=dtype)
            return (lambda: getattr(ops, name)(x)), (lambda: function(x))
        return make

    for name, function in (("silu", F.silu), ("gelu", F.gelu), ("relu", F.relu), ("sigmoid", torch.sigmoid),
                           ("softmax", lambda x: torch.softmax(x, -1)),
                           ("log_softmax", lambda x: torch.log_softmax(x, -1))):
        CASES[f"{name} 8192 x 4096 {short}"] = unary(name, function)

    def norm(dtype=dtype):
        def make(ops):
            x, w = random(8192, 4096, dtype=dtype), random(4096, dtype=dtype)
            return (lambda: ops.rms_norm(x, w)), (lambda: F.rms_norm(x, (4096,), w, 1e-6))
        return make

    CASES[f"rms_norm 8192 x 4096 {short}"] = norm()


@case("add 8192 x 4096 f32")
def add(ops):
    a, b = random(8192, 4096), random(8192, 4096)
    return (lambda: ops.add(a, b)), (lambda: torch.add(a, b))


@case("whiten 256 x 2048 f32")
def whiten(ops):
    x = random(256, 2048)
    mask = (torch.rand(256, 2048) < 0.8).to(torch.uint8)

    def theirs():
        m = mask.float()
        count = m.sum()
        mean = (x * m).sum() / count
        variance = ((x - mean) ** 2 * m).sum() / (count - 1)
        return (x - mean) * torch.rsqrt(variance + 1e-8) * m
    return (lambda: ops.whiten(x, mask)), theirs


@case("policy_loss (PPO clip) 256 x 2048 f32")
def policy_loss(ops):
    new, old, advantages = random(256, 2048) - 3, random(256, 2048) - 3, random(256, 2048)
    old = new + 0.1 * old
    mask = (torch.rand(256, 2048) < 0.8).to(torch.uint8)

    def theirs():
        ratio = torch.exp(new - old)
        m = mask.float()
        loss = torch.maximum(-advantages * ratio, -advantages * ratio.clamp(0.8, 1.2))
        return (loss * m).sum() / m.sum()
    return (lambda: ops.policy_loss(logp=new, old_logp=old, advantages=advantages, mask=mask)), theirs


def median_times(functions, seconds=1.0, turn=10):
    """Milliseconds of each, in turns."""
    times = [[] for _ in functions]
    begin = time.perf_counter()
    while time.perf_counter() - begin < seconds * len(functions) or len(times[0]) < 2 * turn:
        for list_, function in zip(times, functions):
            time.sleep(0.02)  # the other's threads are asleep, and the own ones: the first call wakes them
            function()
            for _ in range(turn):
                start = time.perf_counter()
                function()
                list_.append(time.perf_counter() - start)
    return [1e3 * statistics.median(list_) for list_ in times]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("names", nargs="*", help="only cases whose name has one of these")
    wanted = parser.parse_args()
    os.environ["RLK_NUM_THREADS"] = str(wanted.threads)
    torch.set_num_threads(wanted.threads)
    import rlk.torch  # reads the environment
    print(f"torch {torch.__version__}, {wanted.threads} threads, {torch.backends.cpu.get_cpu_capability()}; "
          f"rlk.torch: {rlk.torch.served_by}")
    print(f"{'case':44} {'rlk ms':>9} {'torch ms':>9} {'torch/rlk':>9}")
    torch.manual_seed(1)
    failed = False
    for name, make in CASES.items():
        if wanted.names and not any(part in name for part in wanted.names):
            continue
        try:
            ours, theirs = median_times(make(rlk.torch))
        except Exception as error:  # one case that fails hides no other
            print(f"{name:44} {type(error).__name__}: {error}")
            failed = True
            continue
        print(f"{name:44} {ours:9.3f} {theirs:9.3f} {theirs / ours:9.2f}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
