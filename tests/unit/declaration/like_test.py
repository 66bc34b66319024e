"""A declaration with `like` has all that its sibling declares, outputs too, and what it writes itself."""
import pathlib
import tempfile
import unittest

from generator_test import KETTLE
from declaration_load import load
from declaration_schema import DeclarationError

KETTLE = KETTLE.replace('nan = "element"\n', 'nan = "text"\nnan_text = "steam"\n') + """
[[output]]
name = "steam"
dtype = "T"
shape = ["N"]
doc = "above"
"""
TEAPOT = """
name = "teapot"
revision = 2
like = "kettle"
summary = "Makes tea."
formula = "out[n] = water[n] + power"
sources = ["everybody's aunt"]
[numerics]
factor = 3
reason = "one sum"
"""


class Like(unittest.TestCase):
    def loaded(self, *changes, text=TEAPOT, **others):
        for old, new in changes:
            self.assertEqual(text.count(old), 1, f"{old!r} must occur once")
            text = text.replace(old, new)
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "shared").mkdir()
            for name, declaration in {"kettle": KETTLE, "teapot": text, **others}.items():
                (pathlib.Path(folder) / f"{name.replace('__', '/')}.toml").write_text(declaration)
            return {op["name"]: op for op in load(pathlib.Path(folder))}

    def refused(self, expected, *changes, **others):
        with self.assertRaises(DeclarationError) as raised:
            self.loaded(*changes, **others)
        self.assertIn(expected, str(raised.exception))

    def test_all_but_texts_and_numerics_is_taken(self):
        ops = self.loaded()
        for key in ("family", "dtypes", "symbol", "input", "output", "param", "rule"):
            self.assertEqual(ops["teapot"][key], ops["kettle"][key])
        self.assertEqual(ops["teapot"]["numerics"]["factor"], 3)
        self.refused("teapot.toml: formula is missing", ('formula = "out[n] = water[n] + power"\n', ""))

    def test_outputs_are_changed_listed_and_placed_like_inputs(self):
        ops = self.loaded(("[numerics]", 'outputs = ["tea", "out"]\n[numerics]'), ("one sum\"\n", 'one sum"\n'
                          '[[output]]\nname = "out"\noptional = true\n'
                          '[[output]]\nname = "tea"\ndtype = "f32"\nshape = ["N"]\ndoc = ""\n'))
        self.assertEqual([(a["name"], a.get("optional")) for a in ops["teapot"]["output"]],
                         [("tea", None), ("out", True)])
        self.refused("teapot.toml: [[output]] tea: kettle has no output of this name, so its place among them is not "
                     "known: list all in outputs = [...]", ("one sum\"\n", 'one sum"\n[[output]]\nname = "tea"\n'))

    def test_what_a_nan_gives_is_written_as_a_whole(self):
        ops = self.loaded(('one sum"\n', 'one sum"\n[[input]]\nname = "water"\nnan = "element"\n'))
        self.assertEqual(ops["teapot"]["input"][0]["nan"], "element")
        self.assertNotIn("nan_text", ops["teapot"]["input"][0])
        ops = self.loaded(('one sum"\n', 'one sum"\n[[input]]\nname = "water"\nnan = "text"\nnan_text = "mist"\n'))
        self.assertEqual(ops["teapot"]["input"][0]["nan_text"], "mist")
        self.refused("teapot.toml: [[input]] water: nan is that of kettle: leave it out", (
            'one sum"\n', 'one sum"\n[[input]]\nname = "water"\nnan = "text"\nnan_text = "steam"\n'))
        self.refused("teapot.toml: [[input]] water: nan is missing",
                     ('one sum"\n', 'one sum"\n[[input]]\nname = "water"\nnan_text = "mist"\n'))

    def test_a_name_that_nothing_has_and_only_what_differs(self):
        self.refused("teapot.toml: like: no operator 'kettel'; near: kettle", ('"kettle"', '"kettel"'))
        self.refused("teapot.toml: family is that of kettle: leave it out",
                     ("[numerics]", 'family = "kitchen"\n[numerics]'))

    def test_it_is_like_a_whole_declaration_and_may_have_a_backward(self):
        cup = TEAPOT.replace('"teapot"', '"cup"').replace('like = "kettle"', 'like = "teapot"')
        self.refused("cup.toml: like: teapot itself says like = 'kettle'; expected one that does not", cup=cup)
        backward = TEAPOT.replace('"teapot"', '"teapot_backward"').replace('like =', 'forward =').replace(
            '"kettle"', '"teapot"') + '[[input]]\nname = "water"\nnan = "none"\n[[output]]\nname = "grad_water"\n'
        ops = self.loaded(("[numerics]", 'backward = "teapot_backward"\n[numerics]'), teapot_backward=backward)
        self.assertEqual(ops["teapot_backward"]["output"][0]["shape"], ["N"])
        self.refused("teapot.toml: has like and forward; expected one of them",
                     ("[numerics]", 'forward = "kettle"\n[numerics]'))
        self.refused("teapot.toml: like: names the operator itself", ('"kettle"', '"teapot"'))

    def test_parts_give_entries_that_the_declaration_changes_and_places(self):
        part = '''
[dtypes]
C = ["i32"]
[[input]]
name = "milk"
dtype = "C"
shape = ["N"]
domain = { kind = "integer", low = 0, high = 9 }
doc = "white"
'''
        uses = ("[numerics]", 'uses = ["dairy"]\n[numerics]')
        noted = self.loaded(uses, shared__dairy='notes = "Milk is white."\n' + part)["teapot"]
        self.assertEqual(noted["notes"], "Milk is white.")
        op = self.loaded(uses, shared__dairy=part)["teapot"]  # behind what the sibling has
        self.assertEqual([a["name"] for a in op["input"]], ["water", "milk"])
        self.assertEqual(list(op["dtypes"]), ["T", "C"])
        op = self.loaded(("[numerics]", 'uses = ["dairy"]\ninputs = ["milk", "water"]\n[numerics]'),
                         ('one sum"\n', 'one sum"\n[[input]]\nname = "milk"\ndoc = "cold"\n'),
                         shared__dairy=part)["teapot"]
        self.assertEqual([(a["name"], a["doc"]) for a in op["input"]], [("milk", "cold"), ("water", "before")])
        kettle = KETTLE.replace("[numerics]", 'uses = ["dairy"]\ninputs = ["water", "milk"]\n[numerics]')
        self.assertEqual([a["name"] for a in self.loaded(kettle=kettle, shared__dairy=part)["kettle"]["input"]],
                         ["water", "milk"])
        forms = '[forms]\nparam = "kind"\nnames = ["cow", "oat"]\n' + part.replace(
            'shape = ["N"]', 'shape.cow = ["N", 2]\nshape.oat = ["N"]')
        forms += '[[param]]\nname = "kind"\nvalues = ["cow", "oat"]\ndoc = "of milk"\n'
        milk = ('one sum"\n', 'one sum"\n[[input]]\nname = "milk"\ndtype = "i32"\n')
        op = self.loaded(("[numerics]", 'uses = ["dairy"]\nuses_form = "cow"\n[numerics]'), milk,
                         shared__dairy=forms)["teapot"]
        self.assertEqual((op["input"][1]["shape"], op["form_names"], [p["name"] for p in op["param"]]),
                         (["N", 2], [""], ["power"]))
        self.refused("teapot.toml: uses_form: no form 'goat' in dairy",
                     ("[numerics]", 'uses = ["dairy"]\nuses_form = "goat"\n[numerics]'), shared__dairy=forms)
        self.refused("teapot.toml: uses: no part 'diary' in shared; near: dairy",
                     ("[numerics]", 'uses = ["diary"]\n[numerics]'), shared__dairy=part)
        self.refused("uses dairy: no table 'summary' of a part", uses, shared__dairy='summary = "cow"\n' + part)
        self.refused("teapot.toml: uses: dtypes C is in two of dairy, goat",
                     ("[numerics]", 'uses = ["dairy", "goat"]\n[numerics]'), shared__dairy=part, shared__goat=part)
        self.refused("teapot.toml: uses: takes nothing of dairy: leave it out",
                     ("[numerics]", 'uses = ["dairy"]\ninputs = ["water"]\n[numerics]'), shared__dairy=part)
        self.refused("[[input]] milk: doc is that of kettle: leave it out", uses,
                     ('one sum"\n', 'one sum"\n[[input]]\nname = "milk"\ndoc = "white"\n'), shared__dairy=part)

    def test_what_need_not_be_said(self):
        short = KETTLE.replace('revision = 1\n', "").replace('type = "f64"\n', "").replace('dtype = "T"\n', "")
        short = short.replace('domain = { kind = "real", scale = 1.0 }\n', "")
        short = short.replace('shape = ["N"]\ndoc = "after"', 'doc = "after"')
        long = self.loaded()["kettle"]
        self.assertEqual(self.loaded(kettle=short)["kettle"], long)
        op = self.loaded(kettle=short.replace('[dtypes]\nT = ["f32", "bf16"]\n', "") + '''
[[input]]
name = "empty"
shape = ["N"]
domain = { kind = "mask" }
doc = "no tea"
[[param]]
name = "cups"
default = 2
doc = "how many"
[[param]]
name = "leaves"
values = ["black", "green"]
doc = "which"
''')["kettle"]
        self.assertEqual(op["dtypes"], {"T": ["f32", "bf16", "f16", "f64"]})
        self.assertEqual(op["input"][1]["dtype"], "u8")
        self.assertEqual([(p["type"], p["default"]) for p in op["param"]], [("f64", 1.0), ("i64", 2), ("enum", "black")])
        self.refused("kettle.toml: [[param]] power: default is missing", kettle=short.replace("default = 1.0\n", ""))

    def test_a_forward_gives_no_outputs_to_list(self):
        backward = TEAPOT.replace('"teapot"', '"kettle_backward"').replace('like =', 'forward =').replace(
            "[numerics]", 'outputs = ["grad_water"]\n[numerics]') + '[[input]]\nname = "water"\nnan = "none"\n'
        self.refused("kettle_backward.toml: outputs stands beside forward, which gives none: write [[output]] alone",
                     kettle=KETTLE.replace("[numerics]", 'backward = "kettle_backward"\n[numerics]'),
                     kettle_backward=backward)


if __name__ == "__main__":
    unittest.main()
