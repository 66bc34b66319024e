"""A second SIMT vendor (tests/plugins/wide) that shares CUDA's host code and kernels, over a runtime of HIP's shape with
waves of 64, 64 KiB of shared memory and small grids: each operator keeps its contract there. One dtype of each; attention,
which takes most of a minute, in the long run (RLK_TEST_LONG=1). `rlk-plugins list` with the folders below verifies all."""
import os
import unittest

import command

EMULATED = os.environ["RLK_TEST_EMULATED_WIDE"]
PLUGIN = os.environ["RLK_TEST_WIDE_PLUGIN"]


class Wide(command.Case):
    def test_without_its_runtime_the_missing_library_is_named(self):
        answer = self.json("list", RLK_PLUGIN_PATH=PLUGIN)
        [plugin] = [p for p in answer["plugins"] if p["id"] == "wide"]
        self.assertEqual((plugin["state"], plugin["reason_code"]), ("absent", "RUNTIME_LIBRARY_MISSING"))
        self.assertIn("libwide.so.1", plugin["reason"])

    def test_every_shared_operator_passes_conformance_at_width_64(self):
        attention = (("attention", "f32", 8),) if command.LONG else ()
        for op, dtype, least in (("add", "f32", 5), ("logp", "f16", 10), ("logp_backward", "bf16", 10)) + attention:
            with self.subTest(op=op, dtype=dtype):
                small = () if command.LONG else ("--at-most", "4096")
                answer = self.json("conformance", PLUGIN, "--op", op, "--dtype", dtype, *small, LD_LIBRARY_PATH=EMULATED)
                verdicts = [unit["verdict"] for unit in answer["plugin"]["units"]]
                self.assertEqual(set(verdicts), {"verified"})
                self.assertGreaterEqual(len(verdicts), least)


if __name__ == "__main__":
    unittest.main()
