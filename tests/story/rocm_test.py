"""The rocm plugin without AMD's hardware: what it says where the runtime is missing, old or shows nothing, and its
operators on a strict simulated runtime, where the shipped kernels run on fibers with waves of 32 and of 64 threads.
What this cannot show is a GPU's arithmetic, its memory ordering and its speed."""
import ctypes
import os
import tempfile
import unittest

import command

FAKES = os.environ["RLK_TEST_FAKES"]
PLUGIN = os.environ["RLK_TEST_ROCM_PLUGIN"]


def runtime_is_installed():
    for name in ("libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5", "libamdhip64.so"):
        try:
            ctypes.CDLL(name)
            return True
        except OSError:
            pass
    return False


class Rocm(command.Case):
    def rocm(self, library, **variables):
        variables.setdefault("LD_LIBRARY_PATH", os.path.join(FAKES, library))
        # What the simulation is told is no part of a verdict's key.
        with tempfile.TemporaryDirectory() as cache:
            answer = self.json("list", RLK_PLUGIN_PATH=PLUGIN, RLK_CACHE_DIR=cache, **variables)
        [plugin] = [p for p in answer["plugins"] if p["id"] == "rocm"]
        return plugin

    def test_without_a_runtime_everything_that_was_looked_for_is_evidence(self):
        if runtime_is_installed():
            self.skipTest("this machine has HIP")
        plugin = self.rocm("none")
        self.assertEqual((plugin["state"], plugin["reason_code"]), ("absent", "RUNTIME_LIBRARY_MISSING"))
        self.assertIn("libamdhip64.so", plugin["reason"])
        self.assertIn("ROCM_PATH", plugin["hint"])
        self.assertEqual({e["kind"] for e in plugin["evidence"]}, {"device_node", "pci_device", "runtime_library"})

    def test_what_the_runtime_says_becomes_the_state(self):
        for library, variables, code, text in (
                ("fake_hip64", {"RLK_FAKE_HIP_DEVICES": "0"}, "NO_DEVICE", "hipErrorInvalidDevice (101)"),
                ("fake_hip64", {"RLK_FAKE_HIP_VERSION": "43100000"}, "RUNTIME_TOO_OLD", "is HIP 4.31.0; 5.0 is"),
                ("fake_hip64", {"RLK_FAKE_HIP_FAIL": "hipGetDeviceCount:0:719"}, "NO_DEVICE", "LaunchFailure (719)"),
                ("fake_hip64", {"RLK_FAKE_HIP_WIDTH": "16"}, "SIMT_WIDTH", "executes 16 threads together"),
                ("fake_hip_old", {}, "RUNTIME_TOO_OLD", "lacks hipEventRecord")):
            with self.subTest(code=code, **variables):
                plugin = self.rocm(library, **variables)
                self.assertEqual((plugin["state"], plugin["reason_code"]), ("absent", code))
                self.assertIn(text, plugin["reason"])

    def conformance(self, width, op, dtype, code=0, **variables):
        answer = self.json("conformance", PLUGIN, "--op", op, "--dtype", dtype, code=code,
                           LD_LIBRARY_PATH=os.path.join(FAKES, "fake_hip%d" % width), **variables)
        return answer["plugin"]

    def test_operators_are_verified_at_both_widths(self):
        for width, op, dtype, least in ((32, "add", "f32", 5), (64, "add", "f16", 5),
                                        (64, "logp_backward", "bf16", 10), (32, "logp_backward", "f32", 10)):
            with self.subTest(width=width, op=op, dtype=dtype):
                plugin = self.conformance(width, op, dtype)
                verdicts = [unit["verdict"] for unit in plugin["units"]]
                self.assertEqual(set(verdicts), {"verified"})
                self.assertGreaterEqual(len(verdicts), least)

    def test_a_call_that_fails_is_told_in_the_runtimes_words_and_nothing_is_verified(self):
        for fault, status in (("hipModuleLaunchKernel:3:719", "DEVICE_LOST"), ("hipMalloc:2:2", "OUT_OF_MEMORY"),
                              ("hipModuleLoadData:1:209", "(209)")):
            with self.subTest(fault=fault):
                plugin = self.conformance(64, "add", "f32", code=1, RLK_FAKE_HIP_FAIL=fault)
                failed = [unit for unit in plugin["units"] if unit["verdict"] == "failed"]
                self.assertTrue(failed)
                self.assertTrue(any(status in unit["reason"] for unit in failed), failed)


if __name__ == "__main__":
    unittest.main()
