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


def run(words, entry):
    done = subprocess.run(words, cwd=entry["directory"], stderr=subprocess.PIPE, text=True)
    sys.stderr.write(done.stderr)
    return done.returncode == 0


def check(entry):
    words = shlex.split(entry["command"])
    words[words.index("-c")] = "-fsyntax-only"
    output = words.index("-o")
    del words[output:output + 2]
    return run(words, entry)


def output_of(entry):
    return shlex.split(entry["command"].split(" -o ", 1)[1])[0]


def main():
    folder, compiled = map(pathlib.Path, sys.argv[1:])
    entries = json.loads((folder / "compile_commands.json").read_text())
    headers = [entry for entry in entries if output_of(entry).endswith(".pch")]
    files = [entry for entry in entries if entry not in headers]
    rest = [entry for entry in files if not (compiled / output_of(entry)).exists()]
    headers = [entry for entry in headers if any(output_of(entry) in file["command"] for file in rest)]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        right = list(pool.map(lambda entry: run(shlex.split(entry["command"]), entry), headers))
        right += pool.map(check, rest)
    print(f"{len(files) - len(rest)} of {len(files)} were compiled; {len(rest)} checked, {right.count(False)} wrong")
    return 0 if rest and all(right) else 1


sys.exit(main())
