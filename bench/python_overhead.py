#!/usr/bin/env python3
"""What a call costs from Python, beside a native operator of torch and of numpy: tensors of 16 elements, so that the
arithmetic is nothing. In time of the processor; on a device until the work is enqueued. Needs numpy, torch and the package
rlk (the wheel, or PYTHONPATH=build/release/python).

    python3 bench/python_overhead.py [cuda [--compiled]]            on a device, 64 x 32000 too; --compiled needs Triton
    RLK_TORCH_LIBRARY=0 python3 bench/python_overhead.py [cuda]     rlk.torch without its library, through ctypes
"""
import sys
import time

import numpy as np
import rlk
import rlk.torch
import torch
from rlk import _runtime, errors

DEVICE = sys.argv[1] if len(sys.argv) > 1 else "cpu"
COMPILED = "--compiled" in sys.argv


def microseconds(function, calls=200, rounds=40):
    """The best of the rounds: slower rounds were disturbed by other processes."""
    for _ in range(10):
        function()
    best = float("inf")
    for _ in range(rounds):
        if DEVICE != "cpu":
            torch.cuda.synchronize()
        start = time.process_time()  # of all threads: a backward runs on torch's own
        for _ in range(calls):
            function()
        best = min(best, time.process_time() - start)
    return best / calls * 1e6


def on_the_host():
    x, y = np.ones((4, 4), np.float32), np.ones((4, 4), np.float32)
    add = rlk.ops.operators["add"]
    call = add.arrange((x, y), (1.0,), {})
    stream, library, error = add.stream_for(call, None), _runtime.library(), errors.fresh()
    return [("the C call alone, through ctypes", lambda: library.rlk_call(
                stream.handle, add.handle, call.params, call.inputs, 2, call.outputs, 1, None, error)),
            ("numpy.add", lambda: np.add(x, y)),
            ("rlk.ops.add, numpy", lambda: rlk.ops.add(x, y))]


def of_a_vocabulary():
    """Of logits as a decoder's are: on a device the kernels run meanwhile, and the host alone is counted."""
    logits = torch.randn(64, 32000, device=DEVICE, requires_grad=True)
    ids = torch.arange(64, device=DEVICE)
    of_torch = lambda: logits.log_softmax(-1).gather(1, ids[:, None]).sum()
    of_rlk = lambda: rlk.torch.logp(logits, ids).sum()
    ways = [("eager", lambda f: f), *([("compiled", torch.compile)] if COMPILED else [])]
    rows = []
    for way, made in ways:
        for name, function in (("torch log_softmax + gather", made(of_torch)), ("rlk.torch.logp", made(of_rlk))):
            rows += [(f"{name}, 64 x 32000 {way}", lambda f=function: f()),
                     (f"{name}, 64 x 32000 {way}, with backward", lambda f=function: torch.autograd.grad(f(), logits))]
    return rows


def with_backwards(leaf, other):
    """torch's own formula and rlk's operator in turn, each with its backward."""
    mask, weight = torch.ones_like(other, dtype=torch.bool), torch.ones(4, device=DEVICE, requires_grad=True)

    def clipped(logp):
        ratio = (logp - other).exp()
        return -(torch.minimum(ratio * other, ratio.clamp(0.8, 1.2) * other) * mask).sum() / mask.sum()

    pairs = {"add": (lambda: torch.add(leaf, other), lambda: rlk.torch.add(leaf, other)),
             "rms_norm": (lambda: torch.nn.functional.rms_norm(leaf, (4,), weight, 1e-6),
                          lambda: rlk.torch.rms_norm(leaf, weight)),
             "policy_loss": (lambda: clipped(leaf), lambda: rlk.torch.policy_loss(leaf, other, other, mask))}
    return [(f"{name}, {whose}, with backward", lambda f=f: f().sum().backward())
            for name, both in pairs.items() for whose, f in zip(("torch", "rlk.torch"), both)]


def main():
    torch.set_num_threads(1)
    a, b = torch.randn(4, 4, device=DEVICE), torch.randn(4, 4, device=DEVICE)
    leaf = a.clone().requires_grad_()
    ids = torch.arange(4, device=DEVICE)

    rows = on_the_host() if DEVICE == "cpu" else []
    rows += [("torch.add", lambda: torch.add(a, b)),
             ("rlk.ops.add, torch", lambda: rlk.ops.add(a, b)),
             ("rlk.torch.add", lambda: rlk.torch.add(a, b)),
             ("torch log_softmax + gather", lambda: a.log_softmax(-1).gather(1, ids[:, None])),
             ("rlk.torch.logp", lambda: rlk.torch.logp(a, ids)),
             ("torch.ops.rlk.logp, the dispatcher's entry", lambda: torch.ops.rlk.logp.default(a, ids)),
             ("torch log_softmax + gather, with backward",
              lambda: leaf.log_softmax(-1).gather(1, ids[:, None]).sum().backward()),
             ("rlk.torch.logp, with backward", lambda: rlk.torch.logp(leaf, ids).sum().backward()),
             *with_backwards(leaf, b)]
    if DEVICE != "cpu":
        names = "add,logp,logp_backward,rms_norm,rms_norm_backward,policy_loss,policy_loss_backward"
        rlk.require(f"{DEVICE}:{names}")  # not what is staged until they have their verdicts
        rows += of_a_vocabulary()
    print(f"on {DEVICE}; rlk.torch: {rlk.torch.served_by}")
    for name, function in rows:
        print(f"{name:60} {microseconds(function):8.1f} us")


if __name__ == "__main__":
    main()
