"""A declaration that says what the generator does not know, or too much, is refused with the place and the reason."""
import pathlib
import sys
import tomllib
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "plugin_api"))
import generate  # noqa: E402
from declaration_schema import LIMITS, DeclarationError, check  # noqa: E402

KETTLE = """
name = "kettle"
revision = 1
family = "kitchen"
summary = "Boils water."
formula = "out[n] = water[n] * power"
sources = ["everybody's grandmother"]
[numerics]
factor = 2
reason = "one product"
[dtypes]
T = ["f32", "bf16"]
[[symbol]]
name = "N"
sizes = [5, 1]
doc = "cups"
[[input]]
name = "water"
dtype = "T"
shape = ["N"]
domain = { kind = "real", scale = 1.0 }
doc = "before"
[[output]]
name = "out"
dtype = "T"
shape = ["N"]
doc = "after"
[[param]]
name = "power"
type = "f64"
default = 1.0
doc = "how hot"
[[rule]]
name = "cups"
holds = "N <= 9"
hint = "fill less"
violate = { symbols = { N = "10" } }
"""


def tables(text):
    op = tomllib.loads(text)
    check("kettle.toml", op)
    return generate.Tables(generate.completed(op)).emit()


class Declarations(unittest.TestCase):
    def refused(self, expected, *changes):
        text = KETTLE
        for old, new in changes:
            self.assertEqual(text.count(old), 1, f"{old!r} must occur once")
            text = text.replace(old, new)
        with self.assertRaises(DeclarationError) as raised:
            tables(text)
        self.assertIn(expected, str(raised.exception))

    def test_the_kettle_itself_is_fine(self):
        self.assertIn("kettle", tables(KETTLE))

    def test_an_unknown_key_names_file_table_key_and_what_is_near(self):
        self.refused("kettle.toml: unknown key 'sumary'; near: summary", ("summary = ", "sumary = "))
        self.refused("kettle.toml: [numerics]: unknown key 'factr'; near: factor", ("factor = 2", "factr = 2"))
        self.refused("kettle.toml: [[symbol]] N: unknown key 'size'; near: sizes", ("sizes = ", "size = "))
        self.refused("kettle.toml: [[input]] water: unknown key 'domian'; near: domain", ("domain = ", "domian = "))
        self.refused("kettle.toml: [[output]] out: unknown key 'domain'", ('doc = "after"', "domain = {}\ndoc = ''"))
        self.refused("kettle.toml: [[input]] water domain: unknown key 'scael'; near: scale", ("scale =", "scael ="))
        self.refused("kettle.toml: [[rule]] cups violate: unknown key 'symbol'; near: symbols",
                     ("{ symbols =", "{ symbol ="))

    def test_a_key_of_another_kind_of_domain_is_unknown(self):
        self.refused("[[input]] water domain: unknown key 'scale'", ('kind = "real"', 'kind = "mask"'))

    def test_a_value_of_the_wrong_type(self):
        self.refused("[[param]] power: type is 'float'; expected 'enum' or 'f64' or 'i64'", ('"f64"', '"float"'))
        self.refused("[numerics]: factor is 'two'; expected a number", ("factor = 2", 'factor = "two"'))
        self.refused("revision is True; expected an integer", ("revision = 1", "revision = true"))

    def test_a_missing_key(self):
        self.refused("kettle.toml: [[input]] water: domain is missing",
                     ('domain = { kind = "real", scale = 1.0 }\n', ""))

    def test_names_that_nothing_has(self):
        self.refused("[[input]] water: no dtype or dtype variable 'f23'; near: f32", ('"T"\nshape = ["N"]\ndomain',
                                                                                      '"f23"\nshape = ["N"]\ndomain'))
        self.refused("[[output]] out: no input 'watr'; near: water", ('doc = "after"', 'may_alias = ["watr"]\ndoc = ""'))
        self.refused("[[rule]] cups violate: no symbol 'M'", ('{ N = "10" }', '{ M = "10" }'))
        self.refused("'M' in 'M <= 9' is neither a symbol nor a parameter", ('"N <= 9"', '"M <= 9"'))
        self.refused("no form 'dense'", ('doc = "cups"', 'doc = ""\nform = "dense"'))

    def test_two_of_one_name(self):
        again = '[[output]]\nname = "out"\ndtype = "T"\nshape = ["N"]\ndoc = ""\n'
        self.refused("[[output]] out: a second output of this name", ("[[param]]", again + "[[param]]"))
        self.refused("[[symbol]] N: a parameter has the same name", ('name = "power"', 'name = "N"'))

    def test_more_than_the_tables_hold(self):
        op = tomllib.loads(KETTLE)
        for kind, most in LIMITS.items():
            with self.subTest(kind):
                full = dict(op)
                if kind == "dtypes":
                    full[kind] = {f"T{i}" if i else "T": ["f32"] for i in range(most + 1)}
                else:
                    full[kind] = op[kind] + [dict(op[kind][0], name=f"{kind}_{i}") for i in range(most)]
                with self.assertRaises(DeclarationError) as raised:
                    check("kettle.toml", full)
                self.assertIn(f"{most + 1} of them; the tables of core/declaration hold {most}", str(raised.exception))

    def test_more_dimensions_than_a_tensor_has(self):
        self.refused("[[input]] water: 9 dimensions; a tensor has at most 8",
                     ('shape = ["N"]\ndomain', 'shape = ["N", 1, 1, 1, 1, 1, 1, 1, 1]\ndomain'))


class Limits(unittest.TestCase):
    """The generator's limits are those of the tables."""

    def test_they_agree_with_the_tables(self):
        header = (ROOT / "core/declaration/declaration.hpp").read_text()
        for name, kind in (("kMaxSymbols", "symbol"), ("kMaxArguments", "input"), ("kMaxArguments", "output"),
                           ("kMaxDtypeVariables", "dtypes"), ("kMaxParams", "param")):
            self.assertIn(f"inline constexpr int {name} = {LIMITS[kind]};", header)


if __name__ == "__main__":
    unittest.main()
