#!/usr/bin/env python3
"""clang_rest.py FOLDER COMPILED: clang's warnings, without code, for what is in FOLDER's compile_commands.json but was not
compiled in the build folder COMPILED, which clang built. Warnings are errors if FOLDER says so."""
import concurrent.futures
import json
import os
import pathlib
import shlex
import subprocess
import sys


def check(entry):
    words = shlex.split(entry["command"])
    words[words.index("-c")] = "-fsyntax-only"
    output = words.index("-o")
    del words[output:output + 2]
    done = subprocess.run(words, cwd=entry["directory"], stderr=subprocess.PIPE, text=True)
    sys.stderr.write(done.stderr)
    return done.returncode == 0


def main():
    folder, compiled = map(pathlib.Path, sys.argv[1:])
    entries = json.loads((folder / "compile_commands.json").read_text())
    object_of = lambda entry: shlex.split(entry["command"].split(" -o ", 1)[1])[0]
    rest = [entry for entry in entries if not (compiled / object_of(entry)).exists()]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        right = list(pool.map(check, rest))
    print(f"{len(entries) - len(rest)} of {len(entries)} were compiled; {len(rest)} checked, {right.count(False)} wrong")
    return 0 if rest and all(right) else 1


sys.exit(main())
