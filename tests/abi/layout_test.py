"""Does the append-only checker refuse everything that would break a plugin, and nothing else?

Each test writes the headers of a synthetic release and compares it with the one before it. Run through ctest.
"""
import contextlib
import io
import json
import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "plugin_api/abi"))
import layout  # noqa: E402

RELEASE = """
#include <stdint.h>
#define RLK_ABI_MAJOR 1
#define RLK_ABI_MINOR 0
#define RLK_ABI_DRAFT 0
#define RLK_KIND_HOT 1u
#define RLK_KIND_COLD 2u
#define RLK_SERVICE "rlk.kettle/1" /* an id */
#define RLK_BREW_N_INPUTS 2
typedef int32_t rlk_status;
typedef struct rlk_kettle rlk_kettle;
typedef void (*rlk_whistle)(void* user);
typedef struct rlk_water { /* passed by value: no struct_size */
  uint32_t litres, degrees;
} rlk_water;
typedef struct rlk_kettle_api {
  uint32_t struct_size;
  uint32_t reserved;
  char name[16];
  rlk_status (*fill)(rlk_kettle*, const rlk_water* water, int64_t spoons);
  rlk_status (*boil)(rlk_kettle*, double degrees);
} rlk_kettle_api;
"""


class Release:
    """An include folder with one header."""

    def __init__(self, text):
        self.folder = tempfile.TemporaryDirectory()
        self.path = pathlib.Path(self.folder.name)
        (self.path / "rlk/abi").mkdir(parents=True)
        (self.path / "rlk/abi/kettle.h").write_text(text)

    def layout(self):
        with self.folder:
            return layout.measure(self.path)


def release(*changes):
    """The layout of RELEASE with each (old, new) replaced."""
    text = RELEASE
    for old, new in changes:
        assert text.count(old) == 1, f"{old!r} must occur once"
        text = text.replace(old, new)
    return Release(text).layout()


BEFORE = release()
BOIL = "  rlk_status (*boil)(rlk_kettle*, double degrees);\n"
FILL = "  rlk_status (*fill)(rlk_kettle*, const rlk_water* water, int64_t spoons);\n"


class AppendOnly(unittest.TestCase):
    def allowed(self, *changes):
        self.assertEqual(layout.compare(BEFORE, release(*changes)), [])

    def refused(self, expected, *changes):
        errors = layout.compare(BEFORE, release(*changes))
        self.assertTrue(errors, "the checker let it pass")
        self.assertIn(expected, "\n".join(errors))

    def test_unchanged(self):
        self.allowed()

    def test_appended_field(self):
        self.allowed((BOIL, BOIL + "  uint64_t capacity_ml;\n"))

    def test_appended_slot(self):
        self.allowed((BOIL, BOIL + "  rlk_status (*pour)(rlk_kettle*, rlk_water* out);\n"))

    def test_new_struct_constant_and_input(self):
        self.allowed(("typedef struct rlk_kettle rlk_kettle;",
                      "typedef struct rlk_kettle rlk_kettle;\n"
                      "typedef struct rlk_cup { uint32_t struct_size; uint32_t reserved; } rlk_cup;"),
                     ("#define RLK_KIND_COLD 2u", "#define RLK_KIND_COLD 2u\n#define RLK_KIND_ICED 4u"),
                     ("N_INPUTS 2", "N_INPUTS 3"), ("RLK_ABI_MINOR 0", "RLK_ABI_MINOR 1"))

    def test_renamed_parameter(self):
        self.allowed(("double degrees)", "double celsius)"))

    def test_changed_comment(self):
        self.allowed(("/* an id */", "/* another word */"))

    def test_inserted_field(self):
        self.refused("rlk_kettle_api.fill: was at offset 24", (FILL, "  uint64_t capacity_ml;\n" + FILL))

    def test_inserted_slot(self):
        self.refused("rlk_kettle_api.boil: was at offset 32", (BOIL, "  rlk_status (*pour)(rlk_kettle*);\n" + BOIL))

    def test_swapped_slots(self):
        self.refused("rlk_kettle_api.fill: was at offset 24 with 8 bytes, is at 32", (FILL + BOIL, BOIL + FILL))

    def test_swapped_fields_of_one_declaration(self):
        self.refused("rlk_water.litres", ("litres, degrees", "degrees, litres"))

    def test_changed_type_of_the_same_size(self):
        self.refused("rlk_water.litres: was uint32_t, is int32_t",
                     ("uint32_t litres, degrees;", "int32_t litres;\n  uint32_t degrees;"))

    def test_longer_array(self):
        self.refused("rlk_kettle_api.name: was char[16], is char[32]", ("char name[16]", "char name[32]"))

    def test_changed_signature_of_a_slot(self):
        self.refused("rlk_kettle_api.boil",
                     ("(*boil)(rlk_kettle*, double degrees)", "(*boil)(rlk_kettle*, float degrees)"))

    def test_parameter_added_to_a_slot(self):
        self.refused("rlk_kettle_api.boil", ("double degrees)", "double degrees, int32_t seconds)"))

    def test_changed_return_type_of_a_slot(self):
        self.refused("rlk_kettle_api.boil", ("rlk_status (*boil)", "void (*boil)"))

    def test_lost_const(self):
        self.refused("rlk_kettle_api.fill", ("const rlk_water* water", "rlk_water* water"))

    def test_removed_slot(self):
        self.refused("rlk_kettle_api.boil: removed or renamed", (BOIL, ""))

    def test_renamed_slot(self):
        self.refused("rlk_kettle_api.boil: removed or renamed", ("(*boil)", "(*heat)"))

    def test_removed_struct(self):
        self.refused("struct rlk_water: removed", ("typedef struct rlk_water { /* passed by value: no struct_size */\n"
                                                   "  uint32_t litres, degrees;\n} rlk_water;",
                                                   "typedef struct rlk_water rlk_water;"))

    def test_padding_before_an_appended_field(self):
        self.refused("rlk_kettle_api.capacity_ml: 4 bytes of implicit padding",
                     (BOIL, BOIL + "  uint32_t flags;\n  uint64_t capacity_ml;\n"))

    def test_padding_at_the_end(self):
        self.refused("rlk_kettle_api: 4 bytes of implicit padding at its end", (BOIL, BOIL + "  uint32_t flags;\n"))

    def test_padding_in_a_new_struct(self):
        self.refused("rlk_cup.size_ml: 4 bytes of implicit padding",
                     ("typedef struct rlk_kettle rlk_kettle;",
                      "typedef struct rlk_kettle rlk_kettle;\n"
                      "typedef struct rlk_cup { uint32_t struct_size; uint64_t size_ml; } rlk_cup;"))

    def test_growth_of_a_struct_without_struct_size(self):
        self.refused("rlk_water: grew from 8 to 12 bytes", ("litres, degrees", "litres, degrees, minerals"))

    def test_changed_constant(self):
        self.refused("constant RLK_KIND_COLD: was 2, is 3", ("COLD 2u", "COLD 3u"))

    def test_removed_constant(self):
        self.refused("constant RLK_KIND_COLD: was 2, is gone", ("#define RLK_KIND_COLD 2u\n", ""))

    def test_changed_service_id(self):
        self.refused("constant RLK_SERVICE", ("kettle/1", "kettle/2"))

    def test_fewer_inputs(self):
        self.refused("constant RLK_BREW_N_INPUTS: was 2, is 1", ("N_INPUTS 2", "N_INPUTS 1"))

    def test_changed_typedef(self):
        self.refused("typedef rlk_whistle", ("(*rlk_whistle)(void* user)", "(*rlk_whistle)(void* user, int32_t pitch)"))
        self.refused("typedef rlk_status", ("typedef int32_t rlk_status", "typedef int64_t rlk_status"))

    def test_what_the_parser_does_not_know_is_an_error(self):
        for change in (("double degrees", "double degrees);\n  rlk_status (*x)(void (*)(int), int"),
                       ("uint32_t reserved;", "uint32_t reserved : 4;"), ("typedef int32_t", "extern int32_t")):
            with self.subTest(change), self.assertRaises(layout.LayoutError):
                release(change)


BREW = """
#include <stdint.h>
#define RLK_BREW_REVISION 1
#define RLK_BREW_HEAT_LOW 0
typedef struct rlk_brew_params {
  uint32_t struct_size;
  uint32_t reserved;
  int64_t heat;
} rlk_brew_params;
#define RLK_BREW_PARAMS_INIT {sizeof(rlk_brew_params), 0, 0}
#define RLK_BREW_IN_WATER 0
#define RLK_BREW_N_INPUTS 1
"""
LEAVES = BREW.replace("int64_t heat;", "int64_t heat;\n  int64_t leaves;").replace(
    "#define RLK_BREW_N_INPUTS 1", "#define RLK_BREW_IN_LEAVES 1\n#define RLK_BREW_N_INPUTS 2")


class Recorded(unittest.TestCase):
    """Releases with an operator, in files as they are recorded."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.headers, self.records = pathlib.Path(folder.name, "include"), pathlib.Path(folder.name, "abi")
        (self.headers / "rlk/abi").mkdir(parents=True)
        (self.headers / "rlk/ops").mkdir()
        self.records.mkdir()
        self.write(BREW)

    def write(self, text, release=RELEASE, draft=1):
        """The header of the operator in a release of the ABI."""
        release = release.replace("#define RLK_BREW_N_INPUTS 2\n", "").replace("DRAFT 0", f"DRAFT {draft}")
        (self.headers / "rlk/abi/kettle.h").write_text(release)
        (self.headers / "rlk/ops/brew.h").write_text(text)

    def record(self):
        layout.record(self.headers, self.records)

    def check(self):
        return "\n".join(layout.check(self.headers, self.records))

    def compare(self):
        """The headers with the only record, by the command's own words."""
        [path] = self.records.iterdir()
        with contextlib.redirect_stdout(io.StringIO()) as out:
            code = layout.main(["compare", str(path), str(self.headers)])
        self.assertEqual(code, 1 if out.getvalue() else 0)
        return out.getvalue()


class Records(Recorded):
    """check: the current headers against the record of their version."""

    def test_equal(self):
        self.record()
        self.assertEqual([path.name for path in self.records.iterdir()], ["1.0-draft1.json"])
        self.assertEqual(self.check(), "")

    def test_not_recorded(self):
        self.assertIn("1.0-draft1.json does not exist", self.check())

    def test_a_line_for_each_struct_and_operator(self):
        self.record()
        lines = (self.records / "1.0-draft1.json").read_text().splitlines()
        starts = [line.split(":")[0].strip() for line in lines]
        for name in ("rlk_water", "rlk_kettle_api", "brew"):
            self.assertEqual(starts.count(f'"{name}"'), 1, name)
        self.assertEqual([line for line in lines if "spoons" in line or "heat" in line],
                         [line for line in lines if line.startswith(' "brew": ')])

    def test_changed_without_a_new_version(self):
        self.record()
        self.write(BREW, RELEASE.replace(BOIL, BOIL + "  uint64_t capacity_ml;\n"))
        self.assertIn("rlk_kettle_api: differs from the record", self.check())
        self.assertIn("raise the draft number", self.check())

    def test_an_operator_alone_is_recorded_without_a_new_version(self):
        self.record()
        self.write(LEAVES)
        (self.headers / "rlk/ops/sip.h").write_text(BREW.replace("brew", "sip").replace("BREW", "SIP"))
        self.assertIn("operator brew: struct rlk_brew_params: differs from the record", self.check())
        self.assertIn("operator sip: not in the record", self.check())
        self.assertNotIn("raise the draft number", self.check())
        self.record()
        self.assertEqual(self.check(), "")
        (self.headers / "rlk/ops/sip.h").unlink()
        self.assertIn("operator sip: recorded, but gone", self.check())

    def test_a_frozen_version_is_not_written_over_and_wants_more_than_one_record(self):
        self.write(BREW, draft=0)
        self.record()
        self.assertIn("keep a record of every release", self.check())
        with self.assertRaises(layout.LayoutError):
            self.record()


class Operators(Recorded):
    """compare: a release against the record of an older one, with the operators of both."""

    def setUp(self):
        super().setUp()
        self.record()

    def test_unchanged(self):
        self.assertEqual(self.compare(), "")

    def test_a_new_operator_is_allowed(self):
        (self.headers / "rlk/ops/sip.h").write_text(BREW.replace("brew", "sip").replace("BREW", "SIP"))
        self.assertEqual(self.compare(), "")

    def test_a_new_revision_appends(self):
        self.write(LEAVES.replace("REVISION 1", "REVISION 2"))
        self.assertEqual(self.compare(), "")

    def test_a_changed_header_of_the_same_revision(self):
        self.write(LEAVES)
        self.assertIn("operator brew: its header changed: raise the revision", self.compare())

    def test_a_new_revision_that_does_not_append(self):
        self.write(LEAVES.replace("REVISION 1", "REVISION 2").replace("  int64_t heat;\n", ""))
        self.assertIn("rlk_brew_params.heat: removed", self.compare())
        self.write(LEAVES.replace("REVISION 1", "REVISION 2").replace("IN_WATER 0", "IN_WATER 2"))
        self.assertIn("constant RLK_BREW_IN_WATER: was 0, is 2", self.compare())

    def test_an_older_revision(self):
        self.write(BREW.replace("REVISION 1", "REVISION 0"))
        self.assertIn("constant RLK_BREW_REVISION: was 1, is 0", self.compare())

    def test_a_removed_operator(self):
        (self.headers / "rlk/ops/brew.h").unlink()
        self.assertIn("operator brew: removed", self.compare())

    def test_the_abi_beside_it(self):
        self.write(BREW, RELEASE.replace(FILL, ""))
        self.assertIn("rlk_kettle_api.fill: removed", self.compare())


class ThisAbi(unittest.TestCase):
    def test_headers_are_what_was_recorded(self):
        self.assertEqual(layout.check(), [])

    def test_nothing_is_padded(self):
        abi = layout.measure(layout.HEADERS)
        for current in [abi, *abi["operators"].values()]:
            self.assertEqual([e for n, s in current["structs"].items() for e in layout.padding(n, s)], [])

    def test_everything_growing_says_its_size(self):
        current = layout.measure(layout.HEADERS)
        without = {n for n, s in current["structs"].items() if s["fields"][0]["name"] != "struct_size"}
        self.assertEqual(without, {"rlk_dtype", "rlk_data_error_record"})
        for name, operator in current["operators"].items():
            self.assertEqual([s["fields"][0]["name"] for s in operator["structs"].values()], ["struct_size"], name)

    def test_the_record_reads_back(self):
        current = layout.measure(layout.HEADERS)
        self.assertEqual(json.loads(layout.text_of(current)), current)


if __name__ == "__main__":
    unittest.main()
