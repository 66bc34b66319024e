"""The rocm plugin without AMD's hardware: what it says where the runtime is missing, old or shows nothing, and its
operators on a strict simulated runtime, where the shipped kernels run on fibers with waves of 32 and of 64 threads.
What this cannot show is a GPU's arithmetic, its memory ordering and its speed."""
import unittest

import os

import command
import simt_vendor

LIBRARIES = ("libhipblaslt.so.1", "libhipblaslt.so.0", "libhipblaslt.so")
NAMES = ("libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5", "libamdhip64.so")


class Rocm(simt_vendor.Vendor):
    NAME = "rocm"

    def test_without_a_runtime_everything_that_was_looked_for_is_evidence(self):
        if simt_vendor.is_installed(NAMES):
            self.skipTest("this machine has HIP")
        plugin = self.listed("none")
        self.assertEqual((plugin["state"], plugin["reason_code"]), ("absent", "RUNTIME_LIBRARY_MISSING"))
        self.assertEqual(plugin["reason"], "cannot open " + " or ".join(NAMES))
        self.assertIn("ROCM_PATH", plugin["hint"])
        self.assertEqual({e["kind"] for e in plugin["evidence"]}, {"device_node", "pci_device", "runtime_library"})

    def test_what_the_runtime_says_becomes_the_state(self):
        self.expect_states((
            ("fake_hip64", {"RLK_FAKE_HIP_DEVICES": "0"}, "absent", "NO_DEVICE", "hipErrorInvalidDevice (101)"),
            ("fake_hip64", {"RLK_FAKE_HIP_VERSION": "43100000"}, "absent", "RUNTIME_TOO_OLD", "is HIP 4.31.0; 5.0 is"),
            ("fake_hip64", {"RLK_FAKE_HIP_FAIL": "hipGetDeviceCount:0:719"}, "absent", "NO_DEVICE",
             "LaunchFailure (719)"),
            ("fake_hip64", {"RLK_FAKE_HIP_WIDTH": "16"}, "absent", "SIMT_WIDTH", "executes 16 threads together"),
            ("fake_hip_old", {}, "absent", "RUNTIME_TOO_OLD", "lacks hipEventRecord")))

    def test_operators_are_verified_at_both_widths(self):
        self.expect_verified("fake_hip32", {"add": ("f32", 5), "logp": ("bf16", 10), "logp_backward": ("f32", 10)})
        self.expect_verified("fake_hip64", {"add": ("f16", 5), "logp": ("f16", 10), "logp_backward": ("bf16", 10),
                                            "prefix_shared_attention_backward": ("f32", 5),
                                            "grouped_gemm_backward": ("f32", 4)})
        self.expect_operators_verified("fake_hip32", "fake_hip64")
        if command.LONG:  # the ordinary run has them in maca's story
            for library in ("fake_hip32", "fake_hip64"):
                self.expect_verified(library, {"attention": ("f16", 10), "paged_attention": ("f32", 10),
                                               "grouped_gemm": ("bf16", 3)})

    def test_attention_on_matrix_units_is_verified_where_a_device_has_them(self):
        # HIP does not tell a device's architecture without a card; its own variable does.
        for library, version, dtype, cases, verdict in (
                ("fake_hip64", "9.4.2", "bf16", (), "verified"),
                ("fake_hip64", "9.4.2", "f16", ("--case", "softcap"), "verified"),
                ("fake_hip64", "9.0.10", "f16", ("--case", "softcap"), "SUBNORMALS"),
                ("fake_hip64", "9.0.6", "f16", ("--case", "softcap"), "ARCH"),
                ("fake_hip32", "9.4.2", "bf16", ("--case", "softcap"), "SIMT_WIDTH")):
            with self.subTest(library=library, version=version, dtype=dtype):
                units = self.json("conformance", self.plugin_path(), "--op", "attention", "--dtype", dtype, *cases,
                                  "--at-most", "1000", *command.SAMPLE, LD_LIBRARY_PATH=os.path.join(simt_vendor.FAKES, library),
                                  HSA_OVERRIDE_GFX_VERSION=version)["plugin"]["units"]
                found = [unit for unit in units if unit["implementation"] == "mfma"]
                verified = [unit for unit in found if unit["verdict"] == "verified"]
                declined = {unit["reason_code"] for unit in found if unit["verdict"] == "declined"}
                self.assertGreaterEqual(len(found), 1)
                self.assertNotIn("failed", {unit["verdict"] for unit in found})
                if verdict == "verified":  # some features' small cases all have odd heads
                    self.assertGreaterEqual(len(verified), 4)
                    self.assertLessEqual(declined, {"HEAD_SIZE", "STRIDES"})
                else:
                    self.assertEqual((len(verified), declined), (0, {verdict}))
                self.assertEqual({unit["verdict"] for unit in units if unit["implementation"] == "simt"}, {"verified"})

    def test_products_are_verified_on_the_simulated_library_at_both_widths(self):
        # A product, many at once, and gradients in two passes.
        products = {"gemm": ("f32", 8), "matmul_backward": ("bf16", 3), "linear_backward": ("f16", 4),
                    "linear_logp_backward": ("f16", 10)}
        if command.LONG:  # the ordinary run has them on CUDA's library
            products.update({
                "matmul": ("bf16", 2), "linear": ("f16", 3), "linear_logp": ("bf16", 10),
                "linear_cross_entropy": ("f16", 10), "linear_cross_entropy_backward": ("bf16", 10),
                "fused_linear_cross_entropy": ("f16", 18), "linear_jsd": ("bf16", 9), "linear_jsd_backward": ("bf16", 8)})
        for i, (op, unit) in enumerate(products.items()):
            for library in ("fake_hip32", "fake_hip64") if command.LONG else (("fake_hip32", "fake_hip64")[i % 2],):
                self.expect_verified(library, {op: unit})

    def test_without_a_library_that_can_be_used_products_alone_are_declined(self):
        if simt_vendor.is_installed(LIBRARIES):
            self.skipTest("this machine has hipBLASLt")
        whole, alone = os.path.join(simt_vendor.FAKES, "fake_hip64"), os.path.join(self.folder, "alone")
        os.mkdir(alone)
        for name in ("libamdhip64.so.6", "libhiprtc.so.6"):
            os.symlink(os.path.join(whole, name), os.path.join(alone, name))
        lacking = self.without("fake_hip64/libhipblaslt.so.1", ("hipblasLtMatmul",)) + ":" + whole
        for folders, version, text in ((alone, "60342134", "cannot open " + " or ".join(LIBRARIES)),
                                       (lacking, "60342134", "the runtime lacks hipblasLtMatmul"),
                                       (whole, "60042134", "hipBLASLt is of HIP 6.0.42134; 6.1 is the oldest")):
            with self.subTest(text=text):
                variables = {"LD_LIBRARY_PATH": folders, "RLK_FAKE_HIP_VERSION": version}
                units = self.conformance("", "gemm", "f32", code=1, **variables)["units"]
                self.assertEqual({(unit["verdict"], unit["reason_code"]) for unit in units}, {("declined", "LIBRARY")})
                self.assertIn(text, units[0]["reason"])
                units = self.conformance("", "add", "f32", **variables)["units"]
                self.assertEqual({unit["verdict"] for unit in units}, {"verified"})

    def test_a_call_that_fails_is_told_in_the_runtimes_words_and_nothing_is_verified(self):
        self.expect_failures("fake_hip64", "RLK_FAKE_HIP_FAIL", (
            ("hipModuleLaunchKernel:3:719", "DEVICE_LOST"), ("hipMalloc:2:2", "OUT_OF_MEMORY"),
            ("hipModuleLoadData:1:209", "(209)")))


if __name__ == "__main__":
    unittest.main()
