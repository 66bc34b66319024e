"""Does mutants.py tell right from wrong? Argument: the build folder."""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import programs  # noqa: E402, beside this file
import schemata  # noqa: E402
import syntax  # noqa: E402
BUILD = sys.argv.pop()
if os.environ.get("RLK_TEST_LONG") != "1":
    print("compiles kernels for minutes: in the long run, RLK_TEST_LONG=1")
    sys.exit(77)


def mutants(*words):
    command = [sys.executable, "-B", "-W", "error", HERE / "mutants.py", *words]
    return subprocess.run(command, capture_output=True, text=True)


class SelfTest(unittest.TestCase):
    def try_one(self, what):
        done = mutants("--build", BUILD, "--jobs", "1", "--tables", HERE / "self_test", "--only", f"kernel: {what}")
        self.assertIn("1 tried", done.stdout, done.stderr)
        return done

    def test_a_harmless_mutant_survives(self):
        done = self.try_one("harmless")
        self.assertEqual(done.returncode, 1)
        self.assertIn("SURVIVED", done.stdout)
        self.assertIn("0 caught, 1 survived, 0 broken", done.stdout)

    def test_a_hang_is_caught(self):
        done = self.try_one("hangs")
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertIn("no end after", done.stdout)

    def test_a_crash_is_caught(self):
        done = self.try_one("crashes")
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertIn("SIGSEGV", done.stdout)

    def test_a_mutant_that_does_not_compile_is_no_success(self):
        done = self.try_one("does not compile")
        self.assertEqual(done.returncode, 1)
        self.assertIn("1 broken", done.stdout)
        self.assertIn("nonsense", done.stdout)

    def test_a_text_must_be_found_exactly_once(self):
        for what in ("fits nowhere", "fits twice"):
            done = mutants("--check", "--tables", HERE / "self_test", "--only", f"kernel: {what}")
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(what, done.stderr)

    def test_a_mutant_in_a_header_that_is_precompiled_reaches_every_kernel(self):
        build = programs.Build(pathlib.Path(BUILD))
        reached = build.sources_of("simd/operator.hpp")
        self.assertLess({str(programs.CPU / name) for name in ("norm/softmax.cpp", "advantages/gae.cpp")}, set(reached))
        for source in reached:
            self.assertNotIn("cmake_pch", " ".join(build.command(source)))

    @unittest.skipUnless(any(map(shutil.which, syntax.CLANGS)), "clang is not installed")
    def test_rules_find_each_kind_of_place_and_leave_sizes_alone(self):
        path = HERE / "self_test" / "kernel.cpp"
        edits = syntax.edits_of(path, ["-std=c++20"], str(path), HERE)
        source = path.read_text()
        choice = "is_mean ? sum / count : IfThenElseZero(n, sum)"
        made = {(source[e.start:e.end], e.text) for e in edits}
        self.assertEqual(made, {("<", "<="), ("+=", "-="), ("++", "--"), ("sum += x[i]", ""), ("0", "(0 + 1)"),
                                ("min", "max"), ("n == 0", "true"), ("n == 0", "false"), ("==", "!="), ("!", ""),
                                (choice, "(sum / count)"), ("/", "*"), ("1.0", "(1.0 + 1)"),
                                (choice, "(IfThenElseZero(n, sum))"), ("-", ""), ("!is_sum", "true"),
                                ("!is_sum", "false"), ("IfThenElseZero(n, sum)", "sum")})

    @unittest.skipUnless(any(map(shutil.which, syntax.CLANGS)), "clang is not installed")
    def test_a_choice_at_run_time_is_the_edit(self):
        """Every mutant of self_test/kernel.cpp twice: compiled alone, and as a choice in the program of all."""
        path, lack = HERE / "self_test" / "kernel.cpp", {}
        source = path.read_bytes()
        edits = dict(enumerate(syntax.edits_of(path, ["-std=c++20"], str(path), HERE), 1))
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            (folder / "rlk_choice.h").write_text(schemata.CHOICE)
            (folder / "choose.cpp").write_text(schemata.CHOOSE)
            (folder / "main.cpp").write_text(MAIN)

            def compiled(text, *more):
                (folder / "kernel.cpp").write_text(text)
                words = ["c++", "-std=c++20", "-w", "-I.", "kernel.cpp", "main.o", *more, "-o", "program"]
                return subprocess.run(words, cwd=folder, capture_output=True, text=True)

            def said(**environment):
                return subprocess.run([folder / "program"], env=os.environ | environment, capture_output=True, text=True,
                                      timeout=60).stdout

            subprocess.run(["c++", "-std=c++20", "-c", "main.cpp", "choose.cpp"], cwd=folder, check=True)
            alone = {}
            for number, edit in edits.items():
                done = compiled((source[:edit.start] + edit.text.encode() + source[edit.end:]).decode())
                alone[number] = said() if done.returncode == 0 else None
            compiled(source.decode())
            honest = said()

            together = ["-include", "rlk_choice.h", "choose.o"]
            text, lines, crossing = schemata.text_of(source, edits.items())
            done = compiled(text, *together)
            refused = schemata.refused_by(done.stderr, {str(folder / "kernel.cpp"): lines}, folder)
            self.assertEqual(refused, {number for number in edits if alone[number] is None})  # there is no max
            self.assertEqual(crossing, [])
            text, _, _ = schemata.text_of(source, [row for row in edits.items() if row[0] not in refused])
            done = compiled(text, *together)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(said(), honest)
            for number, edit in edits.items():
                if number not in refused:
                    self.assertEqual(said(RLK_MUTANT=str(number)), alone[number], edit)
            self.assertGreater(len(set(alone.values())), 10)  # faults that differ

            reached = folder / "reached"
            reached.write_bytes(bytes(len(edits) + 1))
            self.assertEqual(said(RLK_MUTANT="-1", RLK_REACHED=str(reached), ONLY_EMPTY="1"), "-1\n")
            met = [edits[number].rule for number, byte in enumerate(reached.read_bytes()) if byte]
            self.assertEqual(met, ["condition decided", "condition decided", "operator replaced", "constant changed",
                                   "operator deleted", "constant changed"])

    @unittest.skipUnless(any(map(shutil.which, syntax.CLANGS)), "clang is not installed")
    def test_mutants_by_rule_are_tried_as_choices_alone_and_not_where_no_judge_comes(self):
        with tempfile.TemporaryDirectory() as name:
            edits, results = pathlib.Path(name) / "edits.json", pathlib.Path(name) / "results"
            table = pathlib.Path(name) / "other.toml"
            table.write_text('files = ["advantages/resampling_weights.cpp"]\nops = ["add"]\nunit = "CpuAdd.*"\n')

            def ask(*words):
                done = mutants("--build", BUILD, "--jobs", "2", "--rules", "--edits", edits, *words)
                self.assertNotIn("BROKEN", done.stdout, done.stderr)
                return done.stdout

            file = ["--only", "resampling_weights"]
            put, cost = (["--only", f"resampling_weights: *{what}*"] for what in ("deleted: call.weights", " 2000 ->"))
            ask(*file, "--list")
            said = ask(*put, *cost, "--stages", "smoke", "--results", results)
            self.assertIn("2 choices in one program, 0 on their own", said)
            self.assertIn("2 tried, 1 caught, 1 survived, 0 broken, 0 no program, 1 smoke", said)
            self.assertEqual(len(results.read_text().splitlines()), 3)  # what survives the first round has another
            results.write_text(results.read_text().replace("smoke", "known"))
            self.assertIn("1 known", ask(*put, *cost, "--stages", "smoke", "--results", results))

            kept, elsewhere = pathlib.Path(name) / "kept", ["--rules", "--edits", edits, "--stages", "smoke"]
            ask(*put, *cost, "--keep", kept)
            done = mutants(*elsewhere, "--programs", kept, *put)
            self.assertIn("1 tried, 1 caught", done.stdout, done.stderr)
            self.assertIn("were made without it", mutants(*elsewhere, "--programs", kept, *file).stderr)
            self.assertIn("--build is missing", mutants(*elsewhere, *put).stderr)

            said = ask("--tables", name, "--only", "other: *deleted: call.weights*", "--stages", "smoke")
            self.assertIn("no judge reaches it", said)
            self.assertIn("0 caught, 1 survived", said)

            rows = json.loads(edits.read_text())
            edits.write_text(json.dumps({file: [[*row[:4], None] for row in rows[file]] for file in rows}))
            said = ask(*put, "--stages", "smoke,alone")
            self.assertIn("0 choices in one program, 1 on their own", said)
            self.assertIn("1 tried, 1 caught", said)


# Prints what kernel.cpp computes of a few inputs.
MAIN = """#include <cstdio>
#include <cstdlib>
#include <initializer_list>
namespace rlk::cpu {
template <class T> T min(T a, T b) { return a < b ? a : b; }
template int min<int>(int, int);
double IfThenElseZero(int mask, double number) { return mask > 1 ? number : 0; }
double reduce(const double*, int, bool, bool);
}
int main() {
  double x[100], zero = 0;
  for (double& value : x) value = zero += 1;
  for (int n : {0, 1, 2, 70}) {
    for (int kind = 0; kind < 4; ++kind) {
      std::printf("%g\\n", rlk::cpu::reduce(x + 1, n, kind & 1, kind & 2));
      if (std::getenv("ONLY_EMPTY")) return 0;
    }
  }
}
"""


if __name__ == "__main__":
    unittest.main()
