"""A declaration with `forward` has what its forward declares and what it writes itself; anything unclear is refused."""
import pathlib
import re
import tempfile
import tomllib
import unittest

from generator_test import KETTLE, ROOT
from declaration_load import load
from declaration_schema import DeclarationError
from generate_calls import call_header
from generate_headers import c_header
from generate_tables import op_table

FORWARD = KETTLE.replace("[numerics]", 'notes = "Whistles."\nbackward = "kettle_backward"\n[numerics]', 1) + """
[[param]]
name = "lid"
type = "enum"
values = ["off", "on"]
default = "off"
doc = "keeps the steam"
[[feature]]
name = "strong"
set = { power = "2" }
[[feature]]
name = "covered"
set = { lid = "1" }
[[rule]]
name = "calm"
holds = "power < 9 || lid == off"
hint = "take the lid off"
violate = { params = { power = "9", lid = "1" } }
"""
BACKWARD = """
name = "kettle_backward"
revision = 4
forward = "kettle"
summary = "Gradient of water."
formula = "grad_water[n] = grad_out[n] * power"
sources = ["derivative of the formula of kettle"]
inputs = ["water", "grad_out"]
[numerics]
factor = 3
reason = "one product more"
[[input]]
name = "water"
nan = "none"
[[input]]
name = "grad_out"
domain = { kind = "real", scale = 1.0 }
nan = "element"
[[output]]
name = "grad_water"
"""
# The same without `forward`.
WHOLE = """
name = "kettle_backward"
revision = 4
family = "kitchen"
summary = "Gradient of water."
formula = "grad_water[n] = grad_out[n] * power"
sources = ["derivative of the formula of kettle"]
[numerics]
factor = 3
reason = "one product more"
[[input]]
name = "water"
dtype = "T"
shape = ["N"]
domain = { kind = "real", scale = 1.0 }
nan = "none"
doc = "before"
[[input]]
name = "grad_out"
dtype = "T"
shape = ["N"]
domain = { kind = "real", scale = 1.0 }
nan = "element"
doc = "gradient of out"
[[output]]
name = "grad_water"
dtype = "T"
shape = ["N"]
doc = "gradient of water"
""" + FORWARD[FORWARD.index("[dtypes]"):FORWARD.index("[[input]]")] + FORWARD[FORWARD.index("[[param]]"):]


class Forward(unittest.TestCase):
    def loaded(self, backward, forward=FORWARD, **others):
        """The operators of a folder, by name, each as the generator has it."""
        with tempfile.TemporaryDirectory() as folder:
            for name, text in {"kettle": forward, "kettle_backward": backward, **others}.items():
                (pathlib.Path(folder) / f"{name}.toml").write_text(text)
            return {op["name"]: op for op in load(pathlib.Path(folder))}

    def backward(self, *changes, text=BACKWARD):
        for old, new in changes:
            self.assertEqual(text.count(old), 1, f"{old!r} must occur once")
            text = text.replace(old, new)
        return text

    def refused(self, expected, *changes, forward=FORWARD, **others):
        with self.assertRaises(DeclarationError) as raised:
            self.loaded(self.backward(*changes), forward, **others)
        self.assertIn(expected, str(raised.exception))

    def taken(self, *changes):
        return self.loaded(self.backward(*changes))["kettle_backward"]

    def test_everything_that_is_generated_is_that_of_the_whole_declaration(self):
        brief, whole = self.loaded(BACKWARD), self.loaded(WHOLE)
        for name in ("kettle", "kettle_backward"):
            self.assertEqual(c_header(brief[name]), c_header(whole[name]))
            self.assertEqual(call_header(brief[name]), call_header(whole[name]))
            self.assertEqual(op_table(brief[name]), op_table(whole[name]))

    def test_texts_numerics_outputs_and_what_a_nan_gives_are_its_own(self):
        op = self.taken()
        self.assertNotIn("notes", op)
        self.assertNotIn("backward", op)
        self.assertEqual([a["name"] for a in op["output"]], ["grad_water"])
        for key in ("summary", "formula", "sources", "numerics"):
            wanted = rf"^{key} = .*\n" if key != "numerics" else r"\[numerics\]\n(.*\n){2}"
            self.refused(f"kettle_backward.toml: {key} is missing", (re.search(wanted, BACKWARD, re.M)[0], ""))
        self.refused("kettle_backward.toml: [[input]] water: nan is missing",
                     ('[[input]]\nname = "water"\nnan = "none"\n', ""))

    def test_an_entry_of_the_forward_changes_in_the_keys_that_are_written(self):
        op = self.taken(("[[output]]", '[[param]]\nname = "power"\ndefault = 2.0\n[[symbol]]\nname = "N"\nsizes = [3]\n'
                         '[[rule]]\nname = "calm"\nhint = "cool it"\n[dtypes]\nT = ["f32"]\n[[output]]'))
        self.assertEqual(op["param"][0], {"name": "power", "type": "f64", "default": 2.0, "doc": "how hot"})
        self.assertEqual(op["symbol"], [{"name": "N", "sizes": [3], "production": [9], "doc": "cups"}])
        self.assertEqual([rule["hint"] for rule in op["rule"]], ["fill less", "cool it"])
        self.assertEqual(op["dtypes"], {"T": ["f32"]})

    def test_an_output_of_the_forward_and_gradients_have_its_dtype_shape_form_and_a_doc(self):
        out = ('"water", "grad_out"]', '"water", "out", "grad_out"]')
        op = self.taken(out, ("[[output]]", '[[input]]\nname = "out"\nnan = "none"\n[[output]]'))
        self.assertEqual(op["input"][1:], [
            {"name": "out", "dtype": "T", "shape": ["N"], "doc": "out of kettle", "nan": "none",
             "domain": {"kind": "forward", "op": "kettle", "output": "out"}},
            {"name": "grad_out", "dtype": "T", "shape": ["N"], "doc": "gradient of out", "nan": "element",
             "domain": {"kind": "real", "scale": 1.0}}])
        self.assertEqual(op["output"],
                         [{"name": "grad_water", "dtype": "T", "shape": ["N"], "doc": "gradient of water"}])
        op = self.taken(('name = "grad_water"', 'name = "grad_water"\ndtype = "f32"'))
        self.assertEqual(op["output"][0]["dtype"], "f32")
        self.refused("kettle_backward.toml: [[output]] grad_water: dtype is that of kettle: leave it out",
                     ('name = "grad_water"', 'name = "grad_water"\ndtype = "T"'))
        short = self.taken(('domain = { kind = "real", scale = 1.0 }\n', ""))
        self.assertEqual(short["input"][1]["domain"], {"kind": "real", "scale": 1.0})
        self.refused("kettle_backward.toml: [[output]] grad_wine: shape is missing",
                     ('name = "grad_water"', 'name = "grad_wine"\ndoc = ""'))
        self.refused("kettle_backward.toml: [[output]] 1: name is missing", ('name = "grad_water"', 'doc = ""'))

    def test_other_entries_follow_those_of_the_forward(self):
        op = self.taken(("[[output]]", '[[rule]]\nname = "few"\nholds = "N < 4"\nhint = "-"\n'
                         '[[feature]]\nname = "hot"\n[dtypes]\nG = ["T", "acc(T)"]\n[[output]]'))
        self.assertEqual([r["name"] for r in op["rule"]], ["cups", "calm", "few"])
        self.assertEqual([f["name"] for f in op["feature"]], ["strong", "covered", "hot"])
        self.assertEqual(op["dtypes"], {"T": ["f32", "bf16"], "G": ["T", "acc(T)"]})

    def test_a_list_says_which_and_in_which_order(self):
        op = self.taken(('"water", "grad_out"]', '"grad_out", "water"]\nparams = ["lid"]\nfeatures = ["covered"]\n'
                         'rules = ["cups"]'))
        self.assertEqual([a["name"] for a in op["input"]], ["grad_out", "water"])
        for kind, names in (("param", ["lid"]), ("feature", ["covered"]), ("rule", ["cups"])):
            self.assertEqual([row["name"] for row in op[kind]], names)

    def test_what_follows_a_left_out_entry_is_checked_like_any_declaration(self):
        self.refused("kettle_backward.toml: [[feature]] covered: no parameter 'lid'",
                     ('"grad_out"]', '"grad_out"]\nparams = ["power"]\nrules = []'))

    def test_names_that_neither_has(self):
        self.refused("kettle_backward.toml: forward: no operator 'kettel'; near: kettle", ('"kettle"', '"kettel"'))
        self.refused("kettle_backward.toml: inputs: no input 'watr' in kettle or here; near: water",
                     ('["water"', '["watr", "water"'))
        self.refused("kettle_backward.toml: features: no feature 'cover' in kettle or here; near: covered",
                     ('"grad_out"]', '"grad_out"]\nfeatures = ["cover"]'))
        self.refused("kettle_backward.toml: inputs: 'water' stands there twice", ('["water"', '["water", "water"'))
        self.refused("kettle_backward.toml: inputs: 3 is not a name", ('["water"', '[3, "water"'))
        self.refused("kettle_backward.toml: unknown key 'input_order'", ("inputs =", "input_order ="))
        self.refused("kettle_backward.toml: [[input]] water: unknown key 'nann'; near: nan",
                     ('nan = "none"', 'nann = "none"'))

    def test_an_entry_that_its_list_leaves_out(self):
        self.refused("kettle_backward.toml: [[input]] grad_out: inputs does not list it", (', "grad_out"]', "]"))

    def test_new_inputs_and_parameters_have_a_place_that_is_listed(self):
        self.refused("kettle_backward.toml: [[input]] grad_out: kettle has no input of this name, so its place among "
                     "them is not known: list all in inputs = [...]", ('inputs = ["water", "grad_out"]\n', ""))
        self.refused("[[param]] wind: kettle has no param of this name",
                     ("[[output]]", '[[param]]\nname = "wind"\ntype = "f64"\ndefault = 0.0\ndoc = ""\n[[output]]'))

    def test_only_what_differs_is_written(self):
        self.refused('kettle_backward.toml: [[param]] power: doc is that of kettle: leave it out',
                     ("[[output]]", '[[param]]\nname = "power"\ndoc = "how hot"\n[[output]]'))
        self.refused("kettle_backward.toml: [[param]] power: changes nothing of kettle: leave it out",
                     ("[[output]]", '[[param]]\nname = "power"\n[[output]]'))
        self.refused("kettle_backward.toml: [dtypes]: T is that of kettle: leave it out",
                     ("[[output]]", '[dtypes]\nT = ["f32", "bf16"]\n[[output]]'))
        self.refused("kettle_backward.toml: family is that of kettle: leave it out",
                     ("revision = 4", 'revision = 4\nfamily = "kitchen"'))
        self.refused("kettle_backward.toml: params is what it would be without: leave it out",
                     ('"grad_out"]', '"grad_out"]\nparams = ["power", "lid"]'))

    def test_two_of_one_name_and_entries_without(self):
        again = '[[param]]\nname = "power"\ndefault = 2.0\n'
        self.refused("kettle_backward.toml: [[param]] power: a second param of this name",
                     ("[[output]]", again + again + "[[output]]"))
        self.refused("kettle_backward.toml: [[param]] 1: name is missing",
                     ("[[output]]", "[[param]]\ndefault = 2.0\n[[output]]"))
        self.refused("kettle_backward.toml: inputs is 'water'; expected a list", ('["water", "grad_out"]', '"water"'))

    def test_forward_and_backward_name_each_other(self):
        self.refused("kettle_backward.toml: forward: kettle says backward = 'steam'; expected 'kettle_backward'",
                     forward=FORWARD.replace('"kettle_backward"', '"steam"'))
        self.refused("kettle_backward.toml: forward: kettle names no backward; expected 'kettle_backward'",
                     forward=FORWARD.replace('backward = "kettle_backward"\n', ""))
        self.refused("pot.toml: forward: kettle_backward itself says forward = 'kettle'; expected one that does not",
                     pot=BACKWARD.replace('"kettle_backward"', '"pot"').replace('"kettle"', '"kettle_backward"'))

    def test_lists_belong_to_a_forward(self):
        self.refused("kettle.toml: inputs stands beside uses, like or forward, and none is there",
                     forward=FORWARD.replace("[numerics]", 'inputs = ["water"]\n[numerics]'))


class Shipped(unittest.TestCase):
    def test_every_backward_takes_after_its_forward(self):
        folder = ROOT / "plugin_api/ops"
        written = {path.stem: tomllib.loads(path.read_text()) for path in folder.glob("*.toml")}
        self.assertEqual({op["backward"]: name for name, op in written.items() if "backward" in op},
                         {name: op["forward"] for name, op in written.items() if "forward" in op})


if __name__ == "__main__":
    unittest.main()
