#!/usr/bin/env python3
"""rlk.torch.vocab_parallel_logp over the processes of torch.distributed: is it the unsharded operator's, and what does it cost
over the shard's own product? Started by torchrun, or by itself with --ranks.

    torchrun --nproc-per-node 2 bench/vocab_parallel.py --backend nccl
    python3 bench/vocab_parallel.py --ranks 4 --backend gloo --check      # no times
"""
import argparse
import itertools
import os
import pathlib
import sys
import tempfile
import time

import rlk
import rlk.torch
import torch
import torch.distributed as dist

FACTOR = 16


def ulp(x, dtype):
    info = torch.finfo(dtype)
    return x.abs().clamp(min=info.smallest_normal).log2().floor().exp2() * info.eps


def made(*shape, dtype, device, scale=1.0, seed=0):
    return (torch.randn(*shape, generator=torch.Generator().manual_seed(seed)) * scale).to(dtype).to(device)


def cut(vocabulary, ranks, equal):
    """Where the shards begin, and the end."""
    if equal:
        return [vocabulary // ranks * r for r in range(ranks + 1)]
    return [0] + [vocabulary * (r + 1) // ranks - (ranks - 1 - r) for r in range(ranks)]


def check(device):
    """The worst error against the unsharded operator in fp64, as a fraction of the bound, for every option."""
    rank, ranks, worst, cases = dist.get_rank(), dist.get_world_size(), 0.0, 0
    dtypes = [torch.float32, torch.bfloat16, torch.float16] + ([torch.float64] if device.type == "cpu" else [])
    for dtype, equal, bias, entropy, masked, n in itertools.product(dtypes, (True, False), (False, True), (False, True),
                                                                    (False, True), (9, 0)):
        v, d = 64, 40
        ids = (torch.arange(n, device=device) * 13 + 5) % v
        mask = (torch.arange(n, device=device) % 3 > 0) if masked else None
        words = {"temperature": 0.7, "softcap": 20.0 if bias else 0.0}
        places = cut(v, ranks, equal)
        begin, end = places[rank], places[rank + 1]
        named = {} if equal else {"vocab_start": begin, "global_vocab": v}
        h, w = made(n, d, dtype=dtype, device=device), made(v, d, dtype=dtype, device=device, scale=0.3, seed=1)
        b = made(v, dtype=dtype, device=device, seed=2) if bias else None
        g, e = (made(n, dtype=torch.float32, device=device, seed=s) for s in (3, 4))

        leaves = [h.clone().requires_grad_(), w[begin:end].clone().requires_grad_()]
        own = b[begin:end].clone().requires_grad_() if bias else None
        found = rlk.torch.vocab_parallel_logp(*leaves, ids, None, own, mask, entropy=entropy, lse=entropy, **words, **named)
        outputs = [found.logp, found.entropy] if entropy else [found]
        grads = torch.autograd.grad(outputs, [x for x in (*leaves, own) if x is not None],
                                    [x.to(outputs[0].dtype) for x in (g, e)[:len(outputs)]])

        wide = [x.cpu().double().requires_grad_() if x is not None else None for x in (h, w, b)]
        truth = rlk.torch.linear_logp(wide[0], wide[1], ids.cpu(), wide[2], None if mask is None else mask.cpu(),
                                      entropy=True, lse=True, **words)
        theirs = torch.autograd.grad([truth.logp, truth.entropy][:len(outputs)], [x for x in wide if x is not None],
                                     [x.cpu().double() for x in (g, e)[:len(outputs)]])
        theirs = [theirs[0], *(x[begin:end] for x in theirs[1:])]
        # Conditions: the terms behind a score, and those behind each gradient.
        x = wide[0] @ wide[1].T + (wide[2] if bias else 0)
        z = (20 * torch.tanh(x / 20) if bias else x) / 0.7
        size = 1 + (wide[0].abs() @ wide[1].abs().T + (wide[2].abs() if bias else 0)).amax(-1, keepdim=True) / 0.7 if n else z[:, :1]
        log_p = z.log_softmax(-1)
        dz = g.cpu().double().abs()[:, None] * (torch.nn.functional.one_hot(ids.cpu(), v) + log_p.exp())
        if entropy:
            dz = dz + e.cpu().double().abs()[:, None] * log_p.exp() * (log_p.abs() + truth.entropy[:, None])
        dz = dz * size / 0.7 * (1 if mask is None else mask.cpu()[:, None])
        unit = 2.0**-53 if dtype == torch.float64 else 2.0**-24
        rounded = torch.finfo(dtype).eps / 2 if dtype.itemsize == 2 else 0.0  # of the score gradients, as declared
        pieces = [(x, t, size[:, 0] * 4, 0.0) for x, t in zip(outputs, (truth.logp, truth.entropy))]
        shard = slice(begin, end)
        pieces += zip(grads, theirs, (dz @ wide[1].abs(), (dz.T @ wide[0].abs())[shard], dz.sum(0)[shard]), (rounded,) * 3)
        for x, t, condition, more in pieces:
            t = t.detach()
            bound = ulp(t, x.dtype) + (FACTOR * unit + more) * condition.detach()
            if x.numel():
                worst = max(worst, ((x.detach().cpu().double() - t).abs() / bound).max().item())
        cases += 1
    return worst, cases


def errors(device):
    """What is wrong raises in every process alike, so that none waits for another."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    h, w, ids = (x.to(device) for x in (torch.randn(3, 8), torch.randn(5 + rank, 8), torch.tensor([1, 2, 3])))
    cases = [(lambda: rlk.torch.vocab_parallel_logp(h, w[:5], ids, vocab_start=0), "together")]
    if device.type == "cpu":  # elsewhere the stream tells of it later
        cases.append((lambda: rlk.torch.vocab_parallel_logp(h, w[:5], ids + 5 * ranks - 3), f"the id {5 * ranks}"))
    if ranks > 1:
        cases.append((lambda: rlk.torch.vocab_parallel_logp(h, w, ids), "the processes have the entries 0 to 5"))
    for call, text in cases:
        try:
            call()
        except (rlk.InvalidArgument, rlk.DataError) as error:
            if text in str(error):
                continue
            raise
        raise AssertionError(f"nothing was raised, expected: {text}")


def milliseconds(function, device, rounds=20):
    """The median of the slowest process."""
    def wait():
        if device.type != "cpu":
            torch.cuda.synchronize(device)
    times = []
    for _ in range(rounds + 3):
        dist.barrier()
        wait()
        start = time.perf_counter()
        function()
        wait()
        times.append(time.perf_counter() - start)
    slowest = torch.tensor(sorted(times[3:])[rounds // 2], device=device)
    dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
    return slowest.item() * 1e3


def measure(device, n, vocabulary, d, dtype):
    """The line of the table: the shard's product by torch, the shard's operator, and the whole, forward and backward."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    v = vocabulary // ranks
    torch.manual_seed(rank)
    h = torch.randn(n, d, dtype=dtype, device=device).requires_grad_()
    w = (torch.randn(v, d, dtype=dtype, device=device) * 0.02).requires_grad_()
    ids = torch.arange(n, device=device) * 17 % (v * ranks)
    words = {"vocab_start": rank * v, "global_vocab": v * ranks}
    g = torch.ones(n, device=device)

    def product():
        x = h @ w.T
        torch.autograd.grad(x, (h, w), torch.ones_like(x))

    def backward(logp):
        torch.autograd.grad(logp, (h, w), g)

    return [milliseconds(f, device) for f in (
        product, lambda: backward(rlk.torch.linear_logp(h, w, ids, lse=True, **words).lse),
        lambda: backward(rlk.torch.vocab_parallel_logp(h, w, ids)))]


def one(options, store=None):
    torch.set_num_threads(1)
    rank = int(os.environ["RANK"])
    device = torch.device("cpu")
    if options.backend == "nccl":
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", rank)))
        torch.cuda.set_device(device)
    dist.init_process_group(options.backend, init_method=store, rank=rank, world_size=int(os.environ["WORLD_SIZE"]))
    ranks = dist.get_world_size()
    worst, cases = check(device)
    errors(device)
    every = [None] * ranks
    dist.all_gather_object(every, worst)
    if rank == 0:
        print(f"{ranks} processes, {options.backend}: {cases} cases, worst error {max(every):.3f} of the bound", flush=True)
    if not options.check:
        n, v, d = options.shape
        times = measure(device, n, v, d, getattr(torch, options.dtype))
        if rank == 0:
            print(f"N={n} V={v} D={d} {options.dtype}, forward and backward, ms: the shard's product by torch {times[0]:.3f}, "
                  f"linear_logp of the shard {times[1]:.3f}, vocab_parallel_logp {times[2]:.3f} "
                  f"(+{(times[2] / times[1] - 1) * 100:.1f} % over the shard's)", flush=True)
            print(rlk.counters(), flush=True)  # staged: the CPU did it for the device
    dist.barrier()
    dist.destroy_process_group()
    return 0 if max(every) <= 1 else 1


def entry(rank, options, folder):
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(options.ranks)}
    sys.exit(one(options, f"file://{folder}/store"))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", choices=["gloo", "nccl"], default="gloo")
    parser.add_argument("--ranks", type=int, help="start so many processes here (without torchrun)")
    parser.add_argument("--check", action="store_true", help="no times")
    parser.add_argument("--shape", type=int, nargs=3, metavar=("N", "V", "D"), default=[4096, 151936, 4096])
    parser.add_argument("--dtype", default="bfloat16", choices=["float32", "bfloat16", "float16"])
    options = parser.parse_args()
    if options.ranks:
        with tempfile.TemporaryDirectory() as folder:
            torch.multiprocessing.spawn(entry, (options, pathlib.Path(folder)), nprocs=options.ranks)
        return 0
    if "RANK" not in os.environ:
        parser.error("start it by torchrun, or say --ranks")
    return one(options)


if __name__ == "__main__":
    sys.exit(main())
