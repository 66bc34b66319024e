"""A declaration that says what the generator does not know, or too much, is refused with the place and the reason."""
import contextlib
import io
import os
import pathlib
import sys
import tempfile
import tomllib
import unittest
import unittest.mock

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "plugin_api"))
import generate  # noqa: E402
from declaration_check import check, check_together  # noqa: E402
from declaration_load import completed  # noqa: E402
from declaration_schema import LIMITS, DeclarationError  # noqa: E402
from generate_calls import call_header  # noqa: E402
from generate_tables import Tables  # noqa: E402
from generate_views import combines_rows  # noqa: E402

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
production = [9]
doc = "cups"
[[input]]
name = "water"
dtype = "T"
shape = ["N"]
domain = { kind = "real", scale = 1.0 }
nan = "element"
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
    emitted = Tables(completed(op))
    row = emitted.emit()
    return "\n".join([*emitted.lines, row])


class Declarations(unittest.TestCase):
    def accepted(self, *changes):
        return tables(self.changed(changes))

    def changed(self, changes):
        text = KETTLE
        for old, new in changes:
            self.assertEqual(text.count(old), 1, f"{old!r} must occur once")
            text = text.replace(old, new)
        return text

    def refused(self, expected, *changes):
        text = self.changed(changes)
        with self.assertRaises(DeclarationError) as raised:
            tables(text)
        self.assertIn(expected, str(raised.exception))

    def test_the_kettle_itself_is_fine(self):
        self.assertIn("kettle", tables(KETTLE))

    def test_what_may_be_rounded_has_a_source_and_symbols_that_exist(self):
        reason = 'reason = "one product"'
        steam = reason + '\n[[numerics.rounded]]\nname = "steam"\nover = ["N"]\nsource = "every pot"'
        self.assertIn('{"steam", "every pot", kettle_', self.accepted((reason, steam)))
        self.refused("[[numerics.rounded]] 1: no symbol 'M'", (reason, steam.replace('["N"]', '["M"]')))
        self.refused("[[numerics.rounded]] 1: source is missing", (reason, steam.replace('\nsource = "every pot"', "")))

    def test_rows_are_combined_never_always_or_as_parameters_say(self):
        reason = 'reason = "one product"'

        def function(*lines):
            return combines_rows(completed(tomllib.loads(self.changed([(reason, "\n".join([reason, *lines]))]))))[-1]

        self.assertIn("(const Params&) { return false; }", function())
        self.assertIn("(const Params&) { return true; }", function("batch_invariant = false"))
        self.assertIn("(const Params& params) { return params.power > 1; }", function('combines_rows = "power > 1"'))
        self.refused("[numerics]: combines_rows stands beside batch_invariant = false",
                     (reason, reason + '\nbatch_invariant = false\ncombines_rows = "power > 1"'))
        with self.assertRaisesRegex(DeclarationError, "combines_rows is 'N > 1'; expected parameters alone"):
            function('combines_rows = "N > 1"')

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
        self.refused("[[output]] out: at_least_when says where at_least holds, and there is no at_least",
                     ('doc = "after"', 'doc = "after"\nat_least_when = "N > 0"'))
        self.refused("[[input]] water domain: no input 'wator'; near: water", ("scale =", 'close_to = "wator", scale ='))
        self.refused("[[input]] water domain: unknown key 'scale'", ('kind = "real"', 'kind = "mask"'))

    def test_a_value_of_the_wrong_type(self):
        self.refused("[[param]] power: type is 'float'; expected 'enum' or 'f64' or 'i64'", ('"f64"', '"float"'))
        self.refused("[numerics]: factor is 'two'; expected a number", ("factor = 2", 'factor = "two"'))
        self.refused("revision is True; expected an integer", ("revision = 1", "revision = true"))

    def test_a_default_that_the_parameter_cannot_have(self):
        self.refused("[[param]] power: default is 'hot'; expected a number", ("default = 1.0", 'default = "hot"'))
        self.refused("[[param]] power: default is 1.5; expected an integer", ('type = "f64"', 'type = "i64"'),
                     ("default = 1.0", "default = 1.5"))
        self.refused("[[param]] power: no value 'hot'", ('type = "f64"\ndefault = 1.0',
                                                         'type = "enum"\nvalues = ["warm"]\ndefault = "hot"'))
        self.refused("[[symbol]] N: production is missing", ("production = [9]\n", ""))
        self.refused("[[symbol]] N: production has 0; expected positive integers", ("[9]", "[9, 0]"))
        self.refused("[[symbol]] N: sizes is empty", ("sizes = [5, 1]", "sizes = []"))

    def test_other_operators_that_nobody_declares(self):
        def together(*changes):
            op = tomllib.loads(self.changed(changes))
            check("kettle.toml", op)
            check_together([op])

        with self.assertRaisesRegex(DeclarationError, "kettle.toml: no operator 'kettel'; near: kettle"):
            together(('family = "kitchen"', 'family = ""\nbackward = "kettel"'))
        forward = '{ kind = "forward", op = "kettle", output = "steam" }'
        with self.assertRaisesRegex(DeclarationError, r"water domain: no output 'steam'; expected one of: out"):
            together(('{ kind = "real", scale = 1.0 }', forward))
        together(('{ kind = "real", scale = 1.0 }', forward.replace("steam", "out")))

        milk = '[[input]]\nname = "milk"\ndtype = "T"\nshape = ["N"]\ndomain = { kind = "real" }\nnan = "all"\ndoc = ""\n'
        real = ('{ kind = "real", scale = 1.0 }', forward.replace("steam", "out"))
        cup = tomllib.loads(self.changed([("kettle", "cup"), real]))
        kettle = tomllib.loads(self.changed([("[[output]]", milk + "[[output]]")]))
        for op in (cup, kettle):
            check(op["name"] + ".toml", op)
        with self.assertRaisesRegex(DeclarationError, r"cup.toml: \[\[input\]\] water domain: is an output of kettle, which "
                                                      "cannot be computed here: there is no milk"):
            check_together([cup, kettle])

    def test_any_shape_is_known_from_an_input_that_every_call_has(self):
        anything = ('["N"]\ndomain', '"*A"\ndomain')
        case = ("[[rule]]", "[[shape_case]]\nA = [2, 3]\nproduction = [9]\n[[rule]]")
        same = ('["N"]\ndoc = "after"', '"*A"\ndoc = "after"')
        emitted = self.accepted(anything, same, case)
        self.assertIn('{ShapeDecl::Kind::any, {}, "*A"}', emitted)
        self.assertIn('{ShapeDecl::Kind::same, {}, "*A", 0}', emitted)
        self.refused("[[output]] out: shape is '*B', which no input has; expected one of *A", anything, case,
                     ('["N"]\ndoc = "after"', '"*B"\ndoc = "after"'))
        self.refused("[[input]] water: is optional and the first of shape *A", anything, same, case,
                     ("domain = {", "optional = true\ndomain = {"))
        self.refused("[[input]] water: shape is 'any'", ('["N"]\ndomain', '"any"\ndomain'))

    def test_what_a_nan_gives_is_never_left_open(self):
        rule = 'nan = "element"\n'
        self.refused("[[input]] water: nan is missing: say what a NaN in it gives, one of none, element, row", (rule, ""))
        self.refused("[[input]] water nan: no word 'elemnt'; near: element", ('"element"', '"elemnt"'))
        self.refused("[[input]] water nan: no output 'tea'", (rule, 'nan = { tea = "row" }\n'))
        self.refused("[[input]] water: nan does not say what becomes of out", (rule, "nan = {}\n"))
        self.refused("[[input]] water: nan is text: say it in nan_text", (rule, 'nan = "text"\n'))
        self.refused("[[input]] water nan_when 1: unknown key 'whne'; near: when",
                     (rule, rule + 'nan_when = [{ whne = "N > 1", is = "row", when = "N > 1" }]\n'))
        self.refused("'poewr' in 'poewr > 1' is neither a symbol nor a parameter",
                     (rule, rule + 'nan_when = [{ when = "poewr > 1", is = "row" }]\n'))
        self.refused("[[input]] water: nan says what a NaN gives, and its dtype i32 has none",
                     ('dtype = "T"\nshape = ["N"]\ndomain', 'dtype = "i32"\nshape = ["N"]\ndomain'))

    def test_a_missing_key(self):
        self.refused("kettle.toml: [[input]] water: domain is missing",
                     ('domain = { kind = "real", scale = 1.0 }\n', ""))

    def test_names_that_nothing_has(self):
        self.refused("[[input]] water: no dtype or dtype variable 'f23'; near: f32", ('"T"\nshape = ["N"]\ndomain',
                                                                                      '"f23"\nshape = ["N"]\ndomain'))
        self.refused("[[output]] out: no input 'watr'; near: water",
                     ('doc = "after"', 'may_alias = ["watr"]\ndoc = ""'))
        self.refused("[[rule]] cups violate: no symbol 'M'", ('{ N = "10" }', '{ M = "10" }'))
        self.refused("'M' in 'M <= 9' is neither a symbol nor a parameter", ('"N <= 9"', '"M <= 9"'))
        self.refused("no form 'dense'", ('doc = "cups"', 'doc = ""\nform = "dense"'))

    def test_in_out_arguments_stand_once_in_each_list(self):
        inout = ("domain = {", "inout = true\ndomain = {")
        place = ("[[param]]", '[[output]]\ninout = "water"\n[[param]]')
        self.assertIn(", 0}", self.accepted(inout, place))  # must_alias
        self.refused("[[input]] water: is in-out: say at which place of the outputs it stands by [[output]] inout = ",
                     inout)
        self.refused("[[output]] water: the input water does not say inout = true", place)
        self.refused("[[output]] water: has more than inout", inout,
                     ("[[param]]", '[[output]]\ninout = "water"\ndoc = "again"\n[[param]]'))
        self.refused("[[output]] wine: no input 'wine'", ("[[param]]", '[[output]]\ninout = "wine"\n[[param]]'))

    def test_a_cpp_application_names_an_in_out_argument_once(self):
        op = tomllib.loads(self.changed([("domain = {", "inout = true\ndomain = {"),
                                         ("[[param]]", '[[output]]\ninout = "water"\n[[param]]')]))
        check("kettle.toml", op)
        header = call_header(completed(op))
        self.assertEqual(header.count("Tensor water = {};"), 1)
        self.assertIn("return {&out.out, &in.water};", header)

    def test_an_output_in_an_inputs_memory_is_shaped_like_it(self):
        self.accepted(('doc = "after"', 'must_alias = "water"\ndoc = ""'))
        self.refused("[[output]] out: shape is ['N', 2]; expected ['N'], as of water, whose memory it must have",
                     ('shape = ["N"]\ndoc = "after"', 'shape = ["N", 2]\nmust_alias = "water"\ndoc = ""'))

    def test_lists_and_elements_that_cross_bytes_are_refused_by_name(self):
        self.refused("[[input]] water: lists of tensors are not supported by this host yet",
                     ("domain = {", "list = true\ndomain = {"))
        self.refused("[dtypes] T: f6_e2m3fn: elements that cross bytes are not supported",
                     ('["f32", "bf16"]', '["f6_e2m3fn"]'))
        self.refused("[[input]] water: host is true: values of less than a byte",
                     ('["f32", "bf16"]', '["f4_e2m1fn"]'), ("domain = {", "host = true\ndomain = {"))

    def test_a_computed_size_asks_for_symbols_that_are_known(self):
        block = ('type = "f64"\ndefault = 1.0', 'type = "i64"\ndefault = 8\nmin = 1')
        size = ('["N"]\ndoc = "after"', '["ceil((N + 1) / power)"]\ndoc = ""')
        self.assertIn("size_from(ceil_divide((Wide(v.symbol(0)) + 1), Wide(v.i64(", self.accepted(block, size))
        self.refused("[[input]] water: N of 'N / 2' cannot be known: no required argument has a dimension that is N",
                     ('["N"]\ndomain', '["N / 2"]\ndomain'), ('["N"]\ndoc = "after"', '["N / 2"]\ndoc = ""'))
        self.refused("'power' in 'N / power' is no integer", ('["N"]\ndoc = "after"', '["N / power"]\ndoc = ""'),
                     ("default = 1.0", "default = 1.0\nmin_exclusive = 0.0"))

    def test_infinity_is_a_number_only_where_the_declaration_says_so(self):
        more = "default = 1.0\ntry = [inf]"
        self.refused("expected finite ones, or infinities with finite = false", ("default = 1.0", more))
        self.assertIn("numeric_limits<double>::infinity()", self.accepted(("default = 1.0", more + "\nfinite = false")))
        self.refused("expected finite ones", ("default = 1.0", "default = 1.0\ntry = [nan]\nfinite = false"))
        self.refused("has finite, but type is 'i64'; expected 'f64'",
                     ('type = "f64"\ndefault = 1.0', 'type = "i64"\ndefault = 1\nfinite = false'))

    def test_a_divisor_that_may_be_0(self):
        self.refused("'N / power' divides by 'power', which may be 0 or less",
                     ('["N"]\ndoc = "after"', '["N / power"]\ndoc = ""'),
                     ('type = "f64"\ndefault = 1.0', 'type = "i64"\ndefault = 1'))
        self.refused("'10 % N == 0' divides by 'N'", ('"N <= 9"', '"10 % N == 0"'))
        self.accepted(('"N <= 9"', '"N == 0 || 10 % N == 0"'))

    def test_ceil_takes_one_division(self):
        self.refused("ceil(N + 1 / 2): expected ceil(a / b)", ('"N <= 9"', '"ceil(N + 1 / 2) <= 9"'))
        self.refused("a parenthesis of 'ceil((N / 2' is not closed", ('"N <= 9"', '"ceil((N / 2"'))
        self.accepted(('"N <= 9"', '"ceil(ceil(N / 2) / 3) <= 9"'))

    def test_integers_alone_need_no_error_factor(self):
        bare = ('factor = 2\nreason = "one product"\n', "")
        self.accepted(bare, ('["f32", "bf16"]', '["i32"]'), ('nan = "element"\n', ""))
        self.refused("[numerics]: factor is missing: an output is a floating number", bare)

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


class Files(unittest.TestCase):
    def test_only_what_was_generated_for_an_operator_that_is_gone_is_left_over(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            note = "// Generated by plugin_api/generate.py from plugin_api/ops/{}.toml; do not edit.\n"
            for stem, text in (("kettle", note), ("teapot", note), ("by_hand", "// Written.\n")):
                (folder / f"{stem}.cpp").write_text(text)
            self.assertEqual(generate.leftovers({folder / "kettle.cpp": note}), [folder / "teapot.cpp"])

    def test_a_file_that_is_right_is_not_written_again(self):
        with tempfile.TemporaryDirectory() as name:
            files = generate.under(pathlib.Path(name), {"a/kettle.cpp": "boil", "a/teapot.cpp": "brew"})
            generate.write(files)
            for path in files:
                os.utime(path, (1, 1))
            kettle, teapot = files
            files[teapot] = "pour"
            generate.write(files)
            self.assertEqual((kettle.stat().st_mtime, teapot.read_text()), (1, "pour"))
            self.assertGreater(teapot.stat().st_mtime, 1)

    def test_the_tree_has_what_git_keeps_and_nothing_that_the_build_makes(self):
        def said():
            with contextlib.redirect_stderr(io.StringIO()) as errors:
                code = generate.check(headers, of_the_build)
            return code, errors.getvalue().splitlines()

        with tempfile.TemporaryDirectory() as name, unittest.mock.patch.object(generate, "ROOT", pathlib.Path(name)):
            headers = generate.under(pathlib.Path(name), {"kettle.h": f"// {generate.NOTE}\n"})
            of_the_build = generate.under(pathlib.Path(name), {"tables/kettle.cpp": "boil"})
            run = "run python3 plugin_api/generate.py"
            self.assertEqual(said(), (1, [f"kettle.h is not what the declarations say: {run}"]))
            generate.write(headers)
            self.assertEqual(said(), (0, []))
            pathlib.Path(name, "teapot.h").write_text(f"// {generate.NOTE}\n")
            generate.write(of_the_build)
            self.assertEqual(said(), (1, [f"teapot.h is of an operator that nothing declares: {run}",
                                          "tables/kettle.cpp is made by the build: remove it"]))

    def test_nothing_is_built_while_a_header_of_git_is_not_current(self):
        with tempfile.TemporaryDirectory() as name, unittest.mock.patch.object(generate, "ROOT", pathlib.Path(name)):
            with contextlib.redirect_stderr(io.StringIO()) as errors:
                self.assertEqual(generate.main(["--build", f"{name}/build"]), 1)
            self.assertIn("plugin_api/include/rlk/ops/silu.h is not what the declarations say", errors.getvalue())
            self.assertFalse(pathlib.Path(name, "build").exists())

    def test_all_of_an_operator_is_printed(self):
        def said(*words):
            with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as errors:
                code = generate.main(["--print", *words])
            headings = [line.removeprefix("==== ") for line in out.getvalue().splitlines() if line.startswith("==== ")]
            return code, headings, errors.getvalue()

        self.assertEqual(said("silu"), (0, [
            "plugin_api/include/rlk/ops/silu.h", "plugin_api/include/rlk/sdk/ops/silu.hpp",
            "loader/api/include/rlk/ops/silu.hpp", "core/declaration/tables/silu.cpp",
            "rlk/ops.py of the Python package, its part"], ""))
        self.assertEqual(said("window_max")[:2], (0, [
            "tests/declarations/include/rlk/ops/window_max.h", "tests/declarations/include/rlk/sdk/ops/window_max.hpp",
            "tests/declarations/tables/window_max.cpp"]))
        code, headings, text = said("silo")
        self.assertEqual((code, headings), (1, []))
        self.assertIn("no operator is named 'silo'; near: silu", text)


class Limits(unittest.TestCase):
    """The generator's limits are those of the tables."""

    def test_they_agree_with_the_tables(self):
        header = (ROOT / "core/declaration/declaration.hpp").read_text()
        for name, kind in (("kMaxSymbols", "symbol"), ("kMaxArguments", "input"), ("kMaxArguments", "output"),
                           ("kMaxDtypeVariables", "dtypes"), ("kMaxParams", "param")):
            self.assertIn(f"inline constexpr int {name} = {LIMITS[kind]};", header)


if __name__ == "__main__":
    unittest.main()
