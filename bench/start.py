#!/usr/bin/env python3
"""How long a start takes on this machine, with an empty cache and a full one: `rlk-plugins list`, the first verified call
of a process, all operators of a backend verified behind, and several processes at once.

    bench/start.py cuda [--op logp] [--ranks 8] [--json FILE] [--no-background]

Each row is a process of its own; `cold` ones have a cache folder of their own. Times are wall-clock seconds."""
import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

FIRST_CALL = """
import time
begin = time.monotonic()
import rlk
backend, op = {backend!r}, {op!r}
rlk.runtime()
created = time.monotonic()
rlk.require(backend + ":" + op)
verified = time.monotonic()
waiting = next(p["ops"]["waiting"] for p in rlk.list()["plugins"] if p["backend"] == backend)
print(created - begin, verified - begin, waiting)
"""
EVERYTHING = """
import time
begin = time.monotonic()
import rlk
rlk.runtime()
while True:
    plugin = next(p for p in rlk.list()["plugins"] if p["backend"] == {backend!r})
    if plugin["ops"]["waiting"] == 0:
        break
    time.sleep(0.1)
print(time.monotonic() - begin, plugin["ops"]["verified"], plugin["ops"]["partial"], plugin["ops"]["unsupported"])
"""


def seconds_of(command, environment):
    begin = time.monotonic()
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
    return time.monotonic() - begin


def numbers(program, environment):
    run = subprocess.run([sys.executable, "-c", program], env=environment, check=True, stdout=subprocess.PIPE, text=True)
    return [float(word) for word in run.stdout.split()]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("backend")
    parser.add_argument("--op", default="logp")
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--json")
    parser.add_argument("--no-background", action="store_true", help="do not wait until every operator was tried")
    arguments = parser.parse_args()
    rows = {}
    folder = tempfile.mkdtemp()

    def environment(name, **more):
        path = os.path.join(folder, name)
        os.makedirs(path, mode=0o700, exist_ok=True)
        return {**os.environ, "RLK_CACHE_DIR": path, **more}

    def row(name, value):
        rows[name] = value
        print(f"{name:<58} {value:8.3f}", flush=True)

    plugins = shutil.which("rlk-plugins") or sys.exit("rlk-plugins is not on the PATH")
    first = FIRST_CALL.format(backend=arguments.backend, op=arguments.op)
    row("list, cold", seconds_of([plugins, "list"], environment("list")))
    row("list, warm", min(seconds_of([plugins, "list"], environment("list")) for _ in range(5)))
    created, verified, waiting = numbers(first, environment("first"))
    row("runtime of a new process, cold", created)
    row(f"verified {arguments.op} of it", verified)
    row("  operators that wait then", waiting)
    required = {"RLK_REQUIRE": f"{arguments.backend}:{arguments.op}"}
    row(f"the same with RLK_REQUIRE={required['RLK_REQUIRE']}", numbers(first, environment("required", **required))[1])
    row("runtime of a new process, warm", numbers(first, environment("first"))[0])
    ranks = [subprocess.Popen([sys.executable, "-c", first], env=environment("ranks"), stdout=subprocess.PIPE, text=True)
             for _ in range(arguments.ranks)]
    times = [float(rank.communicate()[0].split()[1]) for rank in ranks]
    row(f"verified {arguments.op} of {arguments.ranks} processes at once, the last", max(times))
    if not arguments.no_background:
        seconds, verified, partial, unsupported = numbers(EVERYTHING.format(backend=arguments.backend), environment("all"))
        row("every operator tried behind", seconds)
        row("  verified", verified)
        row("  partial or unsupported", partial + unsupported)
    shutil.rmtree(folder)
    if arguments.json:
        with open(arguments.json, "w") as out:
            json.dump(rows, out, indent=1)


if __name__ == "__main__":
    main()
