"""The maca plugin without MetaX's hardware: what it says where the runtime is missing, of another release, incomplete or
shows nothing, and its operators on a strict simulated runtime, where the shipped kernels run on fibers with waves of 64
threads. What this cannot show is MetaX's compiler and its devices."""
import re
import os
import unittest

import command
import simt_vendor

ROOT = os.environ["RLK_TEST_ROOT"]
LIBRARY = "fake_maca/libmcruntime.so"


def required_functions():
    """As the plugin declares them."""
    names = []
    for file, table in (("plugins/simt/host/runtime_api.hpp", "RLK_SIMT_RUNTIME_REQUIRED"),
                        ("plugins/maca/maca.hpp", "RLK_MACA_REQUIRED")):
        with open(os.path.join(ROOT, file)) as text:
            body = re.search(r"#define %s\(.*?\n(?!\s*X\()" % table, text.read(), re.S).group(0)
        names += ["mc" + name for name in re.findall(r"X\(\w+, (?:p##|mc)(\w+)\)", body)]
    return names


class Maca(simt_vendor.Vendor):
    NAME = "maca"
    WHOLE = ("logp",)

    def test_without_a_runtime_everything_that_was_looked_for_is_evidence(self):
        if simt_vendor.is_installed(("libmcruntime.so", "libhcruntime.so")):
            self.skipTest("this machine has MACA")
        plugin = self.listed("none")
        self.assertEqual((plugin["state"], plugin["reason_code"]), ("absent", "RUNTIME_LIBRARY_MISSING"))
        self.assertEqual(plugin["reason"], "cannot open libmcruntime.so or libhcruntime.so")
        self.assertIn("MACA_PATH", plugin["hint"])
        evidence = {e["kind"]: e["value"] for e in plugin["evidence"]}
        self.assertEqual(set(evidence), {"device_node", "pci_device", "runtime_library"})
        self.assertIn("0x9999", evidence["pci_device"])

    def test_what_the_runtime_says_becomes_the_state(self):
        self.expect_states((
            ("fake_maca", {"RLK_FAKE_MACA_DEVICES": "0"}, "absent", "NO_DEVICE", "mcErrorInvalidDevice (101)"),
            ("fake_maca", {"RLK_FAKE_MACA_VERSION": "0"}, "absent", "RUNTIME_TOO_OLD", "does not say its version"),
            ("fake_maca", {"RLK_FAKE_MACA_FAIL": "mcInit:0:10003"}, "absent", "NO_DEVICE",
             "mcErrorDriverMismatch (10003)"),
            ("fake_maca", {"RLK_FAKE_MACA_FAIL": "mcGetDeviceCount:0:719"}, "absent", "NO_DEVICE",
             "LaunchFailure (719)"),
            ("fake_maca", {"RLK_FAKE_MACA_WIDTH": "32"}, "absent", "SIMT_WIDTH", "executes 32 threads together")))

    def test_every_required_function_is_named_when_it_is_missing(self):
        required = required_functions()
        self.assertGreaterEqual(len(required), 30)
        folder = self.without(LIBRARY, required)
        plugin = self.listed(LD_LIBRARY_PATH=folder)
        self.assertEqual((plugin["state"], plugin["reason_code"]), ("absent", "RUNTIME_LIBRARY_MISSING"))
        # What is there tells where the library is. A few at a time: a reason has a length.
        rest = [name for name in required if name != "mcInit"]
        for first in range(0, len(rest), 8):
            missing = rest[first:first + 8]
            with self.subTest(missing=missing):
                plugin = self.listed(LD_LIBRARY_PATH=self.without(LIBRARY, missing))
                self.assertEqual((plugin["state"], plugin["reason_code"]), ("absent", "RUNTIME_TOO_OLD"))
                self.assertEqual(sorted(plugin["reason"].split(" lacks ")[1].split(", ")), sorted(missing))

    def test_what_is_optional_may_be_missing(self):
        folder = self.without(LIBRARY, ("mcStreamGetCaptureInfo", "mcThreadExchangeStreamCaptureMode", "mcMallocAsync",
                                        "mcStreamIsCapturing", "mcDeviceGetUuid", "mcStreamCreateWithPriority",
                                        "mcDeviceGetPCIBusId", "mcLaunchHostFunc", "mcrtcVersion"))
        # Nor are a device's properties known, but its width and shared memory.
        plugin = self.conformance("", "add", "f32", LD_LIBRARY_PATH=folder, RLK_FAKE_MACA_ATTRIBUTES="0")
        self.assertEqual({unit["verdict"] for unit in plugin["units"]}, {"verified"})
        self.assertEqual(plugin["devices"][0]["arch"], "")

    def test_without_the_compiler_nothing_is_offered_and_the_reason_says_what_to_install(self):
        plugin = self.conformance("", "add", "f32", code=1,
                                  LD_LIBRARY_PATH=self.without(LIBRARY, ["mcrtcCompileProgram"]))
        self.assertEqual({unit["verdict"] for unit in plugin["units"]}, {"declined"})
        self.assertIn("lacks mcrtcCompileProgram", plugin["units"][0]["reason"])

    def test_operators_are_verified_at_width_64(self):
        self.expect_verified("fake_maca", {"add": ("bf16", 5), "logp": ("bf16", 10), "logp_backward": ("f16", 10),
                                           "attention": ("f16", 10), "attention_backward": ("f32", 5),
                                           "prefix_shared_attention": ("f16", 5), "paged_attention": ("f16", 10),
                                           "grouped_gemm": ("f16", 3)})
        if command.LONG:  # rocm's story has it in the ordinary run
            self.expect_verified("fake_maca", {"grouped_gemm_backward": ("bf16", 4)})
        self.expect_operators_verified("fake_maca")

    def test_products_are_verified_on_the_simulated_library(self):
        # Which rounds fp32 operands to TF32 where the plugin does not ask for the pedantic sum.
        self.expect_verified("fake_maca", {"gemm": ("f32", 8), "linear": ("f32", 3)})
        if command.LONG:  # the ordinary run has them on CUDA's library
            self.expect_verified("fake_maca", {
                "linear_backward": ("bf16", 4), "linear_logp_backward": ("f16", 10),
                "matmul": ("f16", 2), "matmul_backward": ("f32", 3), "linear_logp": ("f32", 10),
                "linear_cross_entropy": ("bf16", 10), "linear_cross_entropy_backward": ("f16", 10),
                "fused_linear_cross_entropy": ("f32", 18),
                "linear_jsd": ("f32", 9), "linear_jsd_backward": ("f16", 8)})

    def test_without_a_library_that_can_be_used_products_alone_are_declined(self):
        if simt_vendor.is_installed(("libmcblasLt.so",)):
            self.skipTest("this machine has mcBLASLt")
        whole, alone = os.path.join(simt_vendor.FAKES, "fake_maca"), os.path.join(self.folder, "alone")
        os.mkdir(alone)
        os.symlink(os.path.join(simt_vendor.FAKES, LIBRARY), os.path.join(alone, "libmcruntime.so"))
        lacking = self.without("fake_maca/libmcblasLt.so", ("mcblasLtMatmul",)) + ":" + whole
        for folders, text in ((alone, "cannot open libmcblasLt.so"), (lacking, "the runtime lacks mcblasLtMatmul")):
            with self.subTest(text=text):
                units = self.conformance("", "gemm", "f32", code=1, LD_LIBRARY_PATH=folders)["units"]
                self.assertEqual({(unit["verdict"], unit["reason_code"]) for unit in units}, {("declined", "LIBRARY")})
                self.assertIn(text, units[0]["reason"])
                units = self.conformance("", "add", "f32", LD_LIBRARY_PATH=folders)["units"]
                self.assertEqual({unit["verdict"] for unit in units}, {"verified"})

    def test_a_call_that_fails_is_told_in_the_runtimes_words_and_nothing_is_verified(self):
        self.expect_failures("fake_maca", "RLK_FAKE_MACA_FAIL", (
            ("mcModuleLaunchKernel:3:719", "DEVICE_LOST"), ("mcModuleLaunchKernel:3:10030", "DEVICE_LOST"),
            ("mcMalloc:2:2", "OUT_OF_MEMORY"), ("mcMalloc:2:10007", "OUT_OF_MEMORY"),
            ("mcModuleLoadData:1:209", "(209)")))

    def test_a_failure_on_the_stream_is_told_by_it(self):
        self.expect_failures("fake_maca", "RLK_FAKE_MACA_ASYNC_FAIL", (("arithmetic_map_Add_f32_line:2:700", "DEVICE_LOST"),))


if __name__ == "__main__":
    unittest.main()
