"""`rlk-plugins conformance` as the author of a plugin uses it: one case alone, its tensors, time limits, a debugger, CI."""
import os
import pty
import re
import shlex
import shutil
import subprocess
import time
import unittest
import xml.etree.ElementTree as xml

import command


class Cases(command.Case):
    def setUp(self):
        super().setUp()
        self.liar = self.add_plugin("liar_softcap")

    def failing(self):
        document = self.json("conformance", self.liar, "--op", "logp", code=1)
        return next(unit for unit in document["plugin"]["units"] if unit["verdict"] == "failed"), document

    def test_the_hint_repeats_the_first_failing_case_alone(self):
        unit, document = self.failing()
        hint = document["plugin"]["hint"]
        self.assertIn(self.liar, hint)
        words = shlex.split(hint[hint.index("rlk-plugins "):])[1:]
        self.assertEqual(words[-1], "--debug")
        alone = self.run_command(*words[:-1], "--json", code=1)
        units = command.json.loads(alone.stdout)["plugin"]["units"]
        tried = [u for u in units if u["verdict"] != "declined"]
        self.assertEqual({(u["dtype"], u["reason"], u["cases"]) for u in tried}, {(unit["dtype"], unit["reason"], 1)})

    def test_the_hint_can_be_copied_where_the_path_has_a_space_and_a_quote(self):
        folder = self.path("it's here")
        os.mkdir(folder)
        path = shutil.move(self.liar, folder)
        hint = self.json("conformance", path, "--op", "logp", code=1)["plugin"]["hint"]
        self.assertEqual(shlex.split(hint[hint.index("rlk-plugins "):])[:5], ["rlk-plugins", "conformance", path, "--op", "logp"])

    def test_a_case_that_there_is_not_is_told(self):
        done = self.run_command("conformance", self.liar, "--case", "logp reference f32 N=999", code=1)
        self.assertIn("no case 'logp reference f32 N=999'", done.stderr)

    def test_cases_of_few_elements_are_tried_alone(self):
        path = self.add_plugin("golden")
        add = ("conformance", path, "--op", "add", "--dtype", "f32")
        whole, small = (self.json(*add, *words)["cases"] for words in ((), ("--at-most", "400")))
        self.assertTrue(0 < small < whole, (small, whole))
        none = self.run_command(*add, "--at-most", "1", code=1)
        self.assertIn("has no case of 1 elements at most of add for f32", none.stderr)
        self.assertIn("passed", self.output("conformance", path, "--op", "add", "--at-most", "400"))
        # What is wrong with large tensors alone is not seen; with small ones, too, it is.
        self.output("conformance", self.liar, "--op", "logp", "--dtype", "f32", "--at-most", "1000", code=1)
        for words in (("--at-most", "few"), ("--at-most", "0"), ("--at-most", "9", "--report", self.path("report.json"))):
            self.output("conformance", path, *words, code=2)

    def test_a_sample_of_cases_has_every_unit_and_is_the_same_each_time(self):
        path = self.add_plugin("golden")
        logp = ("conformance", path, "--op", "logp", "--dtype", "f32", "--at-most", "400")
        whole, sample, again = (self.json(*logp, *words) for words in ((), ("--one-of", "9"), ("--one-of", "9")))
        self.assertTrue(0 < sample["cases"] < whole["cases"] / 2, (sample["cases"], whole["cases"]))
        verdicts = [[(unit["feature"], unit["verdict"]) for unit in found["plugin"]["units"]] for found in (whole, sample)]
        self.assertEqual(*verdicts)
        counts = [[unit["cases"] for unit in found["plugin"]["units"]] for found in (sample, again)]
        self.assertEqual(*counts)
        self.assertEqual(self.json(*logp, "--one-of", "1")["cases"], whole["cases"])
        self.output("conformance", self.liar, "--op", "logp", "--dtype", "f32", "--one-of", "9", code=1)
        for words in (("--one-of", "few"), ("--one-of", "0"), ("--one-of", "9", "--report", self.path("report.json"))):
            self.output("conformance", path, *words, code=2)

    def test_random_calls_are_the_same_for_a_seed_and_repeat_alone(self):
        path = self.add_plugin("golden")
        add = ("conformance", path, "--op", "add", "--dtype", "f32", "--at-most", "4000", "--random", "30")
        first, again, other = (self.json(*add, *words) for words in ((), (), ("--seed", "2")))
        self.assertTrue(10 < first["cases"] <= 30, first["cases"])
        features = [{unit["feature"] for unit in found["plugin"]["units"]} for found in (first, again, other)]
        self.assertEqual(features[0], features[1])
        self.assertIn("random calls", self.output(*add))
        done = self.run_command("conformance", self.liar, "--op", "logp", "--dtype", "f32", "--random", "60", code=1)
        hint = next(line for line in done.stdout.splitlines() if line.startswith("hint: "))
        self.assertIn("--random 60", hint)
        command = shlex.split(hint[hint.index("rlk-plugins "):])
        self.run_command(*(word for word in command[1:] if word != "--debug"), code=1)
        for words in (("--random", "few"), ("--random", "0"), ("--seed", "3"), ("--random", "9", "--report", "report.json")):
            self.output("conformance", path, *words, code=2)

    def test_the_tensors_of_a_failing_case_are_written(self):
        folder = self.path("dump")
        self.output("conformance", self.liar, "--op", "logp", "--dtype", "f32", "--dump", folder, code=1)
        self.assertTrue(1 <= len(os.listdir(folder)) <= 16)
        case = os.path.join(folder, sorted(os.listdir(folder))[0])
        with open(os.path.join(case, "case.txt")) as file:
            text = file.read()
        self.assertIn("WRONG_RESULT", text)
        self.assertRegex(text, r"--param softcap=")
        self.assertEqual(command.read_npy(os.path.join(case, "logits.npy"))[0], "<f4")
        got, expected = (command.read_npy(os.path.join(case, f"logp.{what}.npy")) for what in ("got", "expected"))
        self.assertEqual((got[0], expected[0], got[1]), ("<f4", "<f8", expected[1]))
        self.assertGreater(max(abs(a - b) for a, b in zip(got[2], expected[2])), 1e-4)
        # The command that it names repeats the call, here on the CPU, which is right.
        words = shlex.split(next(line for line in text.splitlines() if line.startswith("  rlk-plugins")))[1:]
        done = subprocess.run([command.COMMAND, *words], cwd=case, capture_output=True,
                              env={**os.environ, "RLK_CACHE_DIR": self.cache, "RLK_PLUGIN_PATH": "", "RLK_BACKEND": "cpu"})
        self.assertEqual(done.returncode, 0, done.stderr)
        cpu = command.read_npy(os.path.join(case, "logp.npy"))
        self.assertLess(max(abs(a - b) for a, b in zip(cpu[2], expected[2])), 1e-4)

    def test_a_case_that_passes_is_written_when_it_is_named(self):
        folder = self.path("dump")
        self.output("conformance", "cpu", "--op", "add", "--dtype", "f32", "--case", "add simd", "--dump", folder)
        with open(os.path.join(folder, sorted(os.listdir(folder))[0], "case.txt")) as file:
            self.assertIn("passed", file.read())
        with open(self.path("file"), "w"):
            pass
        self.assertIn("cannot be made", self.run_command("conformance", "cpu", "--dump", self.path("file"), code=2).stderr)

    def test_junit_has_a_test_case_for_each_unit(self):
        _, document = self.failing()
        self.output("conformance", self.liar, "--op", "logp", "--junit", self.path("report.xml"), code=1)
        suite = xml.parse(self.path("report.xml")).getroot().find("testsuite")
        self.assertEqual(int(suite.get("tests")), len(suite.findall("testcase")))
        self.assertEqual(len(suite.findall("testcase")), len(document["plugin"]["units"]))
        failures = suite.findall("testcase/failure")
        self.assertEqual(int(suite.get("failures")), len(failures))
        self.assertEqual(len(failures), sum(u["verdict"] == "failed" for u in document["plugin"]["units"]))
        self.assertIn("WRONG_RESULT", failures[0].get("message"))


class Ends(command.Case):
    def test_a_hang_is_told_after_its_budget(self):
        path = self.add_plugin("hang_enqueue")
        begin = time.monotonic()
        document = self.json("conformance", path, "--op", "add", "--timeout", "2", code=1)["plugin"]
        self.assertLess(time.monotonic() - begin, 30)
        self.assertEqual(document["reason_code"], "TIMED_OUT")
        self.assertRegex(document["reason"], "2.0 s")
        self.assertRegex(document["hint"], r"--timeout.*rlk-plugins conformance \S*hang_enqueue.so --op add --case 'add ")
        path = self.add_plugin("hang_create")
        begin = time.monotonic()
        self.assertEqual(self.json("conformance", path, "--timeout", "2", code=1)["plugin"]["reason_code"], "TIMED_OUT")
        self.assertLess(time.monotonic() - begin, 30)
        self.output("conformance", path, "--timeout", "soon", code=2)

    def test_debug_runs_in_the_process_that_was_started(self):
        path = self.add_plugin("crash_enqueue")
        done = self.run_command("conformance", path, "--op", "add", "--debug", code=-11)
        gdb = re.search(r"^  gdb -ex run --args (.*)$", done.stderr, re.M).group(1)
        self.assertEqual(shlex.split(gdb)[1:], ["conformance", path, "--op", "add", "--debug"])
        self.assertRegex(done.stderr.strip().splitlines()[-1], "^add ")  # what crashed
        good = self.add_plugin("golden")
        self.assertIn("passed", self.output("conformance", good, "--op", "add", "--debug"))

    def test_no_case_at_all_is_green_only_where_that_is_wanted(self):
        path = self.add_plugin("missing_library")
        self.output("conformance", path)
        done = self.run_command("conformance", path, "--require-cases", "--junit", self.path("report.xml"), code=1)
        self.assertIn("no case was tried", done.stderr)
        self.assertIn("RUNTIME_LIBRARY_MISSING", done.stderr)
        self.assertEqual(xml.parse(self.path("report.xml")).getroot().find("testsuite").get("failures"), "1")
        self.output("conformance", self.add_plugin("declines"), "--require-cases", code=1)
        self.output("conformance", self.add_plugin("golden"), "--op", "add", "--require-cases")

    def test_operators_alone_are_tried_on_the_devices_of_a_named_file(self):
        path = self.add_plugin("operators_only")
        self.assertEqual(self.json("conformance", path, "--op", "add")["plugin"]["reason_code"], "NO_DEVICE")
        golden = os.path.join(command.PLUGINS, "golden", "librlk_plugin_golden.so")
        self.assertGreater(self.json("conformance", path, "--op", "add", "--device-plugin", golden)["cases"], 0)
        other = self.add_plugin("liar_bf16")
        done = self.run_command("conformance", path, "--device-plugin", other, code=1)
        self.assertIn("has devices of the backend liar_bf16", done.stderr)

    def test_a_terminal_sees_how_far_it_is(self):
        path = self.add_plugin("golden")
        ours, theirs = pty.openpty()
        environment = {k: v for k, v in os.environ.items() if not k.startswith("RLK_")}
        child = subprocess.Popen([command.COMMAND, "conformance", path, "--full"], stdout=subprocess.DEVNULL,
                                 stderr=theirs, env={**environment, "RLK_CACHE_DIR": self.cache})
        os.close(theirs)
        seen = b""
        wanted = rb"case \d+: \w+ serial .*\(\d+ s\)"
        while not re.search(wanted, seen):
            try:
                piece = os.read(ours, 4096)
            except OSError:  # the other end is closed
                piece = b""
            if not piece:
                break
            seen += piece
        child.kill()
        child.wait()
        os.close(ours)
        self.assertRegex(seen, wanted)


if __name__ == "__main__":
    command.main()
