"""Every command of the README as its readers type it, line by line in one shell, over what is installed.

    readme_test.py README PREFIX FOLDER    works in FOLDER, which has PREFIX as build/install

The Python is run by tests/python/readme_test.py and wheel_test.py."""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import unittest

README, PREFIX, FOLDER = (pathlib.Path(argument) for argument in sys.argv[1:4])
NOT_RUN = {
    "packaging/quickstart.sh": "builds rlk; packaging/test.sh runs it as a stage",
    "packaging/test.sh": "runs this test among all others",
    "packaging/wheel.sh && pip install build/wheel/rlk-*.whl numpy": "wheel_test.py packs it and installs it into a folder of its own",
}
# The folder that the README adds may have plugins of this machine.
PLUGINS = "/opt/rlk/plugins"


def commands():
    """The lines of the indented blocks, without comments; the picture is one, too."""
    blocks = re.findall(r"(?:^    .*\n)+", README.read_text(), re.MULTILINE)
    return [re.sub(r" +#.*", "", line).strip() for block in blocks if "+---" not in block for line in block.splitlines()]


class Readme(unittest.TestCase):
    def test_every_command_ends_well_as_printed_but_those_that_are_named_here(self):
        [path] = re.findall(r"`(export PATH=[^`]*)`", README.read_text())
        printed = commands()
        self.assertEqual(set(NOT_RUN) - set(printed), set())
        ran = [path, *(line for line in printed if line not in NOT_RUN)]
        self.assertGreaterEqual(len(ran), 8)
        self.assertIn(f"export RLK_ADD_PLUGIN_PATH={PLUGINS}", ran)

        shutil.rmtree(FOLDER, ignore_errors=True)
        (FOLDER / "build").mkdir(parents=True)
        (FOLDER / "build/install").symlink_to(PREFIX)
        (FOLDER / "plugins").mkdir()
        environment = {name: value for name, value in os.environ.items() if not name.startswith("RLK_")}
        environment |= {"RLK_CACHE_DIR": str(FOLDER / "cache")}
        # The shell says which line it was that failed.
        shell = "\n".join(f"{line.replace(PLUGINS, str(FOLDER / 'plugins'))} || {{ echo 'failed: line {number}' >&2; exit 1; }}"
                          for number, line in enumerate(ran, 1))
        done = subprocess.run(["bash", "-c", shell], cwd=FOLDER, env=environment, capture_output=True, text=True, timeout=900,
                              check=False)
        self.assertEqual(done.returncode, 0, f"{list(enumerate(ran, 1))}\n{done.stdout}{done.stderr}")
        self.assertTrue((FOLDER / "acme/build/librlk_plugin_acme.so").is_file())


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
