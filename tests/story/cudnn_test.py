"""The cudnn plugin on a simulated cuDNN and a simulated CUDA driver: that it tells cuDNN what a call means (masks, sizes,
strides, scale, lse) and what it says where cuDNN is missing or old. What this cannot show: how cuDNN computes."""
import ctypes
import os
import unittest

import command

FAKES = os.environ["RLK_TEST_FAKES"]
LIBRARIES = os.environ["RLK_TEST_LIBRARIES"]
PLUGIN = os.path.join(LIBRARIES, "librlk_plugin_cudnn.so")
CUDA = os.path.join(LIBRARIES, "librlk_plugin_cuda.so")


def libraries(*names):
    return os.pathsep.join(os.path.join(FAKES, name) for name in names)


def cudnn_is_installed():
    try:
        ctypes.CDLL("libcudnn.so.9")
        return True
    except OSError:
        return any(os.path.exists(f"/usr/local/cuda/{folder}/libcudnn.so.9") for folder in ("lib", "lib64"))


class Cudnn(command.Case):
    def listed(self, *names, **variables):
        """The plugin and the built-in one as `list` has them; the cuda plugin's own operators would take a minute."""
        answer = self.json("list", RLK_PLUGIN_PATH=PLUGIN, LD_LIBRARY_PATH=libraries(*names), VIRTUAL_ENV=None,
                           CUDNN_HOME=None, CUDA_HOME=None, CUDA_PATH=None, **variables)
        return {plugin["id"]: plugin for plugin in answer["plugins"]}

    def conformance(self, op, code=0, words=(), **variables):
        answer = self.json("conformance", PLUGIN, "--device-plugin", CUDA, "--op", op, *words, code=code,
                           LD_LIBRARY_PATH=libraries("fake_cuda", "fake_cudnn"), RLK_CUDA_REMOTE="1", **variables)
        return answer["plugin"]

    def units(self, op, **options):
        return self.conformance(op, **options)["units"]

    def assert_off_alone(self, plugins, code, text):
        self.assertEqual(plugins["cpu"]["state"], "registered")
        self.assertEqual((plugins["cudnn"]["state"], plugins["cudnn"]["reason_code"]), ("absent", code))
        self.assertIn(text, plugins["cudnn"]["reason"])
        self.assertIn("LD_LIBRARY_PATH", plugins["cudnn"]["hint"])

    def test_a_missing_library_turns_off_itself_alone(self):
        if cudnn_is_installed():
            self.skipTest("this machine has cuDNN")
        self.assert_off_alone(self.listed("fake_cuda"), "RUNTIME_LIBRARY_MISSING", "libcudnn.so.9")

    def test_a_library_without_the_backend_api_is_told_with_what_it_lacks(self):
        self.assert_off_alone(self.listed("fake_cuda", "fake_cudnn_empty"), "RUNTIME_LIBRARY_MISSING",
                              "lacks cudnnCreate, ")

    def test_an_old_release_is_told_with_the_one_that_is_needed(self):
        plugins = self.listed("fake_cuda", "fake_cudnn", RLK_FAKE_CUDNN_VERSION="90800")
        self.assert_off_alone(plugins, "RUNTIME_TOO_OLD", "cuDNN 9.8.0 is installed; attention is right from 9.10.2")

    def test_the_library_and_its_release_are_evidence(self):
        plugin = self.conformance("attention", words=("--dtype", "bf16", "--case", "causal=on"))
        evidence = {e["kind"]: e["value"] for e in plugin["evidence"]}
        self.assertEqual(evidence["runtime_version"], "9.19.0")
        self.assertIn("fake_cudnn/libcudnn.so.9", evidence["runtime_library"])

    def test_forms_are_verified_or_declined_with_a_reason(self):
        declined = {"layout=packed": "LAYOUT", "key_mask": "INPUT", "grad_lse": "INPUT", "softcap": "SOFTCAP",
                    "strided": "STRIDES"}
        for op, words in (("attention", ()), ("attention_backward", ("--dtype", "bf16"))):
            for unit in self.units(op, words=words):
                told = (unit["op"], unit["implementation"], unit["dtype"], unit["feature"])
                with self.subTest(unit=told):
                    code = "DTYPE" if unit["dtype"] in ("f32", "f64") else declined.get(unit["feature"])
                    self.assertEqual(unit["verdict"], "declined" if code else "verified", unit)
                    if code:
                        self.assertEqual(unit["reason_code"], code)
                    else:
                        self.assertEqual("deterministic" in unit["numerics"],
                                         (op, unit["implementation"]) != ("attention_backward", "cudnn"))
                        self.assertNotIn("accurate", unit["numerics"])

    def test_gradients_that_would_miss_the_bound_are_declined(self):
        for dtype, version, code, text in (("f16", "91900", "DTYPE", "small ones become 0"),
                                           ("bf16", "91500", "RUNTIME_TOO_OLD", "cuDNN 9.15.0 computes gradients for whole")):
            with self.subTest(dtype=dtype, version=version):
                units = self.units("attention_backward", code=1, words=("--dtype", dtype), RLK_FAKE_CUDNN_VERSION=version)
                for unit in units:
                    self.assertEqual((unit["verdict"], unit["reason_code"]), ("declined", code))
                    self.assertIn(text, unit["reason"])
                self.assertEqual({unit["implementation"] for unit in units}, {"cudnn", "cudnn_deterministic"})

    def test_gradients_of_grouped_heads_may_be_rounded_before_their_sum(self):
        units = self.units("attention_backward", words=("--dtype", "bf16", "--full", "--case",
                                                        "bf16 B=2,Sq=1,Sk=7,Hq=4,Hkv=2,D=16"))
        self.assertEqual({unit["verdict"] for unit in units if not unit["feature"]}, {"verified"})

    def test_an_engine_whose_kernel_does_not_compile_is_passed_over(self):
        units = self.units("attention", words=("--dtype", "bf16", "--case", "causal=on"), RLK_FAKE_CUDNN_BROKEN_ENGINE="1")
        self.assertIn("verified", {unit["verdict"] for unit in units})
        self.assertNotIn("failed", {unit["verdict"] for unit in units})


if __name__ == "__main__":
    unittest.main()
