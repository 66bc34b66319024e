"""README.md and the pages in docs/ tell the truth: their commands work as printed, their programs compile, their numbers are
those of the tree, and rlk reads the variables that they name."""
import glob
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import tomllib
import unittest

import command

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PAGES = ["README.md", *(os.path.relpath(path, ROOT) for path in sorted(glob.glob(os.path.join(ROOT, "docs/*.md"))))]


def text_of(page):
    with open(os.path.join(ROOT, page)) as file:
        return file.read()


def blocks(page, *languages):
    """(language, text) of the fenced blocks in these languages."""
    return re.findall(r"^```(%s)\n(.*?)^```" % "|".join(languages), text_of(page), re.MULTILINE | re.DOTALL)


class Commands(command.Case):
    def run_all_of(self, page):
        """How many it has; a page's commands run in the order that they stand in, in one folder."""
        text = text_of(page).replace("\\\n", "")
        commands = re.findall(r"^    (cd|rlk-plugins) (.*?)(?: +#.*)?$", text, re.MULTILINE)
        top = self.folder
        for program, words in commands:
            words = shlex.split(words)
            if program == "cd":
                self.folder = self.path(words[0])
                continue
            with self.subTest(page=page, words=words):
                if words[-1].endswith(".so") or words[0] == "conformance":
                    # Stands for the plugin that the page builds.
                    [built] = [word for word in words if word.endswith(".so")]
                    os.makedirs(self.path(os.path.dirname(built)), exist_ok=True)
                    os.replace(self.add_plugin("golden"), self.path(built))
                    words = words + (["--op", "add"] if words[0] == "conformance" else [])
                self.output(*words)
        self.folder = top
        return len(commands)

    def test_every_command_works_as_printed(self):
        ran = {}
        for page in PAGES:
            top = self.folder
            self.folder = tempfile.mkdtemp(dir=top)
            if "logits.npy" in text_of(page):  # what its commands read
                make = os.path.join(ROOT, "examples/make_batch.py")
                subprocess.run([sys.executable, "-B", make, self.path("build/batch")], check=True, capture_output=True)
                command.write_npy(self.path("logits.npy"), "<f4", (2, 3), [1, 2, 3, 3, 2, 1])
                command.write_npy(self.path("ids.npy"), "<i8", (2,), [2, 2])
            ran[page] = self.run_all_of(page)
            shutil.rmtree(self.folder)
            self.folder = top
        for page, least in (("README.md", 5), ("docs/cluster.md", 9), ("docs/vendor.md", 4), ("docs/cpp.md", 4)):
            self.assertGreaterEqual(ran[page], least, page)

    def test_the_readmes_numbers_are_true(self):
        readme = text_of("README.md")
        self.assertIn(f"In numbers: {len(self.json('ops')['ops'])} operators", readme)
        [lines] = re.findall(r"template is one file of (\d+) lines", readme)
        with open(os.path.join(ROOT, "plugin_api/template/acme.cpp")) as file:
            self.assertLess(abs(len(file.readlines()) - int(lines)), 10)
        path = self.add_plugin("golden")
        cases = self.json("conformance", path, "--op", "logp")["cases"]
        [most] = re.findall(r"up to (\d+) test cases", readme)
        self.assertTrue(int(most) - 100 < cases <= int(most), cases)  # golden has every dtype and option

    def test_the_table_of_operators_has_every_one(self):
        rows = re.findall(r"^\| (`[a-z_0-9`, ]+`) \|", text_of("docs/operators.md").partition("## Classes")[0], re.MULTILINE)
        named = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
        forward = [op["name"] for op in self.json("ops")["ops"] if not op["name"].endswith("_backward")]
        self.assertEqual(sorted(named), sorted(forward))

    def test_every_variable_is_one_that_rlk_reads(self):
        names = [name for row in re.findall(r"^\| (`RLK_.*?) \|", text_of("docs/cluster.md"), re.MULTILINE)
                 for name in re.findall(r"RLK_[A-Z_]+", row)]
        self.assertGreater(len(names), 12)
        names = ["RLK_OP_LOGP" if name == "RLK_OP_" else name for name in names]
        unset = ("RLK_CONFIG", "RLK_PROBER", "RLK_REQUIRE", "RLK_CACHE_SEED")
        values = {name: "" if name in unset else "1" for name in names}
        values.update(RLK_PLUGIN_PATH=None, RLK_WHEEL_PLUGINS=None, RLK_ADD_PLUGIN_PATH=self.plugins, RLK_CACHE_DIR=None,
                      RLK_PROBE="isolated", RLK_LOG="off", RLK_FALLBACK="warn", RLK_ALLOW="off", RLK_PROBE_TIMEOUT="60", RLK_PLUGINS_SELECT="*",
                      RLK_PLUGINS_DISABLE="none", RLK_THREAD_POOL="own", RLK_VERIFY="eager", RLK_REPORTS="ignore")
        checks = self.json("doctor", **values)["checks"]
        self.assertEqual([check for check in checks if "reads no such variable" in check["text"]], [])

    def test_every_policy_is_one_that_rlk_reads(self):
        policies = [(page, text) for page in PAGES for _, text in blocks(page, "toml")]
        self.assertGreaterEqual(len(policies), 2)
        for name in ("site.toml", "plugins.sha256"):  # that the policies name
            with open(self.path(name), "w"):
                pass
        for page, text in policies:
            with self.subTest(page=page):
                with open(self.path("rlk.toml"), "w") as file:
                    # Which folders and backends there are is not the page's business.
                    file.write(text.replace('"/opt/rlk/plugins"', "").replace('"cuda"]', "]"))
                checks = self.json("doctor", RLK_CONFIG=self.path("rlk.toml"))["checks"]
                self.assertEqual([check for check in checks if check["status"] == "problem"], [])
                self.assertTrue(tomllib.loads(text))


class Text(unittest.TestCase):
    def test_every_program_compiles(self):
        programs = [program for page in PAGES for program in blocks(page, "c", "cpp")]
        self.assertEqual([language for language, _ in programs], ["cpp", "c"])
        for language, text in programs:
            name, standard = {"c": ("c", "c11"), "cpp": ("c++", "c++17")}[language]
            includes = [f"-I{root}/{folder}/include" for root in (ROOT, os.environ["RLK_TEST_GENERATED"])
                        for folder in ("loader/api", "plugin_api")]
            compiled = subprocess.run(["c++", "-x", name, f"-std={standard}", "-Wall", "-Wextra", "-Werror",
                                       "-fsyntax-only", *includes, "-"], input=text, text=True, capture_output=True)
            self.assertEqual(compiled.returncode, 0, compiled.stderr)

    def test_nothing_is_installed_from_an_index_that_does_not_have_it(self):
        alone = r"pip install (?:[^#\n\"]* )?rlk(?=[\s\"\\=<>\[]|$)"
        self.assertTrue(re.search(alone, "pip install numpy rlk") and re.search(alone, "pip install rlk==0.1.0"))
        examples = glob.glob(os.path.join(ROOT, "examples/**/*.*"), recursive=True)
        self.assertGreater(len(examples), 5)
        for page in [*PAGES, "packaging/python/README.md", *(os.path.relpath(path, ROOT) for path in examples)]:
            self.assertEqual(re.findall(alone, text_of(page), re.MULTILINE), [], page)


if __name__ == "__main__":
    command.main()
