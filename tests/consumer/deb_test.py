"""The Debian package of what this build built: what is in it, that it runs from where it is unpacked, and lintian's opinion.

    deb_test.py BUILD FOLDER CPACK    works in FOLDER
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import unittest

BUILD, FOLDER, CPACK = (pathlib.Path(argument) for argument in sys.argv[1:4])
ROOT = FOLDER / "root"

# What users of a package look for, and where.
FILES = ("bin/rlk-plugins", "libexec/rlk/rlk-prober", "lib/librlk.so.0", "lib/librlk.so", "lib/pkgconfig/rlk.pc",
         "lib/cmake/rlk/rlkConfig.cmake", "include/rlk/rlk.h", "include/rlk/abi/version.h", "include/rlk/ops/logp.h",
         "include/rlk/ops/logp.hpp", "include/rlk/sdk/ops.hpp", "include/rlk/sdk/ops/logp.hpp", "share/rlk/template/acme.cpp",
         "share/rlk/template_wheel/pyproject.toml", "share/rlk/schemas/inspect.schema.json", "share/doc/rlk/copyright",
         "share/doc/rlk/changelog.gz", "share/doc/rlk/operators/logp.md", "share/doc/rlk/docs/cluster.md",
         "share/man/man1/rlk-plugins.1.gz", "share/bash-completion/completions/rlk-plugins", "share/zsh/vendor-completions/_rlk-plugins",
         "share/fish/vendor_completions.d/rlk-plugins.fish",
         *(f"lib/rlk/plugins/librlk_plugin_{vendor}.so" for vendor in ("cuda", "cudnn", "rocm", "maca", "ascend", "cambricon")))


def run(*words, **variables):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RLK_")} | variables
    done = subprocess.run([str(word) for word in words], env=environment, capture_output=True, text=True, cwd=FOLDER,
                          timeout=600, check=False)
    if done.returncode != 0:
        raise AssertionError(f"{words} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def setUpModule():
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    run(CPACK, "--config", BUILD / "CPackConfig.cmake", "-B", FOLDER)
    run("dpkg-deb", "-x", package(), ROOT)


def package():
    [path] = FOLDER.glob("rlk_*.deb")
    return path


class Package(unittest.TestCase):
    def test_it_has_what_its_users_look_for(self):
        listed = {line.split(" ./")[1].split(" -> ")[0] for line in run("dpkg-deb", "--contents", package()).splitlines()}
        self.assertEqual([file for file in FILES if f"usr/{file}" not in listed], [])

    def test_it_asks_for_tbb_and_the_runtime_of_the_language_alone(self):
        needed = run("dpkg-deb", "--field", package(), "Depends")
        self.assertEqual({re.sub(r" .*", "", word.strip()) for word in needed.split(",")},
                         {"libc6", "libgcc-s1", "libstdc++6", "libtbb12"})

    def test_its_command_runs_and_finds_its_plugins(self):
        document = json.loads(run(ROOT / "usr/bin/rlk-plugins", "list", "--json", RLK_CACHE_DIR=str(FOLDER / "cache"),
                                  PATH="/usr/bin:/bin"))
        plugins = {plugin["id"]: plugin for plugin in document["plugins"]}
        self.assertEqual(plugins["cpu"]["state"], "registered")
        self.assertEqual(plugins["cuda"]["path"], str(ROOT / "usr/lib/rlk/plugins/librlk_plugin_cuda.so"))

    def test_its_man_page_is_one(self):
        if shutil.which("man") is None:
            self.skipTest("there is no man")
        page = run("man", "--warnings", "-l", ROOT / "usr/share/man/man1/rlk-plugins.1.gz", MANWIDTH="100")
        self.assertIn("EXIT STATUS", page)

    def test_lintian_finds_no_error(self):
        if shutil.which("lintian") is None:
            self.skipTest("there is no lintian")
        done = subprocess.run(["lintian", "--no-cfg", "--allow-root", package()], capture_output=True, text=True, check=False)
        self.assertEqual([line for line in done.stdout.splitlines() if line.startswith("E:")], [])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
