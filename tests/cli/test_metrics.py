"""`rlk-plugins metrics`: the states and counts of `list`, in the text format of Prometheus."""
import re
import unittest

import command

LINE = re.compile(r'(\w+)(?:\{(.*)\})? (\d+)')


def values_of(text):
    """{(name, labels): value}; every line that is no comment is one."""
    rows = [LINE.fullmatch(line) for line in text.splitlines() if not line.startswith("# ")]
    return {(row[1], tuple(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', row[2] or ""))): int(row[3]) for row in rows}


class Metrics(command.Case):
    def of_plugin(self, values, name, plugin):
        return [(dict(labels), value) for (each, labels), value in values.items()
                if each == name and dict(labels).get("plugin") == plugin]

    def test_they_are_what_list_says(self):
        self.add_plugin("golden")
        listed = {plugin["id"]: plugin for plugin in self.json("list")["plugins"]}
        values = values_of(self.output("metrics"))
        for id in ("cpu", "golden"):
            [(info, one)] = self.of_plugin(values, "rlk_plugin_info", id)
            self.assertEqual((info["state"], info["reason"], info["backend"], one),
                             (listed[id]["state"], listed[id]["reason_code"], listed[id]["backend"], 1))
            counts = {labels["verdict"]: value for labels, value in self.of_plugin(values, "rlk_operators", id)}
            self.assertEqual(counts, listed[id]["ops"])
        self.assertEqual(values["rlk_healthy", ()], 1)
        [version] = [dict(labels)["version"] for name, labels in values if name == "rlk_build_info"]
        self.assertEqual(version, self.json("list")["host"]["version"])

    def test_a_broken_plugin_is_told_by_value_and_exit_code_and_absent_hardware_is_healthy(self):
        self.add_plugin("missing_library")
        values = values_of(self.output("metrics"))
        [(info, _)] = self.of_plugin(values, "rlk_plugin_info", "missing_library")
        self.assertEqual(info["state"], "absent")
        self.assertEqual(self.of_plugin(values, "rlk_operators", "missing_library"), [])
        self.assertEqual(values["rlk_healthy", ()], 1)
        self.add_plugin("liar_softcap")
        self.assertEqual(values_of(self.output("metrics", code=1))["rlk_healthy", ()], 0)

    def test_a_file_is_written_whole_and_nothing_is_printed(self):
        path = self.path("rlk.prom")
        self.assertEqual(self.output("metrics", "--file", path), "")
        with open(path) as file:
            self.assertEqual(file.read(), self.json("metrics")["text"])
        self.assertIn("No such file or directory", self.usage_error("metrics", "--file", self.path("no/such/folder.prom")))


if __name__ == "__main__":
    unittest.main()
