#!/usr/bin/env python3
"""rlk's operators on a CUDA device beside PyTorch's, eager and compiled, and beside the rate of a copy, in one process.

    PYTHONPATH=build/release/python python3 bench/device_torch.py [--json FILE] [--compiled] [--small] [NAME...]

A case calls for rlk with the device's backend pinned: what would be computed elsewhere is a line of its own, not a time.
Times are the device's: a queue of calls over rotating inputs waits behind a kernel that sleeps until the host has
queued all of them, between two events; the median of several queues. "Of copy" is the time in which the device copies
as many bytes as the case must read and write, over the case's time. Needs torch with CUDA; --compiled Triton, too.
"""
import argparse
import json
import math
import statistics
import sys
import time

import rlk
import torch

from device_cases import cases

SLEEP_CYCLES = 40_000_000  # some 20 ms, in which the host queues the calls
SETS_BYTES = 512 << 20     # of rotating inputs: more than the caches hold
QUEUES = 7


def device_ms(function, sets):
    """The median time of a call, each with the next of the sets."""
    for inputs in sets[:2]:
        function(**inputs)
    torch.cuda.synchronize()
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    function(**sets[0])
    end.record()
    torch.cuda.synchronize()
    calls = max(3, min(100, int(30 / max(begin.elapsed_time(end), 1e-3))))
    times = []
    for _ in range(QUEUES):
        torch.cuda._sleep(SLEEP_CYCLES)
        begin.record()
        for i in range(calls):
            function(**sets[i % len(sets)])
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) / calls)
    return statistics.median(times)


def copy_rate():
    """Bytes read and written in a millisecond by a copy of 1 GiB."""
    a = torch.randn(1 << 28, device="cuda")
    b = torch.empty_like(a)
    return 2 * a.nbytes / device_ms(lambda: b.copy_(a), [{}])


def flat(out):
    return [t for t in (out if isinstance(out, (tuple, list)) else [out]) if t is not None]


def difference(ours, theirs):
    """The largest of the results' distances, over the size of torch's result."""
    worst = 0.0
    for a, b in zip(flat(ours), flat(theirs)):
        b = b.detach().reshape(a.shape).double()
        size = float(b.norm())
        worst = max(worst, float((a.detach().double() - b).norm()) / (size if size > 0 else 1.0))
    return worst


def measure(case, rate, compiled):
    sets = [case.inputs() for _ in range(max(1, min(16, math.ceil(SETS_BYTES / case.input_bytes()))))]
    row = {"case": case.name, "op": case.op}
    theirs = case.theirs(**sets[0])  # first: adamw_step of rlk is in place
    try:
        ours = case.ours(**sets[0])
    except Exception as error:
        return {**row, "refused": str(error).split("\n")[0]}
    row["difference"] = difference(ours, theirs)
    size = case.bytes(sets[0], flat(ours))
    del ours, theirs
    row["rlk_us"] = 1e3 * device_ms(case.ours, sets)
    row["torch_us"] = 1e3 * device_ms(case.theirs, sets)
    if compiled:
        torch._dynamo.reset()
        row["compiled_us"] = 1e3 * device_ms(torch.compile(case.theirs, dynamic=False), sets)
    row["of_copy"] = size / rate / (row["rlk_us"] / 1e3)
    return row


def wait_for_trials():
    """Operators are tried behind the calls, on the device that is to be timed."""
    while any(plugin.get("ops", {}).get("waiting") for plugin in rlk.list()["plugins"]):
        time.sleep(0.5)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--json", help="the rows, to this file")
    parser.add_argument("--compiled", action="store_true", help="torch.compile, too")
    parser.add_argument("--small", action="store_true", help="a hundredth of the rows: does every case run?")
    parser.add_argument("names", nargs="*", help="cases whose names contain one of these")
    options = parser.parse_args()
    wait_for_trials()
    rate = copy_rate()
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, a copy {rate / 1e6:.0f} GB/s")
    print(f"{'case':52} {'rlk us':>9} {'torch':>9} {'compiled':>9} {'of copy':>8} {'torch/rlk':>9} {'difference':>10}")
    rows = []
    for case in cases(100 if options.small else 1):
        if options.names and not any(name in case.name for name in options.names):
            continue
        try:
            row = measure(case, rate, options.compiled)
        except Exception as error:
            row = {"case": case.name, "op": case.op, "refused": f"{type(error).__name__}: {error}".split("\n")[0]}
        rows.append(row)
        if "refused" in row:
            print(f"{case.name:52} refused: {row['refused'][:100]}", flush=True)
            continue
        compiled = f"{row['compiled_us']:9.1f}" if "compiled_us" in row else f"{'-':>9}"
        print(f"{case.name:52} {row['rlk_us']:9.1f} {row['torch_us']:9.1f} {compiled} {row['of_copy']:8.2f} "
              f"{row['torch_us'] / row['rlk_us']:9.2f} {row['difference']:10.1e}", flush=True)
        torch.cuda.empty_cache()
    if options.json:
        with open(options.json, "w") as file:
            json.dump({"schema": 1, "machine": {"device": torch.cuda.get_device_name(), "torch": torch.__version__},
                       "limits": {"copy_gb_s": rate / 1e6}, "rows": rows}, file, indent=1)
    return 1 if any(row.get("difference", 0) > 0.05 for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
