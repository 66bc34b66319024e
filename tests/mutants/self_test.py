"""Does mutants.py tell right from wrong? Argument: the build folder."""
import pathlib
import shutil
import subprocess
import sys
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import syntax  # noqa: E402, beside this file
BUILD = sys.argv.pop()


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

    @unittest.skipUnless(any(map(shutil.which, syntax.CLANGS)), "clang is not installed")
    def test_rules_find_each_kind_of_place_and_leave_sizes_alone(self):
        path = HERE / "self_test" / "kernel.cpp"
        edits = syntax.edits_of(path, ["-std=c++20"], str(path), HERE)
        source = path.read_text()
        made = {(source[e.start:e.end], e.text) for e in edits}
        self.assertEqual(made, {("<", "<="), ("+=", "-="), ("++", "--"), ("sum += x[i]", ""), ("0", "(0 + 1)"),
                                ("min", "max"), ("n == 0", "true"), ("n == 0", "false"), ("==", "!="), ("!", ""),
                                ("is_mean ? sum / count : sum", "(sum / count)"), ("/", "*"), ("1.0", "(1.0 + 1)"),
                                ("is_mean ? sum / count : sum", "(sum)"), ("-", ""), ("!is_sum", "true"),
                                ("!is_sum", "false")})

    def test_a_mutant_by_rule_is_tried(self):
        if not any(map(shutil.which, syntax.CLANGS)):
            self.skipTest("clang is not installed")
        done = mutants("--build", BUILD, "--jobs", "1", "--rules", "--only", "resampling_weights", "--sample", "1")
        self.assertIn("1 tried", done.stdout, done.stderr)
        self.assertNotIn("BROKEN", done.stdout)


if __name__ == "__main__":
    unittest.main()
