"""Does plugin_api/upstream.py notice what changed in the trainers' packages, and nothing else?

Run through ctest. The packages are made here: no trainer need be installed.
"""
import json
import pathlib
import re
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "plugin_api"))
import upstream  # noqa: E402

LOSS = '''
class Trainer:
    """What it is."""

    def loss(self, ratio, advantage):
        """How it is done."""
        # the surrogate
        def clipped(x):
            """Inside."""
            return min(x, 1.2)

        return -min(ratio * advantage, clipped(ratio) * advantage)


def mean(x):
    return sum(x) / len(x)
'''
NAMES = ["Trainer.loss", "mean"]


class Upstream(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.site = pathlib.Path(self.folder.name)
        (self.site / "trainer").mkdir()
        (self.site / "trainer-1.0.dist-info").mkdir()
        self.install("1.0", LOSS)
        self.record = {"trainer": {"version": "0.9", "functions": {"trainer/loss.py": {name: "" for name in NAMES}}}}
        self.assertEqual(upstream.take_over(self.record, [self.site]), ["trainer: 1.0 recorded"])

    def install(self, version, text):
        (self.site / "trainer/loss.py").write_text(text)
        (self.site / "trainer-1.0.dist-info/METADATA").write_text(
            f"Metadata-Version: 2.1\nName: trainer\nVersion: {version}\n")

    def lines(self, version, text, differs):
        self.install(version, text)
        lines, seen = upstream.check(self.record, [self.site])
        self.assertEqual(seen, differs, lines)
        return lines

    def test_a_package_of_the_same_functions_is_as_recorded(self):
        self.assertEqual(self.lines("1.0", LOSS, False), ["trainer 1.0: 2 of 2 functions as in 1.0"])
        self.assertEqual(self.lines("1.1", "import os\n" + LOSS, False), ["trainer 1.1: 2 of 2 functions as in 1.0"])

    def test_texts_for_people_are_no_change(self):
        other = LOSS.replace("How it is done.", "How it was done.\n\n        And why.").replace("# the surrogate", "# PPO")
        self.lines("1.1", other.replace("Inside.", "In here."), False)

    def test_another_formula_is_named(self):
        self.assertEqual(self.lines("1.1", LOSS.replace("1.2", "1.28"), True),
                         ["trainer 1.1: 1 of 2 functions as in 1.0", "  changed: trainer/loss.py Trainer.loss"])

    def test_a_function_that_is_gone_is_named(self):
        self.assertEqual(self.lines("2.0", LOSS.replace("def mean", "def average"), True)[1:],
                         ["  gone: trainer/loss.py mean"])
        (self.site / "trainer/loss.py").unlink()
        self.assertEqual(len(upstream.check(self.record, [self.site])[0]), 3)
        lines = upstream.take_over(self.record, [self.site])
        self.assertIn("left as it is, because these are gone: trainer/loss.py Trainer.loss", lines[0])
        self.assertEqual(self.record["trainer"]["version"], "1.0")

    def test_an_absent_package_is_said_and_passed_over(self):
        empty = self.site / "trainer"
        self.assertEqual(upstream.check(self.record, [empty]),
                         (["trainer: not installed here, not compared (recorded: 1.0)"], False))

    def test_what_is_recorded_is_what_the_page_names(self):
        record = json.loads(upstream.RECORDS[0].read_text())
        page = (ROOT / "plugin_api/ops/README.md").read_text()
        names = {"trl": "TRL", "verl": "verl", "openrlhf": "OpenRLHF", "liger-kernel": "Liger-Kernel"}
        self.assertEqual(sorted(record), sorted(names))
        for package, known in record.items():
            self.assertRegex(page, re.compile(rf"{names[package]}\s+{re.escape(known['version'])}"))
            for functions in known["functions"].values():
                for name, digest in functions.items():
                    self.assertRegex(digest, r"^[0-9a-f]{16}$", name)

    def test_both_records_know_the_same_functions(self):
        operators, replaced = (json.loads(path.read_text()) for path in upstream.RECORDS)
        for package in set(operators) & set(replaced):
            self.assertEqual(operators[package]["version"], replaced[package]["version"])
            for file, functions in replaced[package]["functions"].items():
                held = operators[package]["functions"].get(file, {})
                for name in set(functions) & set(held):
                    self.assertEqual(functions[name], held[name], f"{file} {name}")


if __name__ == "__main__":
    unittest.main()
