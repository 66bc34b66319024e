"""Search paths that lead nowhere: the CPU serves, and each thing that was dropped says which variable dropped it. A
path that the user named and that leads nowhere is a fault to mend: exit code 1."""
import json
import os
import shutil
import subprocess

import command

NOBODY = 65534


class Search(command.Case):
    def plugins_of(self, code=0, **variables):
        plugins = self.json("list", code=code, **variables)["plugins"]
        [cpu] = [plugin for plugin in plugins if plugin["id"] == "cpu"]
        self.assertEqual(cpu["state"], "registered", cpu["reason"])
        self.assertEqual(cpu["ops"]["verified"], len(self.json("ops")["ops"]))
        return [plugin for plugin in plugins if plugin["id"] != "cpu"]

    def the_place(self, code=0, **variables):
        document = self.json("list", code=code, **variables)
        self.assertEqual([plugin["id"] for plugin in document["plugins"]], ["cpu"])
        [place] = [place for place in document["search"] if place["reason_code"] != "SEARCH_REPLACED"]
        self.assertTrue(place["reason"] and place["hint"])
        return place

    def the_dropped(self, **variables):
        [plugin] = self.plugins_of(**variables)
        self.assertEqual(plugin["state"], "rejected")
        self.assertTrue(plugin["reason"] and plugin["hint"])
        return plugin

    def test_an_empty_folder(self):
        self.assertEqual(self.plugins_of(), [])

    def test_a_folder_without_plugins(self):
        with open(os.path.join(self.plugins, "notes.txt"), "w") as file:
            file.write("not a plugin")
        self.assertEqual(self.plugins_of(), [])

    def test_a_missing_folder(self):
        missing = self.path("missing")
        dropped = self.the_place(code=1, RLK_PLUGIN_PATH=missing)
        self.assertEqual((dropped["reason_code"], dropped["source"]), ("FOLDER_MISSING", "RLK_PLUGIN_PATH"))
        self.assertIn(missing, dropped["reason"])

    def test_a_missing_folder_beside_a_good_one(self):
        self.add_plugin("golden")
        found = self.plugins_of(code=1, RLK_PLUGIN_PATH=self.path("missing") + ":" + self.plugins)
        self.assertEqual({p["state"] for p in found}, {"registered"})

    def test_a_relative_path(self):
        dropped = self.the_place(code=1, RLK_PLUGIN_PATH="plugins")
        self.assertEqual((dropped["reason_code"], dropped["source"]), ("PATH_NOT_ABSOLUTE", "RLK_PLUGIN_PATH"))

    def test_an_unreadable_folder(self):
        os.chmod(self.plugins, 0)
        environment = {"RLK_PLUGIN_PATH": self.plugins, "RLK_CACHE_DIR": self.path("cache")}
        os.mkdir(self.path("cache"), 0o700)
        other_user = {}
        if os.geteuid() == 0:  # root reads every folder
            os.chmod(self.folder, 0o755)
            os.chown(self.path("cache"), NOBODY, NOBODY)
            other_user = {"user": NOBODY, "group": NOBODY, "extra_groups": []}
        try:
            done = subprocess.run([command.COMMAND, "list", "--json"], env=environment, capture_output=True,
                                  timeout=300, cwd="/", **other_user)
        except PermissionError:
            self.skipTest("another user cannot reach the command")
        finally:
            os.chmod(self.plugins, 0o700)
        self.assertEqual(done.returncode, 1, done.stderr)
        document = json.loads(done.stdout)
        self.assertEqual([(p["id"], p["state"]) for p in document["plugins"]], [("cpu", "registered")])
        [dropped] = [place for place in document["search"] if place["broken"]]
        self.assertEqual((dropped["reason_code"], dropped["source"]), ("FOLDER_UNREADABLE", "RLK_PLUGIN_PATH"))

    def test_a_file_that_is_no_shared_object(self):
        with open(os.path.join(self.plugins, "librlk_plugin_text.so"), "w") as file:
            file.write("hello")
        dropped = self.the_dropped(code=1)
        self.assertEqual((dropped["id"], dropped["reason_code"]), ("text", "NOT_ELF"))

    def test_a_truncated_plugin(self):
        path = self.add_plugin("golden")
        os.truncate(path, os.path.getsize(path) // 2)
        self.assertEqual(self.the_dropped(code=1)["reason_code"], "ELF_DAMAGED")

    def test_a_folder_that_anybody_may_write_to(self):
        self.add_plugin("golden")
        os.chmod(self.plugins, 0o777)
        dropped = self.the_dropped(code=1)
        self.assertEqual(dropped["reason_code"], "WRITABLE_BY_OTHERS")
        self.assertIn(self.plugins, dropped["reason"])

    def test_the_same_plugin_twice(self):
        self.add_plugin("golden")
        other = self.path("other")
        shutil.copytree(self.plugins, other)
        found = self.plugins_of(RLK_PLUGIN_PATH=self.plugins + ":" + other)
        self.assertEqual([(p["state"], p["reason_code"]) for p in found], [("registered", ""), ("shadowed", "SAME_ID")])

    def test_filters_name_themselves(self):
        self.add_plugin("golden")
        for variable, value, code in (("RLK_PLUGINS_SELECT", "acme*", "NOT_SELECTED"),
                                      ("RLK_PLUGINS_DISABLE", "gold*", "DISABLED")):
            with self.subTest(variable):
                dropped = self.the_dropped(**{variable: value})
                self.assertEqual(dropped["reason_code"], code)
                self.assertIn(variable, dropped["reason"])


if __name__ == "__main__":
    command.main()
