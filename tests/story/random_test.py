"""Calls drawn at random, as `rlk-plugins conformance --random` makes them, on the simulated runtimes: sizes, options, dtypes,
layouts and contents together, as the generated cases never have them. An ordinary run has one small call of each operator
and dtype, the same one each time; the long run has many. RLK_TEST_SEED draws others."""
import os
import unittest

import command

LIBRARIES, FAKES = os.environ["RLK_TEST_LIBRARIES"], os.environ["RLK_TEST_FAKES"]
CALLS = ("--random", "40") if command.LONG else ("--random", "1", "--at-most", "4096")
SEED = os.environ.get("RLK_TEST_SEED", "11")


class RandomCalls(command.Case):
    def expect_right(self, vendor, **variables):
        plugin = os.path.join(LIBRARIES, "librlk_plugin_%s.so" % vendor)
        if not os.path.exists(plugin):
            self.skipTest("built without the %s plugin" % vendor)
        answer = self.json("conformance", plugin, *CALLS, "--seed", SEED, "--require-cases", **variables)
        units = answer["plugin"]["units"]
        self.assertEqual([unit for unit in units if unit["verdict"] == "failed"], [])
        self.assertGreater(answer["cases"], 300)

    def test_of_cuda_agree_with_golden(self):
        self.expect_right("cuda", LD_LIBRARY_PATH=os.path.join(FAKES, "fake_cuda"), RLK_CUDA_REMOTE="1")

    def test_what_is_added_in_place_is_added_before_sums_are_rounded(self):
        """cuBLASLt, and the simulated one, adds to memory of 16 bits what it has rounded; no generated case is as wide."""
        plugin = os.path.join(LIBRARIES, "librlk_plugin_cuda.so")
        if not os.path.exists(plugin):
            self.skipTest("built without the cuda plugin")
        self.json("conformance", plugin, "--op", "gemm", "--dtype", "bf16", "--random", "400", "--seed", "31", "--case", "alias:y=c",
                  "--require-cases", LD_LIBRARY_PATH=os.path.join(FAKES, "fake_cuda"), RLK_CUDA_REMOTE="1")

    def test_of_ascend_agree_with_golden(self):
        self.expect_right("ascend", ASCEND_HOME_PATH=os.environ["RLK_TEST_ASCEND_HOME"])

    def test_of_cambricon_agree_with_golden(self):
        self.expect_right("cambricon", LD_LIBRARY_PATH=os.path.join(FAKES, "fake_cambricon"))


if __name__ == "__main__":
    unittest.main()
