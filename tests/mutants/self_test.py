"""Does mutants.py tell right from wrong? Argument: the build folder."""
import pathlib
import subprocess
import sys
import unittest

HERE = pathlib.Path(__file__).resolve().parent
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


if __name__ == "__main__":
    unittest.main()
