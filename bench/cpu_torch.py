#!/usr/bin/env python3
"""rlk and PyTorch on the CPU in one process, on the same tensors and with all threads, beside what the machine can do.

    cmake --preset release && cmake --build --preset release
    PYTHONPATH=build/release/python python3 bench/cpu_torch.py [--threads N] [--json FILE] [NAME...]

Prints a table: the median time of a call of each, torch's over rlk's (above 1: rlk is faster), and what part of each
time the machine would need at its limits ("of limit"; 1 is the limit).

The two take turns of at most ten calls after a pause, so that both see the same machine, and neither the threads of the
other, which wait for more work without sleeping (OpenMP's for milliseconds). Before, their results are compared, and a
case in which they differ fails: no two formulas are timed. PyTorch is called as its users call it: a fused function where
it has one, the trainers' formulas otherwise; rlk as torch's users call it, by rlk.torch. Its kernels are those of
librlk_torch; with RLK_TORCH_LIBRARY=0 they are Python's, some 40 us a call slower, and the first line says so.

Every call takes the next of several sets of the same inputs, which are twice the last-level caches together (the first
lines say how much that is): inputs come from memory, as a trainer's do. Outputs are where torch's allocator puts them,
and small ones in memory that was freed a moment ago: those may be in cache. What is freed stays in the process
(glibc's tunables, unless GLIBC_TUNABLES is set): else most of the time of what writes much is the system's, for new pages,
and of what writes 2 MiB in one process and not in the next.

The limits are measured by all threads in this process, before the cases and again after them (machine_limits.cpp): bytes
a second of reading memory and of copying it (what is read and what is written, together, past the caches), operations a
second of fp32 multiply-adds and of bf16 products in registers. A case's time at the limits is the longer of
  memory's: each input read once and each output written once. read / READ + written * (2 / COPY - 1 / READ): what only
  reads goes at READ, what writes as much as it reads at COPY. Forward and backward count as one pass;
  its operations': of matrix products in bf16 at the rate of bf16 products (at that of fp32 where the processor has none),
  of everything else at that of fp32, where a function such as exp counts as one.
A call's time has the way through torch's dispatcher in it, some microseconds: rows of below a hundred tell of that.

--json writes the rows in the benchmark schema, rlk's and torch's each; extra_bytes is null: nothing measures it here.
Exit code 1 when a case failed.
"""
import argparse
import ctypes
import gc
import json
import os
import pathlib
import platform
import statistics
import sys
import time

import torch

import cpu_torch_losses
import cpu_torch_operators
from cpu_torch_case import BF16, SHORT


class Limits:
    """Rates per second: read, copy, fma_f32, products_bf16 (0: the processor has none)."""

    def __init__(self, library, threads, size):
        functions = ctypes.CDLL(str(library))

        def measure(name, *arguments):
            function = getattr(functions, f"rlk_limit_{name}")
            function.argtypes, function.restype = [ctypes.c_int64] * (1 + len(arguments)), ctypes.c_double
            return function(threads, *arguments)
        self.read, self.copy = measure("read", size), measure("copy", size)
        self.fma_f32, self.products_bf16 = measure("fma_f32"), measure("products_bf16")

    def seconds(self, case, written):
        memory = case.bytes_read() / self.read + written * max(0.0, 2 / self.copy - 1 / self.read)
        by_unit = case.products and case.dtype == BF16 and self.products_bf16 > 0
        return max(memory, case.flops / (self.products_bf16 if by_unit else self.fma_f32))

    def json(self):
        return {"read_gb_s": self.read / 1e9, "copy_gb_s": self.copy / 1e9, "fma_f32_gflop_s": self.fma_f32 / 1e9,
                "products_bf16_gflop_s": self.products_bf16 / 1e9}

    def __str__(self):
        unit = f"products of bf16 {self.products_bf16 / 1e12:.2f} TFLOP/s" if self.products_bf16 else "no unit for bf16"
        return (f"read {self.read / 1e9:.1f} GB/s, copy {self.copy / 1e9:.1f} GB/s read and written, "
                f"multiply-add of fp32 {self.fma_f32 / 1e12:.2f} TFLOP/s, {unit}")


def last_level_caches():
    """Bytes of all last-level caches together, as Linux tells."""
    caches = {}
    for cpu in os.sched_getaffinity(0):
        levels = sorted(pathlib.Path(f"/sys/devices/system/cpu/cpu{cpu}/cache").glob("index*"))
        if levels:
            size = (levels[-1] / "size").read_text().strip()
            sharing = (levels[-1] / "shared_cpu_list").read_text()
            caches[sharing] = int(size.rstrip("KM")) << (20 if size[-1] == "M" else 10)
    return sum(caches.values()) or 32 << 20


def processor():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def times(functions, sets, seconds):
    """The times of the calls of each, in turns; each call with the next set of inputs."""
    lists = [[] for _ in functions]
    at = 0

    def call(function):
        nonlocal at
        at = (at + 1) % len(sets)
        start = time.perf_counter()
        function(sets[at])
        return time.perf_counter() - start
    turn = max(1, min(10, int(0.2 / max(call(function) for function in functions))))
    gc.collect()
    gc.disable()
    begin = time.perf_counter()
    while time.perf_counter() - begin < seconds * len(functions) or len(lists[0]) < 5:
        for list_, function in zip(lists, functions):
            time.sleep(0.02)  # the other's threads are asleep, and the own ones
            if turn > 1:
                call(function)  # wakes them, which is nothing to a call of a tenth of a second
            list_ += [call(function) for _ in range(turn)]
    gc.enable()
    return lists


def measure(name, make, ops, limits, wanted, rows):
    """Prints a case's line and adds its rows."""
    case = make()
    written = case.check(ops)
    at_limit = limits.seconds(case, written)
    results = times(case.functions(ops), case.sets(wanted.rotation), wanted.seconds)
    medians = [statistics.median(list_) for list_ in results]
    for impl, list_, median in zip(("rlk", "torch"), results, medians):
        rows.append({"case": name, "op": case.op, "shape": case.shape, "dtype": SHORT[case.dtype], "impl": impl,
                     "median_us": 1e6 * median, "min_us": 1e6 * min(list_), "bytes": case.bytes_read() + written,
                     "flops": int(case.flops), "extra_bytes": None, "ratio_to_limit": at_limit / median})
    ours, theirs = medians
    print(f"{name:48} {1e3 * ours:9.3f} {1e3 * theirs:9.3f} {theirs / ours:9.2f} {at_limit / ours:9.2f} "
          f"{at_limit / theirs:9.2f}", flush=True)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--seconds", type=float, default=1.0, help="at least so long a case and library")
    parser.add_argument("--small", action="store_true", help="a sixteenth of the rows: only to see that it runs")
    parser.add_argument("--json", type=pathlib.Path, help="also write the rows there")
    parser.add_argument("--limits", type=pathlib.Path, help="libbench_machine_limits.so; else the one of rlk's build")
    parser.add_argument("names", nargs="*", help="only cases whose name has one of these")
    return parser.parse_args()


KEEP_FREED_MEMORY = "glibc.malloc.mmap_threshold=1073741824:glibc.malloc.trim_threshold=4294967296"


def main():
    wanted = arguments()
    if "GLIBC_TUNABLES" not in os.environ:  # read when a process starts
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]],
                  os.environ | {"GLIBC_TUNABLES": KEEP_FREED_MEMORY})
    os.environ["RLK_NUM_THREADS"] = str(wanted.threads)
    torch.set_num_threads(wanted.threads)
    import rlk.torch  # reads the environment
    library = wanted.limits or pathlib.Path(rlk.__file__).parent / "prefix" / "lib" / "libbench_machine_limits.so"
    if not library.exists():
        sys.exit(f"{library}, which measures the limits, is missing: build with RLK_BUILD_BENCH, or say --limits FILE")
    caches = last_level_caches()
    wanted.rotation = min(2 * caches, 2 << 30)
    size = max(512 << 20, min(4 * caches, 2 << 30))
    limits = Limits(library, wanted.threads, size)
    machine = {"processor": processor(), "threads": wanted.threads, "torch": torch.__version__,
               "torch_cpu_capability": torch.backends.cpu.get_cpu_capability(), "rlk_torch": rlk.torch.served_by,
               "last_level_cache_bytes": caches, "inputs_rotate_over_bytes": wanted.rotation}
    print(f"{machine['processor']}, {wanted.threads} threads; torch {torch.__version__}, "
          f"{machine['torch_cpu_capability']}; rlk.torch: {rlk.torch.served_by}")
    print(f"last-level caches of {caches >> 20} MiB; inputs rotate over {wanted.rotation >> 20} MiB"
          + ("" if wanted.rotation > caches else ", WHICH IS LESS: they may be in cache"))
    print(f"limits: {limits}")
    print(f"{'':48} {'':9} {'':9} {'':9} {'rlk':>9} {'torch':>9}")
    print(f"{'case':48} {'rlk ms':>9} {'torch ms':>9} {'torch/rlk':>9} {'of limit':>9} {'of limit':>9}")
    torch.manual_seed(1)
    rows, failed = [], False
    for cases in (cpu_torch_operators.cases, cpu_torch_losses.cases):
        for name, make in cases(16 if wanted.small else 1):
            if wanted.names and not any(part in name for part in wanted.names):
                continue
            try:
                measure(name, make, rlk.torch, limits, wanted, rows)
            except Exception as error:  # one case that fails hides no other
                print(f"{name:48} {type(error).__name__}: {error}")
                failed = True
    afterwards = Limits(library, wanted.threads, size)
    print(f"limits afterwards: {afterwards}")
    if wanted.json:
        wanted.json.write_text(json.dumps({"schema": 1, "machine": machine, "limits": {
            **limits.json(), "afterwards": afterwards.json()}, "rows": rows}, indent=1) + "\n")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
