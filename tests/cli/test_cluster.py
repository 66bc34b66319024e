"""What whoever runs a cluster needs: starts that are warm, seeds for images, counters, documents."""
import os
import re
import unittest

import command


class Warm(command.Case):
    """Who probes, and who remembers: `RLK_LOG=debug` says it of every plugin."""

    def how(self, plugin="cpu", **variables):
        log = self.run_command("list", RLK_LOG="debug", **variables).stderr
        found = re.findall(r"plugin %s.*?(remembered|probed now): (\w+)" % plugin, log)
        self.assertEqual(len(found), 1, log)
        return found[0][0]

    def test_a_seed_spares_a_fresh_container_the_probes(self):
        golden = self.add_plugin("golden")
        os.utime(golden, (1, 1))
        seed = self.path("cache.seed")
        self.assertIn("RLK_CACHE_SEED", self.output("cache", "export", seed))

        def fresh(name):
            os.mkdir(self.path(name), 0o700)
            return {"RLK_CACHE_DIR": self.path(name), "RLK_CACHE_SEED": seed}
        self.assertEqual(self.how(**fresh("a")), "remembered")
        self.assertEqual(self.how("golden", **fresh("b")), "remembered")
        self.assertEqual(self.json("cache", "ls", **fresh("c"))["seed"]["path"], seed)
        self.assertIn("cache seed", self.output("doctor", **fresh("d")))
        # By content: another build of the plugin is tried.
        with open(golden, "ab") as file:
            file.write(b"\0")
        self.assertEqual(self.how("golden", **fresh("e")), "probed now")
        # Another user could have written it.
        os.chmod(seed, 0o666)
        self.assertEqual(self.how(**fresh("f")), "probed now")
        self.assertIn("can be written by every user", self.run_command("list", RLK_CACHE_SEED=seed).stderr)
        checks = self.json("doctor", code=1, RLK_CACHE_SEED=seed)["checks"]
        self.assertIn(("RLK_CACHE_SEED", "problem"), [(c["subject"], c["status"]) for c in checks])

    def test_a_failure_does_not_travel(self):
        self.add_plugin("crash_create")
        self.output("cache", "export", self.path("cache.seed"), code=1)
        os.mkdir(self.path("own"), 0o700)
        entries = self.json("cache", "ls", RLK_CACHE_DIR=self.path("own"), RLK_CACHE_SEED=self.path("cache.seed"))
        log = self.run_command("list", code=1, RLK_LOG="debug", RLK_CACHE_DIR=self.path("own"),
                               RLK_CACHE_SEED=self.path("cache.seed")).stderr
        self.assertRegex(log, r"plugin cpu.*remembered")
        self.assertRegex(log, r"plugin crash_create.*probed now")
        self.assertGreater(entries["seed"]["entries"], 0)

    def test_the_number_of_threads_probes_nothing_again(self):
        self.how()
        self.assertEqual(self.how(RLK_NUM_THREADS="1"), "remembered")
        self.assertEqual(self.how(RLK_NUM_THREADS="3"), "remembered")

    def test_export_needs_a_file_and_the_others_none(self):
        self.output("cache", "export", code=2)
        self.output("cache", "ls", "file", code=2)


if __name__ == "__main__":
    command.main()
