#!/usr/bin/env python3
"""Peers of logp on one CUDA device: PyTorch eager and compiled, with the device's limits, in one process.

    python3 bench/peer_torch.py > peers.json

Writes the rows of the benchmark schema. Needs PyTorch with CUDA and Triton. Medians of Triton's do_bench; inputs are
random and larger than the cache for the big cases; the decode case rotates over several inputs.
"""
import json
import sys

import torch
import triton.testing

CASES = [("logp", 4096, 151936, torch.bfloat16), ("logp", 8192, 32000, torch.bfloat16),
         ("logp", 2048, 151936, torch.float32), ("logp", 64, 151936, torch.bfloat16)]


def milliseconds(function):
    return triton.testing.do_bench(function, warmup=50, rep=200, return_mode="median")


def logp(logits, ids):
    return torch.log_softmax(logits.float(), -1).gather(-1, ids[:, None])[:, 0]


def limits():
    a = torch.randn(1 << 30, device="cuda", dtype=torch.float32).to(torch.bfloat16)
    b = torch.empty_like(a)
    copy = 2 * a.numel() * a.element_size() / milliseconds(lambda: b.copy_(a)) / 1e6
    return {"copy_gb_s": round(copy, 1)}


def main():
    bandwidth = limits()
    rows = []
    compiled = torch.compile(logp, dynamic=False)
    for op, n, v, dtype in CASES:
        sets = 1 if n > 256 else 16
        inputs = [(torch.randn(n, v, device="cuda", dtype=torch.float32).to(dtype),
                   torch.randint(0, v, (n,), device="cuda")) for _ in range(sets)]
        size = n * v * inputs[0][0].element_size()
        for name, function in (("torch eager", logp), ("torch.compile", compiled)):
            counter = [0]

            def call():
                counter[0] = (counter[0] + 1) % sets
                return function(*inputs[counter[0]])

            call()
            ms = milliseconds(call)
            rows.append({"case": f"{op} fwd", "op": op, "shape": {"N": n, "V": v}, "dtype": str(dtype).split(".")[1],
                         "impl": name, "median_us": round(ms * 1e3, 2), "bytes": size,
                         "ratio_to_limit": round(size / bandwidth["copy_gb_s"] / 1e6 / ms, 3)})
        del inputs
    json.dump({"schema": 1, "machine": {"device": torch.cuda.get_device_name(), "torch": torch.__version__},
               "limits": bandwidth, "rows": rows}, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
