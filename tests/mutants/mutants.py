#!/usr/bin/env python3
"""Kernels made wrong on purpose: does anything notice?

Every table NAME.toml beside this file is about one kernel: its files below core/cpu, the operators and tests that judge
it, and the mutants that only a person thinks of, each a replacement of text. With --rules the mutants are made by rule
instead, at every place of the files' syntax trees (syntax.py). Each is compiled on its own, in a scratch folder, with the commands of an existing build folder, linked before
the archives of the judging programs, and judged by the smoke test of its operators, by the properties that every kernel
has, by full conformance, then by the kernel's unit tests, until one notices. README.md has more.
"""
import argparse
import collections
import concurrent.futures
import fnmatch
import itertools
import json
import os
import pathlib
import queue
import resource
import sys
import tempfile
import time
import tomllib
from typing import NamedTuple

import schemata
import syntax
from programs import CPU, ROOT, Broken, Build, NoProgram, judge, once, path_of

HERE = pathlib.Path(__file__).resolve().parent
OPERATORS = ROOT / "plugin_api" / "ops"
STAGES = ("smoke", "properties", "full", "unit")
STAGES_BY_RULE = ("smoke", "properties", "others", "unit", "full", "alone")  # the quick ones first
MOST_OTHERS = 12  # operators, the quickest
NOT_REACHED, NOT_TRIED = "no judge reaches it", "not tried"
# A mutant may take this many times what the same program without the fault takes, and then it hangs.
PATIENCE, LEAST_DEADLINE = 20, 20.0
HONEST_DEADLINE = 1800.0
# What a mutant that never stops taking memory may take of it, where there is as much for each job.
MOST_MEMORY, LEAST_MEMORY = 12 << 30, 4 << 30


class Mutant(NamedTuple):
    table: str
    what: str  # the fault
    file: str  # below core/cpu, or rlk/formula/NAME.hpp
    find: str
    replace: str
    ops: tuple  # operators, one of whose cases must notice
    unit: str  # GoogleTest filter
    all_targets: bool = False  # of Highway; else one: not where files must agree about the width of vectors
    edit: syntax.Edit | None = None  # of a mutant by rule, in place of `find` and `replace`

    def name(self):
        return f"{self.table}: {self.what}"

    def mutated(self):
        text = path_of(self.file).read_text()
        if self.edit:
            source = text.encode()
            return (source[:self.edit.start] + self.edit.text.encode() + source[self.edit.end:]).decode()
        if text.count(self.find) != 1:
            raise Broken(f"{self.name()}: in {path_of(self.file).relative_to(ROOT)} there is {text.count(self.find)} times, "
                         f"expected once: {self.find!r}")
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


def by_rule(kernels, build, jobs, path):
    """Every mutant that the rules make of the kernels' files; the edits are read from `path`, or written there."""
    files = {}  # with everything that judges it: the operators and tests of all its tables
    for kernel in kernels:
        before = files.setdefault(kernel.file, kernel)
        if before is not kernel:
            files[kernel.file] = before._replace(
                table=f"{before.table}, {kernel.table}", ops=tuple(dict.fromkeys(before.ops + kernel.ops)),
                unit=f"{before.unit}:{kernel.unit}", all_targets=before.all_targets or kernel.all_targets)
    def edits_of(file):
        source = build.sources_of(file)[0]
        return syntax.edits_of(CPU / file, build.options_of(source), source, build.folder)
    edits = {}
    if path and path.exists():
        edits = {file: [syntax.Edit(*row[:4], row[4] and tuple(row[4])) for row in rows]
                 for file, rows in json.loads(path.read_text()).items()}
    missing = [file for file in files if file not in edits]
    if missing and build is None:
        raise Broken(f"--build is missing: clang wants the compiler's options for {missing[0]}, whose edits are unknown")
    with concurrent.futures.ThreadPoolExecutor(min(jobs, 4)) as pool:  # a syntax tree takes a gigabyte
        edits |= zip(missing, pool.map(edits_of, missing))
    if path and missing:
        path.write_text(json.dumps(edits))
    return [kernel._replace(what=place(CPU / file, edit), edit=edit)
            for file, kernel in files.items() for edit in edits[file]]


def note_refused(path, mutants, program):
    """Edits that the compiler refuses as choices are none the next time."""
    edits = json.loads(path.read_text())
    for mutant in mutants:
        if program.numbers[mutant.name()] in program.refused and mutant.edit.scope:
            rows = edits[mutant.file]
            rows[next(i for i, row in enumerate(rows) if row[:4] == list(mutant.edit[:4]))][4] = None
    path.write_text(json.dumps(edits))


def place(path, edit):
    """FILE:LINE:COLUMN: RULE: OLD -> NEW"""
    source = path.read_bytes()
    old = " ".join(source[edit.start:edit.end].decode().split())
    line = source.count(b"\n", 0, edit.start) + 1
    column = edit.start - source.rfind(b"\n", 0, edit.start)
    return f"{path.name}:{line}:{column}: {edit.rule}: {old[:40]} -> {edit.text[:40]}"


def evenly(mutants, count):
    """About `count` of each file of each table."""
    chosen = []
    for table in dict.fromkeys((mutant.table, mutant.file if mutant.edit else "") for mutant in mutants):
        rows = [mutant for mutant in mutants if table == (mutant.table, mutant.file if mutant.edit else "")]
        count_here = min(count, len(rows))
        chosen += [rows[i * len(rows) // count_here] for i in range(count_here)]
    return chosen


class Version:
    """The judging programs with one file changed."""

    def __init__(self, build, folder, file, text, all_targets):
        self.build, self.folder = build, folder
        copy = folder / "source" / path_of(file).relative_to(ROOT)
        copy.parent.mkdir(parents=True)
        copy.write_text(text)
        self.objects = []
        self.program = once(self.linked)  # the honest version is asked by several mutants at once
        sources = build.sources_of(file)
        if not sources:
            raise Broken(f"{file}: nothing in {build.folder} is compiled from it")
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
        return judge(self.program, stage, subject, deadline)


class Trial:
    """Tries mutants with the programs of one build folder."""

    def __init__(self, build, scratch):
        self.build, self.scratch, self.count = build, scratch, 0
        self.honest_version = once(self.make_honest_version)
        self.deadline = once(self.find_deadline)

    def make_honest_version(self, file, all_targets):
        folder = self.scratch / f"honest-{all_targets}-{file.replace('/', '-')}"
        return Version(self.build, folder, file, path_of(file).read_text(), all_targets)

    def find_deadline(self, file, all_targets, stage, subject):
        """The honest file, built like a mutant, must pass: only then does a failure speak of the fault."""
        noticed, text, seconds = self.honest_version(file, all_targets).judge(stage, subject, HONEST_DEADLINE)
        if noticed:
            raise Broken(f"{file} fails without any fault ({stage}): {text}")
        return max(LEAST_DEADLINE, PATIENCE * seconds)

    def __call__(self, mutant, _last=True):
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


class TrialByRule:
    """Tries mutants by rule with the program that has them all; those that are no choice in it as the others."""

    def __init__(self, program, alone, stages):
        self.program, self.alone, self.stages = program, alone, stages
        self.reached, self.others = set(), []
        if "others" in stages:
            self.others = sorted(path.stem for path in OPERATORS.glob("*.toml"))
            program.prepare(("smoke", op) for op in self.others)
            self.others.sort(key=lambda op: program.cost([op]))

    def __call__(self, mutant, last=False):
        """In two rounds, so that what takes long is tried when everything else is known."""
        if self.program.numbers[mutant.name()] in self.program.refused:
            return self.alone(mutant) if last and "alone" in self.stages else Verdict("", NOT_TRIED)
        try:
            for stage, subject in self.judges(mutant, last):
                program = "smoke" if stage == "others" else stage
                if self.program.reaches(mutant, program, subject):
                    self.reached.add(mutant.name())
                    noticed, text = self.program.judge(mutant, program, subject)
                    if noticed:
                        return Verdict(stage, text)
        except Broken as error:
            return error
        return Verdict("", "" if mutant.name() in self.reached else NOT_REACHED)

    def judges(self, mutant, last):
        for stage in self.stages:
            if (stage == "full") != last or stage == "alone":
                continue
            if stage == "others":
                reach = (op for op in self.others if op not in mutant.ops and self.program.reaches(mutant, "smoke", op))
                yield from ((stage, op) for op in itertools.islice(reach, MOST_OTHERS))
            else:
                yield from ((stage, subject) for subject in ([mutant.unit] if stage == "unit" else mutant.ops))


def in_order(mutants, trial, jobs, results):
    """The mutants with their verdicts, as they come; what `results` has is not tried again."""
    rounds, known = 2 if isinstance(trial, TrialByRule) else 1, {}
    if results and results.exists():
        known = {row[0]: (row[1], Verdict(*row[2:])) for row in map(json.loads, results.read_text().splitlines())}
    with (concurrent.futures.ThreadPoolExecutor(jobs) as pool, open(results or os.devnull, "a", buffering=1) as file):
        waiting, finished = {}, queue.SimpleQueue()

        def submit(mutant, done):
            future = pool.submit(trial, mutant, done + 1 == rounds)
            waiting[future] = mutant, done + 1
            future.add_done_callback(finished.put)
        for mutant in mutants:
            done, verdict = known.get(mutant.name(), (0, Verdict("", "")))
            if verdict.stage or done == rounds:
                yield mutant, verdict
            else:
                if done and not verdict.text:
                    trial.reached.add(mutant.name())
                submit(mutant, done)
        try:
            while waiting:
                future = finished.get()
                mutant, done = waiting.pop(future)
                verdict = future.result()
                if isinstance(verdict, Verdict):
                    file.write(json.dumps([mutant.name(), done, *verdict]) + "\n")
                    if not verdict.stage and done < rounds:
                        submit(mutant, done)
                        continue
                yield mutant, verdict
        finally:
            pool.shutdown(cancel_futures=True)


def print_table(verdicts, width):
    """Rows as they come; how many of each kind, and of each stage"""
    counts = collections.Counter({"caught": 0, "survived": 0, "broken": 0, "no program": 0})
    for mutant, verdict in verdicts:
        if isinstance(verdict, Broken):
            counts["broken"] += 1
            print(f"{mutant.name():70} BROKEN    {str(verdict)[:1000]}", flush=True)
        elif verdict.stage == "compiler":
            counts["no program"] += 1
        elif verdict.stage:
            counts["caught"] += 1
            counts[verdict.stage] += 1
            print(f"{mutant.name():70} {verdict.stage:9} {verdict.text[:width]}", flush=True)
        else:
            counts["survived"] += 1
            print(f"{mutant.name():70} SURVIVED  {mutant.file} {verdict.text}", flush=True)
    return counts


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", type=pathlib.Path, help="a configured folder with mutants_judge and unit_cpu built")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="mutants tried at once")
    parser.add_argument("--only", action="append", metavar="GLOB", help="of tables, or of 'TABLE: FAULT'; repeatable")
    parser.add_argument("--sample", type=int, metavar="K", help="about K mutants of every table, chosen evenly")
    parser.add_argument("--rules", action="store_true", help="mutants by rule, not those of the tables")
    parser.add_argument("--edits", type=pathlib.Path, metavar="FILE", help="of the rules: read from there, or written")
    parser.add_argument("--results", type=pathlib.Path, metavar="FILE", help="verdicts; what it has is not tried again")
    parser.add_argument("--keep", type=pathlib.Path, metavar="FOLDER",
                        help="of the rules: only make the programs with all choices, and leave them there")
    parser.add_argument("--programs", type=pathlib.Path, metavar="FOLDER",
                        help="of the rules: those that --keep left, maybe on another machine; needs no --build")
    parser.add_argument("--stages", default=",".join(STAGES_BY_RULE), help="of --rules, by default %(default)s")
    parser.add_argument("--patience", type=float, default=schemata.PATIENCE, metavar="N",
                        help="of the rules: what takes N times as long as without a fault hangs, by default %(default)s")
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
        tables = [glob.split(":")[0] for glob in options.only or ["*"]]
        kernels = [k for k in kernels if any(fnmatch.fnmatchcase(k.table, glob) for glob in tables)]
        mutants = by_rule(kernels, build, options.jobs, options.edits)
    if options.only:
        mutants = [m for m in mutants if any(fnmatch.fnmatchcase(text, glob) for glob in options.only
                                             for text in (*m.table.split(", "), m.name()))]
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
    stages = options.stages.split(",")
    kept = options.rules and options.programs
    if build is None and not (kept and "alone" not in stages):
        raise Broken("--build is missing: the folder of a build, for example build/release")
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # crashes are expected
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // max(1, options.jobs)
    resource.setrlimit(resource.RLIMIT_AS, (max(LEAST_MEMORY, min(MOST_MEMORY, memory)),) * 2)
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="rlk-mutants-") as scratch:
        trial = Trial(build, pathlib.Path(scratch))
        if options.rules:
            choices = pathlib.Path(scratch) / "choices"
            if kept:
                choices.mkdir()
                program = schemata.kept(options.programs, mutants, choices, options.jobs)
            else:
                program = schemata.Compiled(build, choices, mutants, options.jobs)
                if options.edits:
                    note_refused(options.edits, mutants, program)
                if options.keep:
                    program.keep(options.keep)
            alone = sum(program.numbers[mutant.name()] in program.refused for mutant in mutants)
            print(f"{len(mutants) - alone} choices in one program, {alone} on their own, "
                  f"after {time.monotonic() - start:.0f} s", flush=True)
            if options.keep:
                return 0
            program.patience = options.patience
            trial = TrialByRule(program, trial, stages)
            program.prepare(dict.fromkeys(("smoke", op) for mutant in mutants for op in mutant.ops))
            mutants.sort(key=lambda mutant: program.cost(mutant.ops))  # most verdicts soon
            # All judges at once, the slowest first: else one mutant asks while those after it wait.
            program.prepare(dict.fromkeys(judge for mutant in reversed(mutants) for judge in trial.judges(mutant, False)
                                          if judge[0] != "others"))
        counts = print_table(in_order(mutants, trial, max(1, options.jobs), options.results), options.width)
    print(f"\n{len(mutants)} tried, " + ", ".join(f"{count} {what}" for what, count in counts.items()) +
          f", {time.monotonic() - start:.0f} s")
    return 0 if counts["caught"] + counts["no program"] == len(mutants) else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (Broken, syntax.Unreadable) as problem:
        sys.exit(f"mutants.py: {problem}")
