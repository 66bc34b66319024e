"""The CUDA plugin without a GPU: it explains what is missing, and its kernels' own source, run on fibers of a host
thread behind an emulated libcuda.so.1, passes the smoke test of a real device. What this cannot show is a GPU's
arithmetic, its memory ordering and its speed."""
import ctypes
import os
import subprocess

import command
import simt_vendor

EMULATED = os.environ["RLK_TEST_EMULATED_CUDA"]
LIBRARIES = os.environ["RLK_TEST_LIBRARIES"]
DEVICE_TEST = os.environ["RLK_TEST_DEVICE_TEST"]
HAS_KERNELS = os.environ["RLK_TEST_CUDA_KERNELS"] == "1"


def driver_is_installed():
    try:
        ctypes.CDLL("libcuda.so.1")
        return True
    except OSError:
        return False


class Cuda(simt_vendor.Vendor):
    NAME = "cuda"
    WHOLE = ("attention", "logp_backward", "linear_jsd", "linear_jsd_backward")
    VARIABLES = {"RLK_CUDA_REMOTE": "1"}  # nothing here is NVIDIA's

    def cuda(self, code=0, **variables):
        answer = self.json("list", code=code, RLK_PLUGIN_PATH=LIBRARIES, RLK_PLUGINS_SELECT="cuda", **variables)
        [plugin] = [p for p in answer["plugins"] if p["id"] == "cuda"]
        return plugin

    def test_without_a_driver_the_missing_library_is_named(self):
        if driver_is_installed():
            self.skipTest("this machine has libcuda.so.1")
        plugin = self.cuda()  # absent hardware breaks nothing: exit code 0
        self.assertEqual((plugin["state"], plugin["reason_code"]), ("absent", "RUNTIME_LIBRARY_MISSING"))
        self.assertIn("libcuda.so.1", plugin["reason"])
        self.assertTrue(plugin["hint"])

    def test_an_old_driver_is_told_which_exports_it_lacks(self):
        plugin = self.cuda(LD_LIBRARY_PATH=EMULATED + "_old")
        self.assertEqual((plugin["state"], plugin["reason_code"]), ("absent", "DRIVER_TOO_OLD"))
        for name in ("cuLaunchHostFunc", "cuEventRecord"):
            self.assertIn(name, plugin["reason"])

    def test_the_toolkits_stub_is_told_as_one(self):
        plugin = self.cuda(code=1, LD_LIBRARY_PATH=EMULATED, RLK_FAKE_CUDA_FAIL="cuInit:0:34")
        self.assertEqual((plugin["state"], plugin["reason_code"]), ("rejected", "STUB_LIBRARY"))
        self.assertIn("(34)", plugin["reason"])
        self.assertIn("LD_LIBRARY_PATH", plugin["hint"])

    def test_every_operator_is_verified_on_the_emulated_device(self):
        if not HAS_KERNELS:
            self.skipTest("built without nvcc: the plugin has no kernels to launch")
        self.expect_verified("fake_cuda", {"logp": ("bf16", 10), "logp_backward": ("f32", 10), "attention": ("f16", 10),
                                           "paged_attention": ("bf16", 10), "attention_backward": ("bf16", 5),
                                           "prefix_shared_attention": ("f32", 5)})
        self.expect_operators_verified("fake_cuda")

    def test_warpgroup_products_say_what_the_emulated_device_lacks(self):
        if not HAS_KERNELS:
            self.skipTest("built without nvcc: the plugin has no kernels to launch")
        for op, arch, code, text in (("attention", "80", "ARCH", "sm_80"),
                                     ("attention", "90", "TENSOR_MAPS", "cuTensorMapEncodeTiled"),
                                     ("attention_backward", "90", "TENSOR_MAPS", "cuTensorMapEncodeTiled")):
            with self.subTest(op=op, arch=arch):
                plugin = self.json("conformance", self.plugin_path(), "--op", op, "--dtype", "bf16", "--case",
                                   "bf16 B=2,Sq=7,Sk=7,Hq=2,Hkv=2,D=16", **self.VARIABLES, LD_LIBRARY_PATH=EMULATED,
                                   RLK_FAKE_CUDA_ARCH=arch)["plugin"]
                units = [unit for unit in plugin["units"] if unit["implementation"] == "wgmma" and not unit["feature"]]
                self.assertEqual({(unit["verdict"], unit["reason_code"]) for unit in units}, {("declined", code)})
                self.assertIn(text, units[0]["reason"])

    # The emulated driver with tensor maps: of attention's kernels by wgmma nothing is emulated.
    def test_what_tensor_maps_fetch_is_verified(self):
        if not HAS_KERNELS:
            self.skipTest("built without nvcc: the plugin has no kernels to launch")
        # linear_logp has five times as many cases in bf16 as in f16: an ordinary run tries those of one option.
        small = ["--at-most", simt_vendor.MOST]
        brief = {("linear_logp", "f16"): ("", []), ("linear_logp", "bf16"): (" bf16 softcap", []),
                 ("linear_logp_backward", "bf16"): (" bf16 softcap", small),
                 ("grouped_gemm", "bf16"): ("", small), ("grouped_gemm_backward", "f16"): ("", small)}
        for op, dtype in [*brief, ("grouped_gemm", "f16")] if command.LONG else brief:
            words, more = ("", []) if command.LONG else brief[op, dtype]
            with self.subTest(op=op, dtype=dtype):
                plugin = self.json("conformance", self.plugin_path(), "--op", op, "--dtype", dtype, "--case",
                                   op + " wgmma" + words, *more, *command.SAMPLE, **self.VARIABLES,
                                   LD_LIBRARY_PATH=EMULATED + "_maps")["plugin"]
                units = [unit for unit in plugin["units"] if unit["implementation"] == "wgmma"]
                self.assertIn("verified", {unit["verdict"] for unit in units})
                self.assertEqual([unit for unit in units if unit["verdict"] == "failed"], [])
                if not op.endswith("_backward"):
                    self.assertIn("batch_invariant", next(u for u in units if u["verdict"] == "verified")["numerics"])

    def test_the_prefix_of_no_sample_has_gradients_of_zero(self):
        if not HAS_KERNELS:
            self.skipTest("built without nvcc: the plugin has no kernels to launch")
        name = "prefix_shared_attention_backward mma bf16 B=2,G=0,Sq=3,Sp=9,Sk=3,Hq=2,Hkv=2,D=16"
        plugin = self.json("conformance", self.plugin_path(), "--op", "prefix_shared_attention_backward", "--dtype", "bf16",
                           "--case", name, **self.VARIABLES, LD_LIBRARY_PATH=EMULATED)["plugin"]
        self.assertIn("verified", {unit["verdict"] for unit in plugin["units"]})
        self.assertNotIn("failed", {unit["verdict"] for unit in plugin["units"]})

    def test_products_are_verified_on_the_emulated_library(self):
        if not HAS_KERNELS:
            self.skipTest("built without nvcc: the plugin has no kernels to launch")
        self.expect_verified("fake_cuda", {
            "gemm": ("bf16", 8), "matmul": ("f16", 2), "linear": ("bf16", 3), "linear_backward": ("bf16", 4),
            "matmul_backward": ("f16", 3), "grouped_gemm": ("bf16", 2), "grouped_gemm_backward": ("f32", 2),
            "linear_logp": ("f32", 10), "linear_logp_backward": ("bf16", 10), "linear_cross_entropy": ("bf16", 10),
            "linear_cross_entropy_backward": ("f32", 10), "fused_linear_cross_entropy": ("bf16", 18),
            "linear_jsd": ("f16", 9), "linear_jsd_backward": ("f16", 8)})

    def test_slopes_below_the_normal_numbers_of_f16_keep_their_digits(self):
        if not HAS_KERNELS:
            self.skipTest("built without nvcc: the plugin has no kernels to launch")
        # Gradients of the scores are near 1 / (1040 * 257); f16's normal numbers end at 6e-5.
        name = "linear_cross_entropy_backward cublaslt f16 positive N=1040,V=257,D=80"
        [unit] = self.json("conformance", self.plugin_path(), "--op", "linear_cross_entropy_backward", "--dtype", "f16",
                           "--full", "--case", name, **self.VARIABLES, LD_LIBRARY_PATH=EMULATED)["plugin"]["units"]
        self.assertEqual(unit["verdict"], "verified", unit["reason"])

    def test_calls_through_the_public_api_are_served_by_the_emulated_device(self):
        if not HAS_KERNELS:
            self.skipTest("built without nvcc: the plugin has no kernels to launch")
        # What DEVICE_TEST calls is tried when it asks; `add` alone in the ordinary run: the other test verifies.
        variables = {"LD_LIBRARY_PATH": EMULATED, "RLK_CUDA_REMOTE": "1", "RLK_VERIFY": "lazy"}
        plugin = self.cuda(**variables)
        self.assertEqual(plugin["state"], "registered", plugin["reason"])
        self.assertEqual([d["name"] for d in plugin["devices"]], ["Emulated device"])

        # Streams, events, copies, staging and data errors. What was not tried is staged, which a capture forbids.
        environment = {k: v for k, v in os.environ.items() if not k.startswith("RLK_")}
        environment.update(RLK_CACHE_DIR=self.cache, RLK_PLUGIN_PATH=LIBRARIES, RLK_PLUGINS_SELECT="cuda", **variables)
        if not command.LONG:
            environment.update(GTEST_FILTER="-*.Graphs", RLK_TEST_OPERATORS="add")
        done = subprocess.run([DEVICE_TEST], env=environment, capture_output=True, text=True, timeout=600)
        self.assertEqual(done.returncode, 0, done.stdout[-3000:])
        self.assertNotIn("SKIPPED", done.stdout)
        self.assertNotIn("not verified", done.stdout)


if __name__ == "__main__":
    command.main()
