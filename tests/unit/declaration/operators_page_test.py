"""Is what plugin_api/ops/README.md names there: its tests, its parameters and their defaults?

Run through ctest.
"""
import pathlib
import re
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
OPS = ROOT / "plugin_api/ops"
sys.path.insert(0, str(ROOT / "plugin_api"))
from declaration_load import load  # noqa: E402

DECLARATIONS = {op["name"]: op for op in load(OPS)}
TEST = re.compile(r"^TEST(?:_F|_P)?\(\s*(\w+),\s*(\w+)\s*\)", re.MULTILINE)
NAMED_TEST = re.compile(r"`([A-Z]\w*\.[A-Za-z]\w*)`")
NAMED_DEFAULT = re.compile(r"`([a-z]\w*)\.(\w+) = ([^`]+)`")


def all_tests():
    return {f"{suite}.{name}" for path in (ROOT / "tests").rglob("*.cpp")
            for suite, name in TEST.findall(path.read_text())}


def default_of(operator, parameter):
    """As the page writes it; None when there is no such parameter. Of a dtype variable, the first choice."""
    declaration = DECLARATIONS.get(operator, {"dtypes": {}, "param": []})
    choices = declaration["dtypes"].get(parameter)
    if choices:
        return choices[0]
    for param in declaration["param"]:
        if param["name"] == parameter:
            return param["default"]
    return None


def same(default, written):
    if isinstance(default, (int, float)):
        return float(written) == default
    return default == written


def missing_tests(text, tests):
    return sorted(set(NAMED_TEST.findall(text)) - tests)


def wrong_defaults(text):
    return [f"{operator}.{parameter} is {default_of(operator, parameter)}, not {written}"
            for operator, parameter, written in NAMED_DEFAULT.findall(text)
            if not same(default_of(operator, parameter), written)]


def rows(heading, text):
    """The cells of each row of the table below a heading."""
    section = text.split(f"## {heading}", 1)[1].split("\n## ", 1)[0]
    lines = [line for line in section.splitlines() if line.startswith("|")][2:]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


class OperatorsPage(unittest.TestCase):
    def setUp(self):
        self.text = (OPS / "README.md").read_text()
        self.tests = all_tests()

    def test_every_named_test_is_in_the_tree(self):
        self.assertEqual(missing_tests(self.text, self.tests), [])

    def test_every_named_default_is_the_declared_one(self):
        self.assertEqual(wrong_defaults(self.text), [])

    def test_every_conflict_has_a_parameter_and_tests(self):
        table = rows("Where trainers and libraries disagree", self.text)
        self.assertGreaterEqual(len(table), 10)
        self.assertEqual([row[0] for row in table], [str(n + 1) for n in range(len(table))])
        for number, _, parameter, tests in table:
            with self.subTest(conflict=number):
                self.assertRegex(parameter, NAMED_DEFAULT)
                self.assertRegex(tests, NAMED_TEST)

    def test_every_defect_has_a_test(self):
        table = rows("Defects that were found upstream by reading", self.text)
        self.assertGreater(len(table), 15)
        for row in table:
            with self.subTest(defect=row[0]):
                self.assertEqual(len(row), 3)
                self.assertRegex(row[2], NAMED_TEST)

    def test_every_variant_of_a_trainer_has_a_test(self):
        table = rows("Trainers", self.text)
        trainers = [row[0] for row in table if row[0]]
        self.assertEqual(trainers, ["TRL", "Liger-Kernel", "verl", "OpenRLHF", "slime", "RL-Kernel"])
        for row in table:
            with self.subTest(variant=row[1]):
                self.assertRegex(row[3], NAMED_TEST)

    def test_a_name_that_is_not_there_is_found(self):
        self.assertIn("Api.Version", self.tests)
        self.assertEqual(missing_tests("`Api.Version` and `Api.Versions`", self.tests), ["Api.Versions"])
        self.assertEqual(wrong_defaults("`sample.top_k_ties = keep`, `logp.O = acc(T)`, `logp.softcap = 0`"), [])
        self.assertEqual(len(wrong_defaults("`sample.top_k_ties = lowest_id`, `logp.O = T`, `logp.soft = 0`")), 3)


if __name__ == "__main__":
    unittest.main()
