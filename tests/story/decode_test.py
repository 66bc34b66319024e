"""The loop of decoding (examples/qwen3_decode.cpp) on the simulated CUDA runtime with RLK_FALLBACK=strict: a graph of one
step, captured once and replayed, draws what the calls of the steps draw, on the device alone.

That the operators compute the right numbers there is what story_cuda shows, in minutes. Here a report stands for that
trial: the card's, as if it were of this build and of the emulated device. A canary of each operator runs all the same."""
import hashlib
import json
import os
import re
import shutil
import subprocess
import unittest

import command

ROOT, LIBRARIES, FAKES = (os.environ["RLK_TEST_" + name] for name in ("ROOT", "LIBRARIES", "FAKES"))
DECODE = os.environ["RLK_TEST_QWEN3_DECODE"]
RUNTIME = {"LD_LIBRARY_PATH": os.path.join(FAKES, "fake_cuda"), "RLK_CUDA_REMOTE": "1"}
OPERATORS = ("add_rms_norm", "cast", "cat", "copy", "embedding", "fill", "gather", "linear", "paged_attention",
             "reshape_and_cache", "rms_norm", "rotary_embedding", "sample", "silu_and_mul")
# In the declaration since a run that was not recorded yet.
NEW = {"alias:key_out=key": "alias:query_out=query"}


class Decode(command.Case):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.plugin = os.path.join(cls.place, "librlk_plugin_cuda.so")
        shutil.copy2(os.path.join(LIBRARIES, "librlk_plugin_cuda.so"), cls.plugin)

    def setUp(self):
        super().setUp()
        reports = os.path.join(self.place, "reports", "cuda")
        if not os.path.exists(reports):
            text = self.made_report()
            os.makedirs(reports)
            with open(os.path.join(reports, "made.json"), "w") as file:
                file.write(text)

    def made_report(self):
        here = self.json("conformance", self.plugin, "--op", "copy", "--dtype", "i64", **RUNTIME)["plugin"]
        with open(os.path.join(ROOT, "plugins/cuda/reports/h200.json")) as file:
            report = json.load(file)
        with open(self.plugin, "rb") as file:
            report["plugin_sha256"] = hashlib.sha256(file.read()).hexdigest()
        plugin = report["plugin"]
        plugin["devices"] = [{name: device[name] for name in ("index", "name", "arch", "memory_bytes")}
                             for device in here["devices"]]
        plugin["evidence"] = [{"kind": "device_node", "value": "/dev/nvidiactl", "supports": True}]
        plugin["evidence"] += [item for item in here["evidence"] if item["kind"] not in ("device_node", "pci_device")]
        units = [unit for unit in plugin["units"] if unit["op"] in OPERATORS]
        recorded = {(unit["op"], unit["feature"]) for unit in units}
        for new, like in NEW.items():
            units += [dict(unit, feature=new) for unit in units
                      if unit["feature"] == like and (unit["op"], new) not in recorded]
        plugin["units"] = units
        return json.dumps(report)

    def decode(self, *words):
        world = {k: v for k, v in os.environ.items() if not k.startswith("RLK_")}
        world.update(RUNTIME, RLK_PLUGIN_PATH=self.place, RLK_PLUGINS_SELECT="cuda", RLK_FALLBACK="strict",
                     RLK_CACHE_DIR=self.cache, RLK_PROBE_TIMEOUT="1000")
        return subprocess.run([DECODE, "--backend", "cuda", *words], env=world, capture_output=True, text=True,
                              timeout=1400)

    def test_a_replayed_graph_draws_what_its_calls_draw(self):
        for dtype in ("f32", "bf16"):
            with self.subTest(dtype=dtype):
                done = self.decode("--dtype", dtype)
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr[-3000:])
                ids = [line.split()[2:] for line in done.stdout.splitlines() if line.startswith("sequence ")]
                self.assertEqual([len(row) for row in ids], [16] * 4, done.stdout)
                self.assertGreater(len(set(sum(ids, []))), 32)  # of 500
                self.assertIn("ids of the replayed graph and of the steps are equal: 64", done.stdout)
                self.assertIn("draws on cpu from their logits are equal: 64", done.stdout)
                self.assertRegex(done.stdout, r"paged_attention by cuda:\w+, sample by cuda:\w+\n")
                error = re.search(r"of the texts on cpu: error (\S+) of the largest", done.stdout).group(1)
                self.assertTrue(0 < float(error) < {"f32": 2e-6, "bf16": 2e-2}[dtype], error)

    def test_logits_beyond_the_bound_fail(self):
        done = self.decode("--bound", "1e-12")
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn("beyond the bound", done.stdout)
        self.assertIn("results differ", done.stderr)


if __name__ == "__main__":
    unittest.main()
