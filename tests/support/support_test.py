"""plugins/SUPPORT.md and the table in the README are what plugins/support.py makes of today's plugins and reports; the tests that it names are there and
name the operators; the operators that it reads from sources are those of the built plugins."""
import contextlib
import ctypes
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import unittest

ROOT, LIBRARIES = pathlib.Path(os.environ["RLK_TEST_ROOT"]), pathlib.Path(os.environ["RLK_TEST_LIBRARIES"])
sys.path.insert(0, str(ROOT / "plugins"))
import sources  # noqa: E402
import support  # noqa: E402

FACTS = tomllib.loads((ROOT / "plugins" / "support.toml").read_text())


def sources_of(test):
    """The files of a test, by the name that ctest has; empty when there is none of this name."""
    for cmake in ROOT.glob("tests/**/CMakeLists.txt"):
        text = cmake.read_text()
        unit = re.search(r"rlk_add_test\(\s*" + test + r"\s+SOURCES\s+([^)]*?)(LIBRARIES|\))", text)
        if unit:
            return [cmake.parent / name for name in unit.group(1).split()]
        story = cmake.parent / (test.split("_", 1)[1] + "_test.py")
        if re.search(r"NAME " + test + r"\b", text) and story.exists():
            return [story]
    return []


def built_operators(library):
    """The operators of a plugin's table, whose entry touches no vendor's runtime."""
    version = (ROOT / "plugin_api/include/rlk/abi/version.h").read_text()
    number = lambda name: int(re.search(r"#define " + name + r"\s+(\d+)", version).group(1))  # noqa: E731
    host = (ctypes.c_uint32 * 14)(56, number("RLK_ABI_MAJOR"), number("RLK_ABI_MINOR"), number("RLK_ABI_DRAFT"))
    entry = ctypes.CDLL(str(library)).rlk_plugin_entry_v1
    entry.restype = ctypes.c_void_p
    table = entry(host, None)
    count = ctypes.cast(table, ctypes.POINTER(ctypes.c_uint32))[6]
    rows = ctypes.cast(table + 64, ctypes.POINTER(ctypes.POINTER(ctypes.c_void_p)))[0]
    return {ctypes.cast(rows[i] + 8, ctypes.POINTER(ctypes.c_char_p))[0].decode() for i in range(count)}


@contextlib.contextmanager
def copied_plugins():
    """A copy of plugins/ that the page is made of meanwhile."""
    before = support.PLUGINS, support.SIMT
    with tempfile.TemporaryDirectory() as folder:
        plugins = pathlib.Path(folder, "plugins")
        shutil.copytree(support.PLUGINS, plugins, ignore=shutil.ignore_patterns("__pycache__"))
        try:
            support.PLUGINS, support.SIMT = plugins, plugins / "simt"
            yield plugins
        finally:
            support.PLUGINS, support.SIMT = before


def earlier(report):
    """The operators of cuda whose sources are others than those of the report."""
    classes = support.implementations("cuda", support.operators())
    return sources.changed(report, sources.hashes(support.PLUGINS, "cuda", classes))


class Page(unittest.TestCase):
    def test_it_is_current(self):
        self.assertEqual(support.PAGE.read_text(), support.page(), "run python3 plugins/support.py")
        self.assertEqual(support.README.read_text(), support.readme(), "run python3 plugins/support.py")

    def test_the_table_of_families_counts_every_operator_once(self):
        rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in support.families().splitlines()[2:]]
        self.assertEqual(sum(int(row[1]) for row in rows), len(support.operators()))
        levels, _, vendors = support.levels()
        for column, vendor in enumerate(vendors, 2):
            counted = sum(int(number) for row in rows for number in re.findall(r"\d+", row[column]))
            self.assertEqual(counted, sum(vendor in known for known in levels.values()), vendor)

    def test_every_plugin_is_on_it(self):
        # For tests of hosts, other people's kernels on any device, and a library for the devices of the cuda plugin.
        no_vendors = {"fault", "tvmffi", "cudnn"}
        plugins = {path.parent.name for path in ROOT.glob("plugins/*/plugin.cpp")} - no_vendors
        self.assertEqual(plugins - set(FACTS), set(), "add the vendor to plugins/support.toml")

    def test_the_tests_that_it_names_are_there_and_name_the_operators(self):
        for vendor, fact in FACTS.items():
            for run, test, shown in [(run, *one) for run in ("simulated", "long") for one in fact.get(run, {}).items()]:
                with self.subTest(vendor=vendor, run=run, test=test):
                    sources = sources_of(test)
                    self.assertTrue(sources, "there is no such test")
                    text = "".join(source.read_text() for source in sources)
                    if run == "long":
                        text = text.partition("if command.LONG:")[2]
                    if shown == "all":
                        self.assertRegex(text, r'expect_operators_verified\(|in enumerate\(operators\(\)\)')
                    else:
                        for op in shown:
                            self.assertIn('"%s"' % op, text)

    def test_the_stories_whose_long_runs_have_every_shared_operator_ask_for_them(self):
        for vendor, fact in FACTS.items():
            if "mapped" in fact:
                with self.subTest(vendor=vendor):
                    (story,) = sources_of(fact["mapped"])
                    self.assertIn("self.expect_operators_verified(", story.read_text())

    def test_the_operators_are_those_of_the_built_plugins(self):
        compared = 0
        for vendor in FACTS:
            library = LIBRARIES / ("librlk_plugin_%s.so" % vendor)
            if (ROOT / "plugins" / vendor / "plugin.cpp").exists() and library.exists():
                with self.subTest(vendor=vendor):
                    self.assertEqual(set(support.implementations(vendor, support.operators())), built_operators(library))
                compared += 1
        if compared == 0:
            self.skipTest("no plugin is built")

    def test_a_report_from_hardware_changes_the_page_and_another_does_not(self):
        unit = {"op": "add", "dtype": "f32", "feature": "", "implementation": "cnnl", "verdict": "verified", "cases": 3}
        declined = dict(unit, dtype="f64", verdict="declined", cases=0, reason="a is f64; supported: f32, bf16, f16")
        plugin = {"id": "cambricon", "version": "0.1.0", "devices": [{"name": "MLU590"}], "units": [unit, declined],
                  "evidence": [{"kind": "device_node", "value": "cambricon_dev0", "supports": True}]}
        with copied_plugins() as plugins:
            path = plugins / "cambricon" / "reports" / "mlu590.json"
            path.parent.mkdir(exist_ok=True)
            for change, active in (({}, True), ({"version": "0.0.9"}, False), ({"devices": []}, False),
                                   ({"evidence": []}, False), ({"units": [dict(unit, verdict="failed")]}, False)):
                with self.subTest(**change):
                    report = {"schema": 1, "date": "2026-01-31", "plugin": dict(plugin, **change)}
                    path.write_text(json.dumps(report))
                    support.record(path)
                    page = support.page()
                    self.assertEqual("**hardware**: MLU590, 2026-01-31: f32" in page, active)
                    self.assertEqual("active: MLU590, 2026-01-31, the suite's ordinary part" in page, active)
                    self.assertEqual("| `add` | cnnl | f64 | the CPU | only f32, bf16, f16 |" in page, active)
            path.write_text(json.dumps({"schema": 1, "date": "2026-01-31", "full": True, "plugin": plugin}))
            self.assertIn("active: MLU590, 2026-01-31, `--full` |", support.page())

    def test_the_page_says_what_the_hardware_ran_beyond_the_report(self):
        self.assertIn("the suite's ordinary part; `--full` without a report: " + FACTS["cuda"]["full"], support.page())

    def test_an_operator_whose_sources_changed_since_the_report_is_earlier(self):
        with copied_plugins() as plugins:
            report = plugins / "cuda" / "reports" / "h200.json"
            support.record(report)
            self.assertEqual(earlier(report), set())
            for name, more, expected in (
                    ("simt/operators/rms_norm.cuh", "\n// one more line\n\n  /* and\n one */", set()),
                    ("simt/operators/rms_norm.cuh", "\nint other;", {"rms_norm"}),
                    ("simt/skeleton/norms.cuh", "\nint other;", {"layer_norm", "rms_norm", "rms_norm_backward"}),
                    ("simt/host/scan.cpp", "\nint other;", {"cumsum", "cumsum_backward", "gae", "returns"}),
                    ("simt/kernels/logp.cu", "\nint other;", {"logp", "linear_logp"}),
                    ("products/dense.cpp", "\nint other;", {"gemm", "linear", "matmul"}),
                    ("cuda/kernels/wgmma.cuh", "\nint other;", {"attention", "prefix_shared_attention"}),
                    ("cuda/cublaslt.cpp", "\nint other;", {"linear_jsd", "linear_backward"})):
                with self.subTest(name=name, more=more):
                    source = plugins / name
                    text = source.read_text()
                    source.write_text(text + more)
                    found = earlier(report)
                    self.assertLessEqual(expected, found)
                    self.assertNotIn("adamw_step", found)
                    if not expected:
                        self.assertEqual(found, set())
                    source.write_text(text)
            self.assertEqual(earlier(report), set())
            source = plugins / "simt" / "operators" / "rms_norm.cuh"
            source.write_text(source.read_text() + "\nint other;")
            row = re.search(r"^\| `rms_norm` \| ([^|]*) \|", support.page(), re.M).group(1)
            self.assertRegex(row, "^simulated .*; on NVIDIA H200, [-0-9]+, before its sources changed$")
            self.assertRegex(support.families(), r"\| norm \| 16 \| 15 hardware, 1 earlier \|")
            support.record(report)
            self.assertEqual(earlier(report), set())

    def test_a_report_without_its_sources_names_the_command(self):
        with copied_plugins() as plugins:
            (plugins / "cuda" / "reports" / "h200.sources").unlink()
            with self.assertRaisesRegex(SystemExit, r"--record .*cuda/reports/h200\.json"):
                support.page()

    def test_the_check_of_the_command_says_what_to_do(self):
        done = subprocess.run([sys.executable, "-B", str(support.PLUGINS / "support.py"), "--check"], capture_output=True)
        self.assertEqual(done.returncode, 0, done.stderr)


if __name__ == "__main__":
    unittest.main()
