"""What an operator of a cluster needs: starts that are warm, seeds for images, counters, documents."""
import os
import re
import shutil
import unittest

import command


class Warm(command.Case):
    """Which process probes, and which one remembers: `RLK_LOG=debug` says it of every plugin."""

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

    def test_doctor_says_what_to_do_about_a_seed_that_is_not_used(self):
        damaged = self.path("damaged")
        with open(damaged, "w") as file:
            file.write("no seed")
        os.chmod(damaged, 0o644)
        writable = self.path("writable")
        shutil.copy(damaged, writable)
        os.chmod(writable, 0o666)
        for seed, hint in ((self.path("none"), "correct or unset RLK_CACHE_SEED"), (damaged, "write it anew"),
                           (self.plugins, "name the file in the folder"), (writable, "chmod go-w"),
                           ("cache.seed", "the whole path")):
            with self.subTest(seed=seed):
                checks = self.json("doctor", code=1, RLK_CACHE_SEED=seed)["checks"]
                [problem] = [c for c in checks if c["subject"] == "RLK_CACHE_SEED" and c["status"] == "problem"]
                self.assertIn(hint, problem["hint"])

    def test_clear_empties_the_folder_that_is_named_or_none(self):
        home = {"XDG_CACHE_HOME": self.path("xdg")}
        os.makedirs(self.path("xdg/rlk"), 0o700)
        kept = self.path("xdg/rlk/kernel-kept")
        with open(kept, "w") as file:
            file.write("of another run")
        os.mkdir(self.path("shared"))
        os.chmod(self.path("shared"), 0o777)
        done = self.run_command("cache", "clear", code=1, RLK_CACHE_DIR=self.path("shared"), **home)
        self.assertIn("nothing was removed", done.stderr)
        self.assertIn(self.path("shared"), done.stderr)
        self.assertTrue(os.path.exists(kept))
        self.assertEqual(self.json("cache", "clear", RLK_CACHE_DIR="", **home)["removed"], 1)
        self.assertFalse(os.path.exists(kept))

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


class Counters(command.Case):
    def setUp(self):
        super().setUp()
        command.write_npy(self.path("a.npy"), "<f4", (3,), [1, 2, 3])

    def add(self, **variables):
        return self.run_command("run", "add", "--input", "a=a.npy", "--input", "b=a.npy", **variables).stderr

    def test_they_are_told_at_the_end_on_demand(self):
        self.assertNotIn("add: ", self.add())
        self.assertRegex(self.add(RLK_COUNTERS="1"), r"counters: add: 1 cpu/\w+, 0 fallbacks")
        with open(self.path("policy.toml"), "w") as file:
            file.write('counters = "1"\n')
        self.assertRegex(self.add(RLK_CONFIG=self.path("policy.toml")), r"counters: add: 1 cpu/")
        self.assertNotIn("counters: ", self.add(RLK_CONFIG=self.path("policy.toml"), RLK_COUNTERS="0"))

    def test_a_fallback_is_counted_with_its_reason(self):
        self.add_plugin("declines")
        self.assertRegex(self.add(RLK_COUNTERS="1", RLK_BACKEND="declines"), r"add: 1 cpu/\w+, 1 fallback \(1 \w+\)")

    def test_a_file_for_prometheus(self):
        self.add(RLK_COUNTERS=self.path("rlk-%p.prom"))
        [name] = [name for name in os.listdir(self.folder) if name.startswith("rlk-")]
        self.assertRegex(name, r"^rlk-\d+\.prom$")
        with open(self.path(name)) as file:
            lines = file.read().splitlines()
        self.assertIn('rlk_calls_total{op="add"} 1', lines)
        for line in lines:
            self.assertRegex(line, r'^(# (HELP|TYPE) rlk_\w+ .+|rlk_\w+_total\{\w+="[^"]*"(,\w+="[^"]*")*\} \d+)$')

    def test_what_cannot_be_written_is_told_and_nothing_replaced(self):
        self.assertIn("no regular file", self.add(RLK_COUNTERS="/dev/null"))
        self.assertIn("cannot be written", self.add(RLK_COUNTERS="/proc/none/x"))
        self.assertIn("expected 1 (log them)", self.add(RLK_COUNTERS="yes"))
        checks = self.json("doctor", code=1, RLK_COUNTERS="yes")["checks"]
        self.assertIn(("RLK_COUNTERS", "problem"), [(c["subject"], c["status"]) for c in checks])
        with open(self.path("policy.toml"), "w") as file:
            file.write('counters = "yes"\n')
        self.assertIn("counters is 'yes'", self.run_command("list", code=1, RLK_CONFIG=self.path("policy.toml")).stderr)


if __name__ == "__main__":
    command.main()
