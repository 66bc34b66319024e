"""Plugins that another day or another runtime library made, against the rlk of today: built once by gcc and by clang and kept
as they were (the template of that day, for x86-64; stored_plugins.md), and built here with a libstdc++ of its own."""
import json
import lzma
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "plugins")
COMMAND = os.environ.get("RLK_TEST_COMMAND")
WITH_OWN_LIBSTDCXX = os.environ.get("RLK_TEST_PLUGIN_WITH_OWN_LIBSTDCXX", "")


def stored(name):
    with lzma.open(os.path.join(HERE, name + ".so.xz")) as file:
        return file.read()


def judged(content, cache):
    """The record of a plugin, alone in a folder."""
    folder = tempfile.mkdtemp(prefix="rlk-stored-")
    try:
        path = os.path.join(folder, "librlk_plugin_acme.so")
        with open(path, "wb") as file:
            file.write(content)
        done = subprocess.run([COMMAND, "list", "--json"], capture_output=True, text=True, check=False,
                              env=dict(os.environ, RLK_PLUGIN_PATH=path, RLK_CACHE_DIR=cache))
        if done.returncode not in (0, 1):
            raise AssertionError(done.stderr)
        plugins = {p["id"]: p for p in json.loads(done.stdout)["plugins"]}
        assert plugins["cpu"]["state"] == "registered", plugins["cpu"]
        return plugins["acme"]
    finally:
        shutil.rmtree(folder)


class Plugins(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cache = tempfile.mkdtemp(prefix="rlk-stored-cache-")

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.cache)

    def is_served(self, content):
        plugin = judged(content, self.cache)
        self.assertEqual(plugin["state"], "registered", plugin["reason"])
        self.assertGreaterEqual(plugin["ops"]["verified"], 2, plugin["ops"])

    @unittest.skipUnless(platform.machine() == "x86_64", "the stored plugins are built for x86-64")
    def test_the_present_draft_is_served_whoever_compiled_it(self):
        for name in ("1.0-draft2-gcc", "1.0-draft2-clang"):
            with self.subTest(plugin=name):
                self.is_served(stored(name))

    def test_a_plugin_with_a_libstdcxx_of_its_own_is_served(self):
        with open(WITH_OWN_LIBSTDCXX, "rb") as file:
            self.is_served(file.read())


if __name__ == "__main__":
    if not COMMAND or not os.path.exists(COMMAND):
        sys.exit("RLK_TEST_COMMAND names no rlk-plugins")
    unittest.main()
