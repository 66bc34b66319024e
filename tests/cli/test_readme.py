"""README.md tells the truth: its commands work as printed, and rlk reads the variables it names."""
import os
import re
import shlex
import shutil
import subprocess
import sys

import command

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def readme():
    with open(os.path.join(ROOT, "README.md")) as file:
        return file.read()


class Readme(command.Case):
    def test_every_command_works_as_printed(self):
        commands = re.findall(r"^    (cd|rlk-plugins) (.*?)(?: +#.*)?$", readme().replace("\\\n", ""), re.MULTILINE)
        self.assertGreater(len(commands), 10)
        subprocess.run([sys.executable, "-B", os.path.join(ROOT, "examples/make_batch.py"), self.path("build/batch")],
                       check=True, capture_output=True)
        command.write_npy(self.path("logits.npy"), "<f4", (2, 3), [1, 2, 3, 3, 2, 1])
        command.write_npy(self.path("ids.npy"), "<i8", (2,), [2, 2])
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)  # below, the folder changes
        for program, text in commands:
            words = shlex.split(text)
            if program == "cd":
                self.folder = self.path(words[0])
                continue
            with self.subTest(words=words):
                if words[-1].endswith(".so"):
                    # Stands for the plugin that the README builds.
                    os.makedirs(self.path("acme/build"), exist_ok=True)
                    os.replace(self.add_plugin("golden"), self.path(words[-1]))
                    words = words + (["--op", "add"] if words[0] == "conformance" else [])
                self.output(*words)

    def test_its_numbers_are_true(self):
        self.assertIn(f"In numbers: {len(self.json('ops')['ops'])} operators", readme())
        [lines] = re.findall(r"template is one file of (\d+) lines", readme())
        with open(os.path.join(ROOT, "plugin_api/template/acme.cpp")) as file:
            self.assertLess(abs(len(file.readlines()) - int(lines)), 10)
        path = self.add_plugin("golden")
        cases = self.json("conformance", path, "--op", "logp")["cases"]
        [most] = re.findall(r"tried with up to (\d+) cases", readme())
        self.assertTrue(int(most) - 100 < cases <= int(most), cases)  # golden has every dtype and option

    def test_every_program_compiles(self):
        programs = re.findall(r"^```(c|cpp)\n(.*?)^```", readme(), re.MULTILINE | re.DOTALL)
        self.assertEqual([language for language, _ in programs], ["cpp", "c"])
        for language, text in programs:
            name, standard = {"c": ("c", "c11"), "cpp": ("c++", "c++17")}[language]
            includes = [f"-I{root}/{folder}/include" for root in (ROOT, os.environ["RLK_TEST_GENERATED"])
                        for folder in ("loader/api", "plugin_api")]
            compiled = subprocess.run(["c++", "-x", name, f"-std={standard}", "-Wall", "-Wextra", "-Werror",
                                       "-fsyntax-only", *includes, "-"], input=text, text=True, capture_output=True)
            self.assertEqual(compiled.returncode, 0, compiled.stderr)

    def test_the_table_has_every_operator(self):
        rows = re.findall(r"^\| (`[a-z_0-9`, ]+`) \|", readme(), re.MULTILINE)
        named = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
        forward = [op["name"] for op in self.json("ops")["ops"] if not op["name"].endswith("_backward")]
        self.assertEqual(sorted(named), sorted(forward))

    def test_every_variable_is_one_that_rlk_reads(self):
        names = [name for row in re.findall(r"^\| (`RLK_.*?) \|", readme(), re.MULTILINE)
                 for name in re.findall(r"RLK_[A-Z_]+", row)]
        self.assertGreater(len(names), 12)
        names = ["RLK_OP_LOGP" if name == "RLK_OP_" else name for name in names]
        unset = ("RLK_CONFIG", "RLK_PROBER", "RLK_REQUIRE", "RLK_CACHE_SEED")
        values = {name: "" if name in unset else "1" for name in names}
        values.update(RLK_PLUGIN_PATH=None, RLK_ADD_PLUGIN_PATH=self.plugins, RLK_CACHE_DIR=None, RLK_PROBE="isolated",
                      RLK_LOG="off", RLK_FALLBACK="warn", RLK_ALLOW="off", RLK_PROBE_TIMEOUT="60", RLK_PLUGINS_SELECT="*",
                      RLK_PLUGINS_DISABLE="none", RLK_THREAD_POOL="own")
        checks = self.json("doctor", **values)["checks"]
        self.assertEqual([check for check in checks if "reads no such variable" in check["text"]], [])


if __name__ == "__main__":
    command.main()
