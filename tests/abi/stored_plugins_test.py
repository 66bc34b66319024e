"""Plugins that were built once and are kept as they were, against the rlk of today: of an older draft, by gcc and clang, with
a libstdc++ of their own. Each is the template of its time, -Os and stripped, for x86-64 (stored_plugins.md)."""
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


def judged(name, cache):
    """The record of a stored plugin, alone in a folder."""
    folder = tempfile.mkdtemp(prefix="rlk-stored-")
    try:
        path = os.path.join(folder, "librlk_plugin_acme.so")
        with lzma.open(os.path.join(HERE, name + ".so.xz")) as stored, open(path, "wb") as file:
            file.write(stored.read())
        done = subprocess.run([COMMAND, "list", "--json"], capture_output=True, text=True, check=False,
                              env=dict(os.environ, RLK_PLUGIN_PATH=path, RLK_CACHE_DIR=cache))
        if done.returncode not in (0, 1):
            raise AssertionError(done.stderr)
        plugins = {p["id"]: p for p in json.loads(done.stdout)["plugins"]}
        assert plugins["cpu"]["state"] == "registered", plugins["cpu"]
        return plugins["acme"]
    finally:
        shutil.rmtree(folder)


@unittest.skipUnless(platform.machine() == "x86_64", "the stored plugins are built for x86-64")
class StoredPlugins(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cache = tempfile.mkdtemp(prefix="rlk-stored-cache-")

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.cache)

    def test_an_older_draft_is_refused_with_both_versions(self):
        plugin = judged("1.0-draft1-gcc", self.cache)
        self.assertEqual((plugin["state"], plugin["reason_code"]), ("rejected", "ABI_MISMATCH"), plugin)
        self.assertIn("draft 1", plugin["reason"])

    def test_the_present_draft_is_served_whoever_compiled_it(self):
        for name in ("1.0-draft2-gcc", "1.0-draft2-clang", "1.0-draft2-static-libstdcxx"):
            with self.subTest(plugin=name):
                plugin = judged(name, self.cache)
                self.assertEqual(plugin["state"], "registered", plugin["reason"])
                self.assertGreaterEqual(plugin["ops"]["verified"], 2, plugin["ops"])


if __name__ == "__main__":
    if not COMMAND or not os.path.exists(COMMAND):
        sys.exit("RLK_TEST_COMMAND names no rlk-plugins")
    unittest.main()
