#!/usr/bin/env python3
"""How close do PyTorch's attention kernels come, under the two error bounds of rlk's `attention`?

    python3 bench/attention_bounds.py            # prints a table; --json writes the benchmark schema

Each row is a kernel, a dtype and a shape: the largest error as a fraction of the bound, and the share of the elements
beyond it, under
  accurate   1 ulp of the output + factor * 2^-24 * cond: every intermediate in fp32
  tolerance  the same + 2^-(m+1) * sum p|v|: the softmax weights rounded once to the tensors' dtype (m mantissa bits)
where cond is the condition that the golden reference gives with each element (core/golden/attention.cpp) and factor the
declaration's (plugin_api/ops/attention.toml). The reference is fp64 on the device, fed the rounded inputs. Needs
PyTorch with CUDA.
"""
import argparse
import json
import math
import sys

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

FACTOR = 16.0
BACKENDS = {"flash": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION,
            "mem_efficient": SDPBackend.EFFICIENT_ATTENTION}
MANTISSA = {torch.bfloat16: 7, torch.float16: 10}
SMALLEST_EXPONENT = {torch.bfloat16: -126, torch.float16: -14}
# batch, heads, queries, keys, head size, causal
SHAPES = [(2, 4, 512, 512, 128, False), (2, 4, 512, 512, 128, True), (1, 2, 256, 8192, 128, False),
          (1, 8, 1024, 1024, 64, True)]


def reference(q, k, v, causal):
    """out, sum p|v| and golden's condition of one head, in fp64, a few queries at a time."""
    q, k, v = q.double(), k.double(), v.double()
    scale = 1 / math.sqrt(q.shape[-1])
    parts = []
    for first in range(0, q.shape[0], 32):
        rows = q[first:first + 32]
        scores = scale * rows @ k.T
        magnitude = scale * rows.abs() @ k.abs().T  # a score is off by an eps of this
        if causal:
            seen = torch.arange(k.shape[0], device=q.device) <= torch.arange(
                first, first + len(rows), device=q.device)[:, None] + k.shape[0] - q.shape[0]
            scores = scores.masked_fill(~seen, -math.inf)
        largest = scores.max(-1, keepdim=True).values
        p = torch.softmax(scores, -1)
        out = p @ v
        spread = p @ v.abs()
        argument = p * (1 + magnitude + largest.abs())
        cond = spread + torch.einsum("ij,ijd->id", argument, (v - out[:, None]).abs())
        parts.append((out, spread, cond))
    return [torch.cat(part) for part in zip(*parts)]


def judge(got, want, spread, cond, dtype):
    mantissa = MANTISSA[dtype]
    exponent = torch.floor(torch.log2(want.abs().clamp_min(2.0 ** SMALLEST_EXPONENT[dtype])))
    ulp = torch.exp2(exponent - mantissa)
    accurate = ulp + FACTOR * 2.0 ** -24 * cond
    tolerance = accurate + 2.0 ** -(mantissa + 1) * spread
    error = (got.double() - want).abs()
    return [{"worst": float((error / bound).max()), "beyond": float((error > bound).double().mean())}
            for bound in (accurate, tolerance)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    as_json = parser.parse_args().json
    torch.manual_seed(1)
    rows = []
    for dtype in MANTISSA:
        for b, h, queries, keys, d, causal in SHAPES:
            q = torch.randn(b, h, queries, d, device="cuda").to(dtype)
            k, v = (torch.randn(b, h, keys, d, device="cuda").to(dtype) for _ in range(2))
            heads = [reference(q[i, j], k[i, j], v[i, j], causal) for i in range(b) for j in range(h)]
            want, spread, cond = (torch.stack(part).reshape(q.shape) for part in zip(*heads))
            for name, backend in BACKENDS.items():
                try:
                    with sdpa_kernel(backend):
                        got = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
                except RuntimeError as error:
                    print(f"{name}: not available here: {error}", file=sys.stderr)
                    continue
                accurate, tolerance = judge(got, want, spread, cond, dtype)
                rows.append({"case": "attention bounds", "op": "attention", "impl": f"torch {name}",
                             "dtype": str(dtype).split(".")[1], "causal": causal,
                             "shape": {"B": b, "Hq": h, "Sq": queries, "Sk": keys, "D": d},
                             "accurate": accurate, "tolerance": tolerance})
    if as_json:
        json.dump({"schema": 1, "machine": {"device": torch.cuda.get_device_name(), "torch": torch.__version__},
                   "limits": {}, "rows": rows}, sys.stdout, indent=1)
        print()
        return
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}")
    print(f"{'kernel':20} {'dtype':9} {'shape':28} {'accurate: worst, beyond':>24} {'tolerance: worst, beyond':>25}")
    for row in rows:
        s = row["shape"]
        shape = f"{s['B']}x{s['Hq']}x{s['Sq']}x{s['Sk']}x{s['D']}{' causal' if row['causal'] else ''}"
        cells = [f"{row[bound]['worst']:10.2f} {100 * row[bound]['beyond']:9.3f} %" for bound in ("accurate", "tolerance")]
        print(f"{row['impl']:20} {row['dtype']:9} {shape:28} {cells[0]:>24} {cells[1]:>25}")


if __name__ == "__main__":
    main()
