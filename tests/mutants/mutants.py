#!/usr/bin/env python3
"""Kernels made wrong on purpose: does anything notice?

Every table NAME.toml beside this file is about one kernel: its files below core/cpu, the operators and tests that judge
it, and the mutants that only a person thinks of, each a replacement of text. With --rules the mutants are made by rule
instead, at every place of the files' syntax trees (syntax.py). Each is compiled on its own, in a scratch folder, with the commands of an existing build folder, linked before
the archives of the judging programs, and judged by the smoke test of its operators, by the properties that every kernel
has, by full conformance, then by the kernel's unit tests, until one notices. README.md has more.
"""
import argparse
import concurrent.futures
import fnmatch
import functools
import json
import os
import pathlib
import platform
import re
import resource
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
from typing import NamedTuple

import syntax

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
CPU = ROOT / "core" / "cpu"
STAGES = ("smoke", "properties", "full", "unit")
# A mutant may take this many times what the same program without the fault takes, and then it hangs.
PATIENCE, LEAST_DEADLINE = 20, 20.0
HONEST_DEADLINE = 1800.0
# What a mutant that never stops taking memory may take of it.
MOST_MEMORY = 12 << 30
# Kernels for one instruction set instead of four: a fifth of the time. Plain code must not become another arithmetic.
SINGLE_TARGET = ["-DHWY_COMPILE_ONLY_STATIC", "-march=x86-64-v3", "-maes", "-mpclmul", "-ffp-contract=off"]


class Broken(Exception):
    """The tables or the build are at fault, not a kernel."""


class NoProgram(Broken):
    """The compiler refuses a mutant."""


class Mutant(NamedTuple):
    table: str
    what: str  # the fault
    file: str  # below core/cpu
    find: str
    replace: str
    ops: tuple  # operators, one of whose cases must notice
    unit: str  # GoogleTest filter
    all_targets: bool = False  # of Highway; else one: not where files must agree about the width of vectors
    edit: syntax.Edit | None = None  # of a mutant by rule, in place of `find` and `replace`

    def name(self):
        return f"{self.table}: {self.what}"

    def mutated(self):
        text = (CPU / self.file).read_text()
        if self.edit:
            source = text.encode()
            return (source[:self.edit.start] + self.edit.text.encode() + source[self.edit.end:]).decode()
        if text.count(self.find) != 1:
            raise Broken(f"{self.name()}: in core/cpu/{self.file} there is {text.count(self.find)} times, expected "
                         f"once: {self.find!r}")
        if self.find == self.replace:
            raise Broken(f"{self.name()}: it replaces a text by itself")
        return text.replace(self.find, self.replace)


class Verdict(NamedTuple):
    stage: str  # that noticed; "" when none did; "compiler" for a mutant by rule that is no program
    text: str


def read_tables(folder):
    """The kernels, each a mutant without a fault, and the mutants by hand."""
    kernels, mutants = [], []
    for path in sorted(folder.glob("*.toml")):
        table = {"table": path.stem, "what": "", "find": "", "replace": ""} | tomllib.loads(path.read_text())
        rows, files = table.pop("mutant", []), table.pop("files")
        try:
            table = Mutant(**(table | {"file": files[0], "ops": tuple(table.get("ops", ()))}))
            kernels += [table._replace(file=file) for file in files]
            here = [table._replace(**(row | ({"ops": tuple(row["ops"])} if "ops" in row else {}))) for row in rows]
        except (TypeError, ValueError) as error:
            raise Broken(f"{path}: {error}") from None
        if not table.ops:
            raise Broken(f"{path}: no operator is named in `ops`")
        mutants += here
    names = [mutant.name() for mutant in mutants]
    for name in names:
        if names.count(name) > 1:
            raise Broken(f"{name}: there are two of that name")
    return kernels, mutants


def by_rule(kernel, build):
    """Every mutant that the rules make of the kernel's file."""
    path = CPU / kernel.file
    source = build.sources_of(kernel.file)[0]
    edits = syntax.edits_of(path, build.options_of(source), source, build.folder)
    lines, mutants = path.read_bytes(), []
    for edit in edits:
        old = " ".join(lines[edit.start:edit.end].decode().split())
        line = lines.count(b"\n", 0, edit.start) + 1
        column = edit.start - lines.rfind(b"\n", 0, edit.start)
        what = f"{os.path.basename(kernel.file)}:{line}:{column}: {edit.rule}: {old[:40]} -> {edit.text[:40]}"
        mutants.append(kernel._replace(what=what, edit=edit))
    return mutants


def evenly(mutants, count):
    """About `count` of each file of each table."""
    chosen = []
    for table in dict.fromkeys((mutant.table, mutant.file if mutant.edit else "") for mutant in mutants):
        rows = [mutant for mutant in mutants if table == (mutant.table, mutant.file if mutant.edit else "")]
        count_here = min(count, len(rows))
        chosen += [rows[i * len(rows) // count_here] for i in range(count_here)]
    return chosen


def run(words, deadline=None, **options):
    """(exit code, standard output and error); the code is None after the deadline, negative after a signal."""
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(words, stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, **options)
        try:
            code = process.wait(deadline)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            code = None
        output.seek(0)
        return code, output.read().decode(errors="replace")


def once(function):
    """Computes each answer once, also when several threads ask; the others wait."""
    locks, guard = {}, threading.Lock()
    cached = functools.cache(function)

    @functools.wraps(function)
    def ask(*key):
        with guard:
            lock = locks.setdefault(key, threading.Lock())
        with lock:
            return cached(*key)
    return ask


class Build:
    """What a build folder knows: how files are compiled and programs are linked."""

    def __init__(self, folder):
        self.folder = folder.resolve()
        try:
            rows = json.loads((self.folder / "compile_commands.json").read_text())
        except OSError as error:
            raise Broken(f"{error}; expected a folder that `cmake --preset release` configured") from None
        self.commands = {row["file"]: row["command"] for row in rows if row["file"].startswith(str(CPU) + "/")}
        self.flags = []
        if platform.machine() == "x86_64" and "avx2" in pathlib.Path("/proc/cpuinfo").read_text().split():
            self.flags = SINGLE_TARGET
        self.links = {name: self.link_command(name) for name in ("mutants_judge", "unit_cpu")}

    def ninja(self, *words):
        done = subprocess.run(["ninja", "-C", self.folder, *words], capture_output=True, text=True)
        if done.returncode != 0:
            raise Broken(f"ninja {' '.join(words)}: {done.stdout}{done.stderr}")
        return done.stdout

    def link_command(self, target):
        last = self.ninja("-t", "commands", target).splitlines()[-1]
        found = re.fullmatch(r": && (.*) && :", last)
        if not found or not (self.folder / "tests" / target).exists():
            raise Broken(f"{self.folder}: {target} is not built; build mutants_judge and unit_cpu first")
        return shlex.split(found[1])

    @functools.cached_property
    def includes(self):
        """For each source file the headers that it includes, as of its last compilation."""
        sources, files = {}, None
        for line in self.ninja("-t", "deps").splitlines():
            if line.startswith("    "):
                files.append(os.path.normpath(self.folder / line.strip()))
            elif line:
                files = []
                sources[line] = files
        return {files[0]: set(files[1:]) for files in sources.values() if files}

    def sources_of(self, file):
        """What must be compiled anew when the file changes."""
        path = str(CPU / file)
        if path in self.commands:
            return [path]
        return [source for source in self.commands if path in self.includes.get(source, ())]

    def command(self, source):
        """How `source` is compiled, without its name and that of the object."""
        words = shlex.split(self.commands[source])
        if os.path.basename(words[0]) == "ccache":
            del words[0]
        for option in ("-o", "-c"):
            at = words.index(option)
            del words[at:at + 2]
        return words

    def options_of(self, source):
        """For clang to read the file once, whatever the number of instruction sets."""
        words = self.command(source)[1:]
        for option, count in (("-MD", 1), ("-MT", 2), ("-MF", 2)):  # what make is told of headers
            if option in words:
                at = words.index(option)
                del words[at:at + count]
        return words + self.flags

    def compile(self, source, overlay, all_targets, out):
        """`source`, with files below `overlay` in place of those below the root."""
        words = self.command(source)
        copy = overlay / pathlib.Path(source).relative_to(ROOT)
        source = copy if copy.exists() else pathlib.Path(source)
        flags = ["-w"]
        if "hwy/foreach_target.h" in source.read_text():
            flags += ["-O1"] + ([] if all_targets else self.flags)
        return run([words[0], f"-I{overlay}", *words[1:], *flags, "-o", out, "-c", source], cwd=self.folder)

    def link(self, target, objects, out):
        """The program with the objects first, so that what they define is not taken from the archives."""
        words = list(self.links[target])
        words[words.index("-o") + 1] = out
        first = next(i for i, word in enumerate(words) if word.endswith(".o"))
        return run([*words[:first], *objects, *words[first:]], cwd=self.folder)


class Version:
    """The judging programs with one file changed."""

    def __init__(self, build, folder, file, text, all_targets):
        self.build, self.folder = build, folder
        copy = folder / "source" / "core" / "cpu" / file
        copy.parent.mkdir(parents=True)
        copy.write_text(text)
        self.objects = []
        self.program = once(self.linked)  # the honest version is asked by several mutants at once
        sources = build.sources_of(file)
        if not sources:
            raise Broken(f"core/cpu/{file}: nothing in {build.folder} is compiled from it")
        for source in sources:
            self.objects.append(folder / f"{len(self.objects)}.o")
            code, output = build.compile(source, folder / "source", all_targets, self.objects[-1])
            if code != 0:
                raise NoProgram(f"it does not compile: {output[:2000]}")

    def linked(self, target):
        program = self.folder / target
        code, output = self.build.link(target, self.objects, program)
        if code != 0:
            raise Broken(f"it does not link: {output[:2000]}")
        return program

    def judge(self, stage, subject, deadline):
        """(whether something was noticed, what, seconds)"""
        if stage == "unit":
            words = [self.program("unit_cpu"), f"--gtest_filter={subject}", "--gtest_fail_fast", "--gtest_color=no"]
        else:
            words = [self.program("mutants_judge"), subject] + ([] if stage == "smoke" else [f"--{stage}"])
        start = time.monotonic()
        environment = {key: value for key, value in os.environ.items() if not key.startswith(("RLK_", "GTEST_"))}
        code, output = run(words, deadline, env=environment | {"RLK_NUM_THREADS": "2"})
        seconds = time.monotonic() - start
        if code == 0 and stage == "unit" and "[  PASSED  ] 0 tests" in output:
            raise Broken(f"no test of unit_cpu is called {subject}")
        if code not in (0, 1, None) and code > 0:
            raise Broken(f"{' '.join(map(str, words))}: exit code {code}: {output[-500:]}")
        if code is None:
            return True, f"{subject}: no end after {deadline:.0f} s", seconds
        if code < 0:
            return True, f"{subject}: killed by {signal.Signals(-code).name}", seconds
        return code == 1, summary(stage, output) if code == 1 else "", seconds


def summary(stage, output):
    """The first thing that failed, in one line."""
    if stage == "unit":
        failure = re.search(r"Failure\n(.*?)\n\[  FAILED  \] (\S+)", output, re.DOTALL)
        output = f"{failure[2]}: {failure[1]}" if failure else output[-300:]
    return " ".join(output.split())


class Trial:
    """Tries mutants with the programs of one build folder."""

    def __init__(self, build, scratch):
        self.build, self.scratch, self.count = build, scratch, 0
        self.honest_version = once(self.make_honest_version)
        self.deadline = once(self.find_deadline)

    def make_honest_version(self, file, all_targets):
        folder = self.scratch / f"honest-{all_targets}-{file.replace('/', '-')}"
        return Version(self.build, folder, file, (CPU / file).read_text(), all_targets)

    def find_deadline(self, file, all_targets, stage, subject):
        """The honest file, built like a mutant, must pass: only then does a failure speak of the fault."""
        noticed, text, seconds = self.honest_version(file, all_targets).judge(stage, subject, HONEST_DEADLINE)
        if noticed:
            raise Broken(f"core/cpu/{file} fails without any fault ({stage}): {text}")
        return max(LEAST_DEADLINE, PATIENCE * seconds)

    def __call__(self, mutant):
        try:
            with tempfile.TemporaryDirectory(dir=self.scratch) as folder:
                version = Version(self.build, pathlib.Path(folder), mutant.file, mutant.mutated(), mutant.all_targets)
                for stage in STAGES:
                    for subject in [mutant.unit] if stage == "unit" else mutant.ops:
                        deadline = self.deadline(mutant.file, mutant.all_targets, stage, subject)
                        noticed, text, _ = version.judge(stage, subject, deadline)
                        if noticed:
                            return Verdict(stage, text)
            return Verdict("", "")
        except NoProgram as error:
            return Verdict("compiler", "") if mutant.edit else error
        except Broken as error:
            return error


def print_table(mutants, verdicts, width):
    """Rows as they come; (caught, survived, broken)"""
    counts = {"caught": 0, "survived": 0, "broken": 0, "no program": 0}
    for mutant, verdict in zip(mutants, verdicts):
        if isinstance(verdict, Broken):
            counts["broken"] += 1
            print(f"{mutant.name():70} BROKEN    {str(verdict)[:1000]}", flush=True)
        elif verdict.stage == "compiler":
            counts["no program"] += 1
        elif verdict.stage:
            counts["caught"] += 1
            print(f"{mutant.name():70} {verdict.stage:9} {verdict.text[:width]}", flush=True)
        else:
            counts["survived"] += 1
            print(f"{mutant.name():70} SURVIVED  core/cpu/{mutant.file}", flush=True)
    return counts


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", type=pathlib.Path, help="a configured folder with mutants_judge and unit_cpu built")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="mutants tried at once")
    parser.add_argument("--only", action="append", metavar="GLOB", help="of tables, or of 'TABLE: FAULT'; repeatable")
    parser.add_argument("--sample", type=int, metavar="K", help="about K mutants of every table, chosen evenly")
    parser.add_argument("--rules", action="store_true", help="mutants by rule, not those of the tables")
    parser.add_argument("--tables", type=pathlib.Path, default=HERE, help="the folder with the tables")
    parser.add_argument("--width", type=int, default=160, help="of what was noticed, in the printed table")
    parser.add_argument("--list", action="store_true", help="print the mutants and check that each fits its file once")
    parser.add_argument("--check", action="store_true", help="only that check")
    return parser.parse_args()


def main():
    options = arguments()
    kernels, mutants = read_tables(options.tables)
    build = Build(options.build) if options.build else None
    if options.rules:
        if options.build is None:
            raise Broken("--rules needs --build, for the compiler's options")
        tables = [glob.split(":")[0] for glob in options.only or ["*"]]
        kernels = [k for k in kernels if any(fnmatch.fnmatchcase(k.table, glob) for glob in tables)]
        mutants = [mutant for kernel in kernels for mutant in by_rule(kernel, build)]
    if options.only:
        mutants = [m for m in mutants
                   if any(fnmatch.fnmatchcase(text, glob) for glob in options.only for text in (m.table, m.name()))]
    if options.sample:
        mutants = evenly(mutants, options.sample)
    if not mutants:
        raise Broken("there is no such mutant")
    if options.list or options.check:
        wrong = [f"{k.table}: core/cpu/{k.file}: no such file" for k in kernels if not (CPU / k.file).exists()]
        for mutant in mutants:
            if options.list:
                print(f"{mutant.name():70} {mutant.file}, {' '.join(mutant.ops)}")
            try:
                mutant.mutated()
            except (Broken, OSError) as error:
                wrong.append(str(error))
        if wrong:
            raise Broken("\n".join(wrong))
        print(f"{len(mutants)} mutants of {len({m.table for m in mutants})} kernels fit")
        return 0
    if options.build is None:
        raise Broken("--build is missing: the folder of a build, for example build/release")
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # crashes are expected
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    start = time.monotonic()
    with (tempfile.TemporaryDirectory(prefix="rlk-mutants-") as scratch,
          concurrent.futures.ThreadPoolExecutor(max(1, options.jobs)) as pool):
        trial = Trial(build, pathlib.Path(scratch))
        counts = print_table(mutants, pool.map(trial, mutants), options.width)
    print(f"\n{len(mutants)} tried, {counts['caught']} caught, {counts['survived']} survived, "
          f"{counts['broken']} broken" + (f", {counts['no program']} no program" if options.rules else "") +
          f", {time.monotonic() - start:.0f} s")
    return 0 if counts["caught"] + counts["no program"] == len(mutants) else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (Broken, syntax.Unreadable) as problem:
        sys.exit(f"mutants.py: {problem}")
