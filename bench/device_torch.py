#!/usr/bin/env python3
"""rlk's operators on a CUDA device beside PyTorch's, eager and compiled, Liger-Kernel's and the device's limits, in one process.

    PYTHONPATH=build/release/python python3 bench/device_torch.py [--compiled] [--liger] [--graph] [--json FILE] [NAME...]
    PYTHONPATH=build/release/python python3 bench/device_torch.py --check     # small, compared, on the CPU; nothing timed

A case calls for rlk with the device's backend pinned: what would be computed elsewhere is a line of its own, not a time.
Times are the device's: a queue of calls over rotating inputs waits behind a kernel that sleeps until the host has queued
all of them, between two events; the median of several queues. The implementations take turns, a queue each. Before, rlk's and Liger's results are compared with torch's.

"Of limit" is the time that a case needs at the device's limits, over rlk's: the longer of that in which a copy moves the bytes
that it must read and write, and that in which products of 8192 rows and columns (fp32: 4096), measured before the cases, do
its operations. Lines of cases that are bound by products say their TFLOP/s, and by which formula. Lines of what is fused
around a product have the time of the bare one, by torch's cuBLASLt into memory that is there.

--compiled: torch.compile of PyTorch's form, where there is one to gain by it. --liger: Liger-Kernel, where it can be imported.
--graph: the cases of 64 rows once more inside a CUDA graph of twenty calls, which is replayed; their inputs are in the
caches. What fails says so and holds up nothing else. --json writes the rows in the benchmark schema, an implementation
each, after every case; with --resume a run goes on where another ended. Needs torch with CUDA; --compiled and --liger Triton, too. Exit code 1 when a result of rlk differs.
"""
import argparse
import json
import math
import os
import sys
import time

import torch

import rlk
import device_case
import device_liger
import device_timing
from device_case import BF16, F32, SHORT, normal
from device_cases import cases, small

SETS_BYTES = 512 << 20     # of rotating inputs: more than the caches hold
MOST_SETS = 16
TOLERATED = 0.05           # of a result's norm


def flat(out):
    return [t for t in (out if isinstance(out, (tuple, list)) else [out]) if t is not None]


def difference(ours, theirs, count=None):
    """The largest of the results' distances, over the size of torch's result. None: not to be compared."""
    worst = 0.0
    for a, b in list(zip(flat(ours), flat(theirs)))[:count]:
        b = b.detach().reshape(a.shape).double()
        size = float(b.norm())
        distance = float((a.detach().double() - b).norm()) / (size if size > 0 else 1.0)
        worst = distance if math.isnan(distance) else max(worst, distance)
    return worst if count != 0 else None


def one_line(error):
    return f"{type(error).__name__}: {error}".split("\n")[0]


class Limits:
    """A copy of 1 GiB and products, by torch."""

    def __init__(self):
        def ms(function):
            return device_timing.in_turns({"": lambda i: function()})[0][""][0]
        a = normal(1 << 28)
        b = torch.empty_like(a)
        self.copy = 2 * a.nbytes / ms(lambda: b.copy_(a))  # bytes a millisecond
        self.products = {}  # operations a millisecond
        for dtype, size in ((BF16, 8192), (F32, 4096)):
            a, b, out = (normal(size, size, dtype=dtype) for _ in range(3))
            self.products[dtype] = 2 * size ** 3 / ms(lambda a=a, b=b, out=out: torch.mm(a, b, out=out))
        torch.cuda.empty_cache()

    def ms(self, case, size):
        return max(size / self.copy, case.flops / self.products[case.dtype])

    def bound_by_products(self, case, size):
        return case.flops / self.products[case.dtype] > size / self.copy

    def json(self):
        return {"copy_gb_s": self.copy / 1e6, **{f"products_{SHORT[d]}_tflop_s": r / 1e9 for d, r in self.products.items()}}

    def __str__(self):
        rates = ", ".join(f"{SHORT[dtype]} {rate / 1e9:.0f} TFLOP/s" for dtype, rate in self.products.items())
        return f"a copy {self.copy / 1e6:.0f} GB/s, products {rates}"


class Measured:
    """What is known of a case: (median, least) milliseconds by implementation, and what failed."""

    def __init__(self, case, graph):
        self.case, self.graph = case, graph
        self.name = case.name + (" graph" if graph else "")
        self.ms, self.differences, self.notes, self.failed = {}, {}, {}, {}
        self.bytes = self.limit = self.refused = None

    def compare(self, implementation, make, inputs, theirs):
        """The function that make() gives, or None: a failure is kept as text."""
        try:
            function = make()
            if theirs is not None:
                self.differences[implementation] = difference(function(**inputs), theirs, self.case.compared)
            return function
        except Exception as error:
            self.failed[implementation] = one_line(error)
            return None

    def time(self, functions, sets):
        if self.graph:
            return self.time_graphs(functions, sets)
        self.keep(*device_timing.in_turns({name: device_timing.over(f, sets) for name, f in functions.items()}))

    def time_graphs(self, functions, sets):
        replays, last = {}, sets[(device_timing.CALLS_OF_A_GRAPH - 1) % len(sets)]
        for name, function in functions.items():
            def capture(name=name, function=function):
                replays[name], out = device_timing.captured(function, sets)
                replays[name](0)
                torch.cuda.synchronize()
                self.differences[name] = difference(out, self.case.theirs(**last), self.case.compared)
            self.compare(name, capture, None, None)
        ms, failed = device_timing.in_turns(replays, device_timing.REPLAYS)
        calls = device_timing.CALLS_OF_A_GRAPH
        self.keep({name: (median / calls, least / calls) for name, (median, least) in ms.items()}, failed)

    def keep(self, ms, failed):
        self.ms.update(ms)
        self.failed.update({name: one_line(error) for name, error in failed.items()})

    def wrong(self):
        return [name for name, found in self.differences.items() if found is not None and not found <= TOLERATED]

    def median_us(self, implementation):
        return 1e3 * self.ms[implementation][0]

    def line(self, bound_by_products, seconds):
        times = [f"{self.median_us(of):9.1f}" if of in self.ms else f"{'-':>9}" for of in ("rlk", "torch", "compiled", "liger")]
        ratios = [f"{'-':>8}", f"{'-':>9}"]
        if "rlk" in self.ms:
            ratios[0] = f"{self.limit / self.ms['rlk'][0]:8.2f}"
            if "torch" in self.ms:
                ratios[1] = f"{self.ms['torch'][0] / self.ms['rlk'][0]:9.2f}"
        found = self.differences.get("rlk")
        text = " ".join([f"{self.name:60}", *times, *ratios, f"{found:10.1e}" if found is not None else f"{'-':>10}",
                         f"{seconds:6.1f}"])
        more = [f"{self.case.flops / ms / 1e9:.0f} TFLOP/s of {of}" for of, (ms, *_) in self.ms.items() if bound_by_products]
        if more:
            more[-1] += f", by {self.case.counted_as}"
        if "product" in self.ms:
            more.append(f"{self.case.note} {self.median_us('product'):.1f}")
        elif self.case.note:
            more.append(self.case.note)
        more += [f"{of}: {note}" for of, note in self.notes.items() if of in self.ms]
        more += [f"{of} differs from torch by {self.differences[of]:.1e}" for of in self.wrong()]
        more += [f"{of} failed: {why[:150]}" for of, why in self.failed.items()]
        return text + ("\n    " + "; ".join(more) if more else "")

    def rows(self):
        if self.refused is not None:
            return [{"case": self.name, "op": self.case.op, "impl": "rlk", "refused": self.refused}]
        return [{"case": self.name, "op": self.case.op, "shape": {"sizes": list(self.case.sizes)},
                 "dtype": SHORT[self.case.dtype], "impl": of, "median_us": 1e3 * median, "min_us": 1e3 * least,
                 "bytes": self.bytes, "flops": int(self.case.flops), "extra_bytes": None,
                 "ratio_to_limit": self.limit / median, "difference": self.differences.get(of), "note": self.notes.get(of)}
                for of, (median, least, *_) in self.ms.items()] + [
               {"case": self.name, "op": self.case.op, "impl": of, "failed": why} for of, why in self.failed.items()]


def sets_of(case):
    first = case.make()
    size = sum(t.nbytes for t in first.values())
    return [first] + [case.make() for _ in range(min(MOST_SETS, math.ceil(SETS_BYTES / size)) - 1)]


def measure(case, limits, options, graph=False):
    found, sets = Measured(case, graph), sets_of(case)
    theirs = case.theirs(**sets[0])  # first: adamw_step of rlk is in place
    try:
        ours = case.ours(**sets[0])
    except Exception as error:
        found.refused = one_line(error)
        return found
    found.differences["rlk"] = difference(ours, theirs, case.compared)
    found.bytes = case.bytes(sets[0], flat(ours))
    found.limit = limits.ms(case, found.bytes)
    del ours, theirs
    functions = {"rlk": case.ours, "torch": case.theirs}
    if options.compiled and case.compiles:
        torch._dynamo.reset()
        functions["compiled"] = case.compiled()
    if case.product and not graph:
        functions["product"] = case.product
    peer = device_liger.peer(case) if options.liger and not graph else None
    if peer is not None:
        fresh = case.make()
        function = found.compare("liger", lambda: peer.function, fresh, peer.of_torch(case.theirs(**fresh)))
        found.notes.update({"liger": peer.note} if peer.note else {})
        if function is not None and not peer.overwrites:
            functions["liger"] = function
    found.time(functions, sets)
    if peer is not None and peer.overwrites and "liger" not in found.failed:
        found.time({"liger": peer.function}, sets)
    return found


def wait_for_trials():
    """Operators are tried behind the calls, on the device that is to be timed."""
    begin = time.perf_counter()
    while any(plugin.get("ops", {}).get("waiting") for plugin in rlk.list()["plugins"]):
        time.sleep(0.5)
    return time.perf_counter() - begin


def check(names):
    """Every case, small, on the CPU: do rlk and torch say the same?"""
    device_case.use("cpu")
    wrong = 0
    for case in cases(100):
        if names and not any(name in case.name for name in names):
            continue
        try:
            inputs = case.make()
            theirs = case.theirs(**inputs)
            found = difference(case.ours(**inputs), theirs, case.compared)
            text = "not compared" if found is None else f"{found:.1e}"
            wrong += found is not None and not found <= TOLERATED
            if case.compiles not in (True, False):
                text += f", its other form {difference(case.compiles(**inputs), theirs):.1e}"
        except Exception as error:
            text, wrong = one_line(error)[:160], wrong + 1
        print(f"{case.name:60} {text}", flush=True)
    print(f"{wrong} cases differ or fail")
    return int(wrong > 0)


class Report:
    """The file of --json. One that is resumed has the limits of each run, and the number of its last row."""

    def __init__(self, options, machine, limits):
        self.path, self.rows, self.runs = options.json, [], []
        if options.resume and self.path and os.path.exists(self.path):
            with open(self.path, encoding="utf-8") as file:
                document = json.load(file)
            self.rows = document["rows"]
            self.runs = document.get("runs") or [{"limits": document["limits"], "last_row": len(self.rows)}]
        self.machine, self.limits = machine, limits.json()
        self.cases = {row["case"] for row in self.rows}

    def add(self, rows):
        self.rows += rows
        if not self.path:
            return
        document = {"schema": 1, "machine": self.machine, "limits": self.limits, "rows": self.rows}
        if self.runs:
            document["runs"] = [*self.runs, {"limits": self.limits, "last_row": len(self.rows)}]
        with open(self.path + ".new", "w", encoding="utf-8") as file:
            json.dump(document, file, indent=1)
        os.replace(self.path + ".new", self.path)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--json", help="the rows, to this file")
    parser.add_argument("--resume", action="store_true", help="keep the rows of that file, and leave out their cases")
    parser.add_argument("--compiled", action="store_true", help="torch.compile, too")
    parser.add_argument("--liger", action="store_true", help="Liger-Kernel, too")
    parser.add_argument("--graph", action="store_true", help="the cases of 64 rows once more inside a CUDA graph")
    parser.add_argument("--small", action="store_true", help="a hundredth of the rows: does every case run?")
    parser.add_argument("--check", action="store_true", help="small, on the CPU, compared and not timed")
    parser.add_argument("names", nargs="*", help="cases whose names contain one of these")
    return parser.parse_args()


def wanted(options, known):
    """(case, whether in a graph) that are named, and not known."""
    every = [(cases(100 if options.small else 1), False)] + ([(small(), True)] if options.graph else [])
    for some, graph in every:
        for case in some:
            if options.names and not any(name in case.name for name in options.names):
                continue
            if Measured(case, graph).name not in known:
                yield case, graph


def main():
    options = arguments()
    if options.check:
        return check(options.names)
    waited, begin = wait_for_trials(), time.perf_counter()
    machine = {"device": torch.cuda.get_device_name(), "torch": torch.__version__}
    if options.liger:
        try:
            machine["liger"] = device_liger.version()
        except Exception as error:
            print(f"no Liger-Kernel: {one_line(error)}")
            options.liger = False
    if options.compiled:
        from torch._functorch import config
        config.donated_buffer = False  # a backward alone keeps its graph
    limits = Limits()
    print(f"{machine}: {limits}; waited {waited:.0f} s for trials of operators")
    print(f"{'case':60} {'rlk us':>9} {'torch':>9} {'compiled':>9} {'liger':>9} {'of limit':>8} {'torch/rlk':>9} {'difference':>10} {'took s':>6}")
    report, wrong = Report(options, machine, limits), False
    for case, graph in wanted(options, report.cases):
        since = time.perf_counter()
        try:
            found = measure(case, limits, options, graph)
        except Exception as error:
            found = Measured(case, graph)
            found.refused = one_line(error)
        report.add(found.rows())
        wrong = wrong or "rlk" in found.wrong()
        print(f"{found.name:60} refused: {found.refused[:150]}" if found.refused is not None else
              found.line(limits.bound_by_products(case, found.bytes), time.perf_counter() - since), flush=True)
        torch.cuda.empty_cache()
    print(f"{len(report.rows)} rows, {time.perf_counter() - begin:.0f} s")
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main())
