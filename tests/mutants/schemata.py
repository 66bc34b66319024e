"""All mutants by rule of many files in one program: every edit is a choice at run time (mutant schemata).

    a + b        becomes  (rlk_is(17) ? (a - b) : (a + b))
    if (a)                if ((rlk_is(18) || (!rlk_is(19) && (a))))
    a = b;                { if (!rlk_is(20)) { a = b; } }

The environment names the one mutant that a process is. Where edits lie inside each other the original alone keeps the
inner choices. Every mutated form has lines of its own, so that an error of the compiler says which choice it refuses:
those are dropped, and tried on their own, as are constants, which are no choice at run time.

RLK_MUTANT=-1 is the program without a fault; it notes in the file RLK_REACHED which choices were met. A mutant at a
place that a judge does not reach cannot be noticed by it, and is not run.

The programs can be kept, to be run again on any machine: that takes neither compiler nor build folder.
"""
import concurrent.futures
import json
import mmap
import os
import pathlib
import re
import shutil
import sys

from programs import CPU, TARGETS, Broken, judge, once, run

# A constant that is initialised elsewhere may be kept in a register and read but once.
CHOICE = """#pragma once
extern "C" const int rlk_mutant;
extern "C" bool rlk_reach(int) __attribute__((cold));
inline __attribute__((always_inline)) bool rlk_is(int n) {
  return rlk_mutant == n || (rlk_mutant < 0 && rlk_reach(n));
}
"""
CHOOSE = """#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
extern "C" {
int rlk_mutant = 0;
static volatile unsigned char* reached = nullptr;
bool rlk_reach(int n) {
  if (reached != nullptr && reached[n] == 0) reached[n] = 1;
  return false;
}
__attribute__((constructor(101))) static void choose() {
  const char* number = getenv("RLK_MUTANT");
  if (number != nullptr) rlk_mutant = atoi(number);
  const char* path = getenv("RLK_REACHED");
  const int file = path != nullptr ? open(path, O_RDWR) : -1;
  if (file < 0) return;
  void* bytes = mmap(nullptr, static_cast<size_t>(lseek(file, 0, SEEK_END)), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (bytes != MAP_FAILED) reached = static_cast<unsigned char*>(bytes);
}
}
"""
MOST_ROUNDS = 12
NUMBERS = "choices.json"  # beside programs that were kept
# A mutant may take this many times what the program without a fault takes, and then it hangs.
PATIENCE, LEAST_DEADLINE = 10, 3.0


class Node:
    """An expression or statement with the choices about it, and the nodes inside it."""

    def __init__(self, start, end):
        self.start, self.end, self.choices, self.inner = start, end, [], []


def tree_of(length, numbered):
    """The file as a node, and the numbers of edits whose scopes cross others."""
    root, crossing = Node(0, length), []
    path = [root]
    for number, edit in sorted(numbered, key=lambda row: (row[1].scope[0], -row[1].scope[1], row[0])):
        start, end = edit.scope
        while path[-1].end <= start:
            path.pop()
        if path[-1].end < end:
            crossing.append(number)
            continue
        if len(path) == 1 or (path[-1].start, path[-1].end) != (start, end):
            path.append(Node(start, end))
            path[-2].inner.append(path[-1])
        path[-1].choices.append((number, edit))
    return root, crossing


def render(source, node, put):
    """Writes the node's text with its choices by put(text, number or None)."""
    rank = {"condition decided": 0}
    closing = []
    for number, edit in sorted(node.choices, key=lambda row: rank.get(row[1].rule, 1)):
        if edit.rule == "statement deleted":
            text, end = f"{{ if (!rlk_is({number})) {{", " } }"
        elif edit.rule == "condition decided":
            text, end = f"(rlk_is({number}) || (" if edit.text == "true" else f"(!rlk_is({number}) && (", "))"
        else:
            mutated = source[node.start:edit.start].decode() + edit.text + source[edit.end:node.end].decode()
            text, end = f"(rlk_is({number}) ? ({mutated}) : (", "))"
        put("\n", None)
        put(text, number)
        put("\n", None)
        closing.append(end)
    at = node.start
    for child in node.inner:
        put(source[at:child.start].decode(), None)
        render(source, child, put)
        at = child.end
    put(source[at:node.end].decode(), None)
    put("".join(reversed(closing)), None)


def text_of(source, numbered):
    """(the file's text with the choices, {line: number} of the lines that are a mutant's, numbers that are no choice)"""
    root, crossing = tree_of(len(source), numbered)
    pieces, owners, line = [], {}, 1

    def put(text, number):
        nonlocal line
        pieces.append(text)
        last = line + text.count("\n")
        if number is not None:
            owners.update(dict.fromkeys(range(line, last + 1), number))
        line = last
    render(source, root, put)
    return "".join(pieces), owners, crossing


def refused_by(output, owners, folder):
    """The numbers of the choices in a compiler's errors; `owners` of each file's lines, `folder` of relative paths."""
    numbers = set()
    for block in re.split(r"\n(?=[^\n]*: error: )", "\n" + output)[1:]:
        for path, line in re.findall(r"(\S+?):(\d+):\d+", block):  # the error's own place comes first
            number = owners.get(os.path.normpath(folder / path), {}).get(int(line))
            if number is not None:
                numbers.add(number)
                break
    return numbers


class Program:
    """The judging programs of all mutants, each with its number, and the numbers that are no choice in them."""

    def __init__(self, folder, numbers, refused, jobs, scratch):
        self.folder, self.numbers, self.refused, self.jobs, self.scratch = folder, numbers, refused, jobs, scratch
        self.patience = PATIENCE
        self.program = once(self.linked)
        self.honest = once(self.run_honest)

    def linked(self, target):
        return self.folder / target

    def keep(self, folder):
        """For `kept`."""
        folder.mkdir(parents=True)
        for target in TARGETS:
            shutil.copy(self.program(target), folder / target)
        (folder / NUMBERS).write_text(json.dumps({"numbers": self.numbers, "refused": sorted(self.refused)}))

    def run_honest(self, stage, subject):
        """(deadline, a byte for each number: whether the judge reaches it); without a fault it must pass."""
        path = self.scratch / f"reached-{stage}-{abs(hash(subject))}"
        path.write_bytes(bytes(max(self.numbers.values()) + 1))
        noticed, text, seconds = judge(self.program, stage, subject, 1800.0, RLK_MUTANT="-1", RLK_REACHED=str(path))
        if noticed:
            raise Broken(f"without a fault {subject} fails ({stage}): {text}")
        return max(LEAST_DEADLINE, self.patience * seconds), path.read_bytes()

    def cost(self, ops):
        """Deadlines of the operators' smoke tests, all together."""
        return sum(self.honest("smoke", op)[0] for op in ops)

    def prepare(self, judges):
        """So that several threads need not wait for one at a time."""
        with concurrent.futures.ThreadPoolExecutor(self.jobs) as pool:
            list(pool.map(lambda judge: self.honest(*judge), judges))

    def reaches(self, mutant, stage, subject):
        return bool(self.honest(stage, subject)[1][self.numbers[mutant.name()]])

    def judge(self, mutant, stage, subject):
        """(whether it was noticed, what)"""
        return judge(self.program, stage, subject, self.honest(stage, subject)[0],
                     RLK_MUTANT=str(self.numbers[mutant.name()]))[:2]


def kept(folder, mutants, scratch, jobs):
    """The programs of these mutants, and maybe others, that were kept in `folder`."""
    known = json.loads((folder / NUMBERS).read_text())
    for mutant in mutants:
        if mutant.name() not in known["numbers"]:
            raise Broken(f"{mutant.name()}: the programs in {folder} were made without it")
    return Program(folder.resolve(), known["numbers"], set(known["refused"]), jobs, scratch)


class Compiled(Program):
    """Made of the kernels' files in `scratch`: the mutants are numbered from 1 in their order."""

    def __init__(self, build, scratch, mutants, jobs):
        self.build = build
        numbers = {mutant.name(): number for number, mutant in enumerate(mutants, 1)}
        if len(numbers) != len(mutants):
            raise Broken("two mutants have one name")
        refused = {number for number, mutant in enumerate(mutants, 1) if mutant.edit.scope is None}
        super().__init__(scratch, numbers, refused, jobs, scratch)
        self.files = {}
        for number, mutant in enumerate(mutants, 1):
            self.files.setdefault(mutant.file, []).append((number, mutant.edit))
        self.owners, self.objects = {}, {}
        self.overlay = scratch / "source"
        self.overlay.mkdir(parents=True)
        (self.overlay / "rlk_choice.h").write_text(CHOICE)
        for file in self.files:
            self.write(file)
        self.sources = sorted({source for file in self.files for source in build.sources_of(file)})
        # Some kernels call others, which must then be for the same instruction sets: all for one, or these for each.
        # What is asked which instruction set runs stays the build's: unit tests count them.
        self.all_targets = any(mutant.all_targets for mutant in mutants)
        if self.all_targets and len(self.sources) > len(build.commands) / 2:
            self.sources = sorted(source for source in build.commands if source != str(CPU / "simd" / "target.cpp"))
            self.all_targets = False
        self.build_all()

    def write(self, file):
        path = self.overlay / "core" / "cpu" / file
        path.parent.mkdir(parents=True, exist_ok=True)
        numbered = [(number, edit) for number, edit in self.files[file] if number not in self.refused]
        text, self.owners[str(path)], crossing = text_of((CPU / file).read_bytes(), numbered)
        path.write_text(text)
        if crossing:
            self.refused |= set(crossing)
            self.write(file)

    def compile(self, source, *more):
        out = self.folder / (str(pathlib.Path(source).relative_to(CPU)).replace("/", "-") + ".o")
        words = ["-include", "rlk_choice.h", "-Wno-narrowing", "-fmax-errors=0", *more]
        code, output = self.build.compile(source, self.overlay, self.all_targets, out, words)
        return code, output, out

    def constants_near(self, output):
        """An object that must be known to the compiler may have a member's default that is a choice."""
        return {number for file, numbered in self.files.items() for number, edit in numbered
                if f"{self.overlay}/core/cpu/{file}:" in output and number not in self.refused
                and edit.rule == "constant changed"}

    def build_all(self):
        with concurrent.futures.ThreadPoolExecutor(self.jobs) as pool:
            waiting, flags = self.sources, ["-fsyntax-only"]
            for count in range(MOST_ROUNDS):
                done = list(zip(waiting, pool.map(lambda source: self.compile(source, *flags), waiting)))
                refused = set()
                for source, (code, output, out) in done:
                    if code == 0 and not flags:
                        self.objects[source] = out
                    elif code != 0:
                        here = refused_by(output, self.owners, self.build.folder) or self.constants_near(output)
                        if not here:
                            raise Broken(f"{source} with its choices does not compile: {output[:3000]}")
                        refused |= here
                if refused:
                    print(f"round {count}: {len(waiting)} sources, {len(refused)} more are no choices", file=sys.stderr)
                    self.refused |= refused
                    changed = [file for file in self.files if any(n in refused for n, _ in self.files[file])]
                    for file in changed:
                        self.write(file)
                    again = {source for file in changed for source in self.build.sources_of(file)}
                    waiting = [source for source in self.sources if source in again]
                elif flags:
                    waiting, flags = self.sources, []
                else:
                    break
            else:
                raise Broken(f"choices are still refused after {MOST_ROUNDS} rounds")
            choose = self.folder / "choose.cpp"
            choose.write_text(CHOOSE)
            compiler = self.build.command(self.sources[0])[0]
            code, output = run([compiler, "-O1", "-c", choose, "-o", self.folder / "choose.o"])
            if code != 0:
                raise Broken(output)

    def linked(self, target):
        program = self.folder / target
        code, output = self.build.link(target, [self.folder / "choose.o", *self.objects.values()], program)
        if code != 0:
            raise Broken(f"the choices do not link: {output[:2000]}")
        return program
