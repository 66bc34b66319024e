#!/usr/bin/env python3
"""What rlk.integrations costs: each replaced function beside the original, on the CPU, in one process, on the same tensors.

    PYTHONPATH=build/release/python python3 bench/integrations.py [NAME...]

Prints a table of tokens (rows) per second, of the packages that are installed; original and rlk take turns, and the median of
their turns counts. "with gradient" is forward and backward. Functions whose original needs a device are not timed."""
import contextlib
import io
import statistics
import sys
import time

import numpy as np
import rlk.integrations
import torch

ROWS, VOCABULARY, HIDDEN, TURNS = 128, 32000, 1024, 5


def rows(dtype=torch.float32, gradient=True):
    return torch.randn(ROWS, VOCABULARY).to(dtype).requires_grad_(gradient), torch.randint(0, VOCABULARY, (ROWS,))


def backward(y, x):
    torch.autograd.grad(y.sum(), x)


def trl():
    import trl.trainer.utils as utils
    for dtype in (torch.float32, torch.bfloat16):
        x, ids = rows(dtype)
        yield f"selective_log_softmax, {dtype}, with gradient", ROWS, lambda x=x, ids=ids: backward(
            utils.selective_log_softmax(x, ids), x)
    hidden, weight = torch.randn(ROWS, HIDDEN).requires_grad_(), torch.randn(VOCABULARY, HIDDEN) / 32
    yield "_ChunkedLogProbFunction, torch.float32, with gradient of hidden", ROWS, lambda: backward(
        utils._ChunkedLogProbFunction.apply(hidden, weight, None, ids, 1.0, 256, None, 1.0, ("entropy",))[0], hidden)


def verl():
    import verl.trainer.ppo.core_algos as core
    import verl.utils.torch_functional as functional
    x, ids = rows(torch.bfloat16)
    yield "logprobs_from_logits, torch.bfloat16, with gradient", ROWS, lambda: backward(functional.logprobs_from_logits(x, ids), x)
    rewards, values, mask = torch.randn(64, 2048), torch.randn(64, 2048), torch.ones(64, 2048, dtype=torch.int64)
    yield "ADV_ESTIMATOR_REGISTRY[gae]", rewards.numel(), lambda: core.ADV_ESTIMATOR_REGISTRY["gae"](rewards, values, mask, 1.0, 0.95)
    index = np.repeat(np.arange(8), 8)
    yield "ADV_ESTIMATOR_REGISTRY[grpo]", rewards.numel(), lambda: core.ADV_ESTIMATOR_REGISTRY["grpo"](rewards, mask, index)


def slime():
    import slime.utils.ppo_utils as ppo
    x, ids = rows()
    yield "_calculate_log_probs_and_entropy_chunk, torch.float32, with gradient", ROWS, lambda: backward(
        sum(y.sum() for y in ppo.calculate_log_probs_and_entropy(x, ids, None, True)), x)
    rewards, values = torch.randn(64, 2048), torch.randn(64, 2048)
    yield "chunked_gae", rewards.numel(), lambda: ppo.chunked_gae(rewards, values, 1.0, 0.95)


def vllm():
    import vllm.v1.sample.sampler as sampler
    whole, _ = rows(gradient=False)
    for dtype in (torch.float32, torch.bfloat16):
        x = whole.to(dtype)
        yield f"Sampler.compute_logprobs, {dtype}", ROWS, lambda x=x: sampler.Sampler.compute_logprobs(x)
    yield "Sampler.greedy_sample, torch.float32", ROWS, lambda: sampler.Sampler.greedy_sample(whole)


CASES = {"trl": trl, "verl": verl, "slime": slime, "vllm": vllm}


def seconds(function):
    begin = time.perf_counter()
    function()
    return time.perf_counter() - begin


def main(names):
    unknown = set(names) - set(CASES)
    if unknown:
        sys.exit(f"{', '.join(sorted(unknown))}: no such integration; there are {', '.join(CASES)}")
    lines = []
    for name in names or CASES:
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                cases = list(CASES[name]())
        except ImportError as error:
            print(f"{name}: not timed, because it cannot be imported here ({error})", file=sys.stderr)
            continue
        for what, tokens, run in cases:
            times = {"original": [], "rlk": []}
            for turn in range(TURNS + 1):
                for who, found in times.items():
                    with rlk.integrations.enable(name) if who == "rlk" else contextlib.nullcontext():
                        run()  # threads of the other are asleep, and shapes are known
                        found.append(seconds(run))
            theirs, ours = (tokens / statistics.median(times[who][1:]) for who in ("original", "rlk"))
            lines.append(f"| {name} | `{what.split(',')[0]}`{what[len(what.split(',')[0]):]} | {theirs:,.0f} | {ours:,.0f} "
                         f"| {ours / theirs:.2f} |")
            print(lines[-1], flush=True)
    print(f"\n{torch.get_num_threads()} threads, torch {torch.__version__}; {ROWS} rows of {VOCABULARY}, hidden {HIDDEN}; "
          "above 1 rlk is faster")


if __name__ == "__main__":
    main(sys.argv[1:])
