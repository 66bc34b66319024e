"""How kernels are compiled, and the programs that judge them linked and run: what a build folder knows of it."""
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
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
CPU = ROOT / "core" / "cpu"
CONTRACT = ROOT / "plugin_api" / "include"
# Kernels for one instruction set instead of four: a fifth of the time. Plain code must not become another arithmetic.
SINGLE_TARGET = ["-DHWY_COMPILE_ONLY_STATIC", "-march=x86-64-v3", "-maes", "-mpclmul", "-ffp-contract=off"]
PRECOMPILED = "/cmake_pch.hxx"  # how the name of CMake's precompiled header ends
TARGETS = ("mutants_judge", "unit_cpu")  # the programs that judge

class Broken(Exception):
    """The tables or the build are at fault, not a kernel."""


class NoProgram(Broken):
    """The compiler refuses a mutant."""


def path_of(file):
    """Of a table's file: below core/cpu, or a formula of the contract, by the name that kernels include it by."""
    return (CONTRACT if file.startswith("rlk/formula/") else CPU) / file


def run(words, deadline=None, **options):
    """(exit code, standard output and error); the code is None after the deadline, negative after a signal.

    The deadline is of processor time, so that a busy machine ends nothing too early. What waits and does not compute
    has four times as long, and 20 s.
    """
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(words, stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, **options)
        if deadline:
            seconds = int(deadline + 1)
            # The second limit kills without a word: it must be the later one.
            resource.prlimit(process.pid, resource.RLIMIT_CPU, (seconds, seconds + 5))
        try:
            code = process.wait(deadline and 4 * deadline + 20)
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
        self.link_command(TARGETS[0])  # every mutant meets this program; judge() links the other one where it runs it

    def ninja(self, *words):
        done = subprocess.run(["ninja", "-C", self.folder, *words], capture_output=True, text=True)
        if done.returncode != 0:
            raise Broken(f"ninja {' '.join(words)}: {done.stdout}{done.stderr}")
        return done.stdout

    @functools.cache
    def link_command(self, target):
        last = self.ninja("-t", "commands", target).splitlines()[-1]
        found = re.fullmatch(r": && (.*) && :", last)
        if not found or not (self.folder / "tests" / target).exists():
            raise Broken(f"{self.folder}: {target} is not built; build {' and '.join(TARGETS)} first")
        return shlex.split(found[1])

    @functools.cached_property
    def includes(self):
        """For each source file the headers that it includes, as of its last compilation."""
        made, files = {}, None
        for line in self.ninja("-t", "deps").splitlines():
            if line.startswith("    "):
                files.append(os.path.normpath(self.folder / line.strip()))
            elif line:
                files = []
                made[os.path.normpath(self.folder / line.split(": #deps")[0])] = files
        known = {files[0]: set(files[1:]) for files in made.values() if files}
        for source, command in self.commands.items():  # g++ does not name headers that it took from a precompiled one
            for word in shlex.split(command):
                if word.endswith(PRECOMPILED):
                    known.setdefault(source, set()).update(made.get(word + ".gch", ()))
        return known

    def sources_of(self, file):
        """What must be compiled anew when the file changes."""
        path = str(path_of(file))
        if path in self.commands:
            return [path]
        return [source for source in self.commands if path in self.includes.get(source, ())]

    def command(self, source):
        """How `source` is compiled, without its name and that of the object."""
        words = shlex.split(self.commands[source])
        if os.path.basename(words[0]) == "ccache":
            del words[0]
        # Without precompiled headers: they would hide a mutant in a header, and one compiler's are not another's.
        for option in ("-o", "-c", *(word for word in words if word.endswith(PRECOMPILED))):
            at = words.index(option) - option.endswith(PRECOMPILED)
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

    def compile(self, source, overlay, all_targets, out, more=()):
        """`source`, with files below `overlay` in place of those below the root."""
        words = self.command(source)
        copy = overlay / pathlib.Path(source).relative_to(ROOT)
        source = copy if copy.exists() else pathlib.Path(source)
        flags = ["-w"]
        if "hwy/foreach_target.h" in source.read_text():
            flags += ["-O1"] + ([] if all_targets else self.flags)
        places = [f"-I{overlay}", f"-I{overlay / CONTRACT.relative_to(ROOT)}"]
        return run([words[0], *places, *words[1:], *flags, *more, "-o", out, "-c", source], cwd=self.folder)

    def link(self, target, objects, out):
        """The program with the objects first, so that what they define is not taken from the archives."""
        words = list(self.link_command(target))
        words[words.index("-o") + 1] = out
        first = next(i for i, word in enumerate(words) if word.endswith(".o"))
        return run([*words[:first], *objects, *words[first:]], cwd=self.folder)


def judge(program, stage, subject, deadline, **more):
    """(whether something was noticed, what, seconds), by programs as program(target) gives them; more environment"""
    if stage == "unit":
        words = [program("unit_cpu"), f"--gtest_filter={subject}", "--gtest_fail_fast", "--gtest_color=no"]
    else:
        words = [program("mutants_judge"), subject] + ([] if stage == "smoke" else [f"--{stage}"])
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("RLK_", "GTEST_"))}
    start = time.monotonic()
    code, output = run(words, deadline, env=environment | {"RLK_NUM_THREADS": "2"} | more)
    seconds = time.monotonic() - start
    if code == 0 and stage == "unit" and "[  PASSED  ] 0 tests" in output:
        raise Broken(f"no test of unit_cpu is called {subject}")
    if code not in (0, 1, None) and code > 0:
        raise Broken(f"{' '.join(map(str, words))}: exit code {code}: {output[-500:]}")
    if code in (None, -signal.SIGXCPU):
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
