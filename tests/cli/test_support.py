"""Support tiers: `active` needs a report of the conformance suite from hardware, beside the plugin; what a report says of
itself is not believed. Shown with the golden plugin, and reports as if there were a card."""
import json
import os
import shutil
import unittest

import command

PLUGIN = os.environ["RLK_TEST_GOLDEN_PLUGIN"]


class Tier(command.Case):
    told = None  # the report, once it was made

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.folder = os.path.join(cls.cache, "plugins")
        cls.reports = os.path.join(cls.folder, "reports", "golden")
        os.makedirs(cls.reports)
        cls.plugin = shutil.copy(PLUGIN, cls.folder)
        # A report that could stand for the smoke test is part of a verdict's key: `list` would try all anew at each.
        cls.world = {"RLK_PLUGIN_PATH": cls.folder, "RLK_REPORTS": "ignore"}

    def report(self):
        """A report as `conformance` writes it, as if it had seen a card."""
        if Tier.told is None:
            path = os.path.join(self.cache, "golden.json")
            self.output("conformance", self.plugin, "--report", path, **self.world)
            with open(path) as file:
                Tier.told = file.read()
        report = json.loads(Tier.told)
        report["plugin"]["devices"] = [{"index": 0, "name": "Acme X100", "arch": "x1", "memory_bytes": 1}]
        report["plugin"]["evidence"] = [{"kind": "device_node", "value": "/dev/acme0", "supports": True}]
        report["date"] = "2026-01-31"
        return report

    def tier(self, *reports):
        for name in os.listdir(self.reports):
            os.unlink(os.path.join(self.reports, name))
        for number, report in enumerate(reports):
            with open(os.path.join(self.reports, "%d.json" % number), "w") as file:
                file.write(report if isinstance(report, str) else json.dumps(report))
        [plugin] = [p for p in self.json("list", **self.world)["plugins"] if p["id"] == "golden"]
        return plugin["tier"], plugin["tier_reason"]

    def test_a_report_says_what_was_seen_and_nothing_of_the_machine_alone(self):
        self.report()
        report = json.loads(Tier.told)
        self.assertEqual((report["schema"], report["document"]), (1, "conformance_report"))
        self.assertEqual(set(report["plugin"]) & {"path", "history", "loaded_files", "output"}, set())
        self.assertFalse(report["counts"])
        self.assertIn("no hardware was there", report["objection"])

    def test_a_report_has_a_line_for_each_unit(self):
        units = self.report()["plugin"]["units"]
        self.assertGreater(len(units), 1)
        lines = [line.strip().removesuffix(",") for line in Tier.told.splitlines() if '"op"' in line]
        self.assertEqual([json.loads(line) for line in lines], units)

    def test_without_a_report_a_plugin_is_experimental_wherever_it_is_shown(self):
        self.assertEqual(self.tier(), ("experimental", "no conformance report from hardware"))
        lines = self.output("list", **self.world).splitlines()
        at = lines[0].index("support")
        self.assertEqual({line.split()[0]: line[at:].split()[0] for line in lines if line.split()[:1] in (["cpu"], ["golden"])},
                         {"cpu": "active", "golden": "experimental"})
        self.assertIn("experimental: no conformance report", self.output("inspect", "golden", **self.world))
        self.assertEqual(self.json("inspect", "golden", **self.world)["tier"], "experimental")
        checks = self.json("doctor", **self.world)["checks"]
        [check] = [c for c in checks if c["subject"] == "plugin golden" and c["text"].startswith("registered")]
        self.assertIn("experimental (no conformance report", check["text"])

    def test_a_report_from_hardware_makes_it_active_and_the_newest_is_named(self):
        newer = self.report()
        newer["date"] = "2026-02-01"
        tier, reason = self.tier(newer, self.report())
        self.assertEqual(tier, "active")
        self.assertRegex(reason, r"conformance of \S+ on Acme X100, 2026-02-01")

    def test_what_does_not_count_says_why(self):
        def changed(change):
            report = self.report()
            change(report["plugin"])
            return report

        def fail(plugin):
            plugin["units"][0]["verdict"] = "failed"
        for report, text in (
                (changed(lambda p: p.update(evidence=[{"kind": "runtime_library", "value": "x", "supports": True}])),
                 "no hardware was there"),
                (changed(lambda p: p["evidence"].append({"kind": "pci_device", "value": "none", "supports": False})),
                 "no hardware was there"),
                (changed(lambda p: p.update(devices=[])), "there was no device"),
                (changed(lambda p: p.update(units=[])), "nothing was verified"),
                (changed(fail), "failed"),
                (changed(lambda p: p.update(version="0.0.0")), "is of another version than"),
                (changed(lambda p: p.update(id="other")), "is not a report of this plugin"),
                ("{", "is not a report of this plugin"), ("[]", "is not a report of this plugin"),
                ("", "is not a report of this plugin")):
            with self.subTest(text=text):
                tier, reason = self.tier(report)
                self.assertEqual(tier, "experimental")
                self.assertIn(text, reason)
                # One that counts beside it is enough, whatever the order.
                self.assertEqual(self.tier(report, self.report())[0], "active")
                self.assertEqual(self.tier(self.report(), report)[0], "active")

    def test_the_checklist_of_a_platform_is_filled(self):
        text = self.output("scope", "golden", "--template", **self.world)
        for part in ("## Platform", "## Target Operator", "- Operator: `logp`", "## Correctness Baseline",
                     "## Build / Runtime Notes", "## Dispatch Proposal", "- Platform key: `golden`",
                     "## Validation Hardware", "_please fill in_"):
            self.assertIn(part, text)

    def test_a_report_of_a_part_or_of_nothing_is_refused(self):
        for arguments in (("cpu",), (self.plugin, "--op", "add")):
            self.output("conformance", *arguments, "--report", os.path.join(self.cache, "no.json"), code=2)
        self.assertFalse(os.path.exists(os.path.join(self.cache, "no.json")))


if __name__ == "__main__":
    unittest.main()
