"""The cambricon plugin without Cambricon's hardware: what it says where Neuware is missing, old or shows nothing, and its
operators on a strict simulated Neuware. What this cannot show: whether CNNL's functions take what the plugin gives them
(most of their declarations are public in no document), and how CNNL computes."""
import ctypes
import os
import shutil
import tempfile
import unittest

import command

FAKES = os.environ["RLK_TEST_FAKES"]
PLUGIN = os.environ["RLK_TEST_CAMBRICON_PLUGIN"]


def neuware_is_installed():
    try:
        ctypes.CDLL("libcnrt.so")
        return True
    except OSError:
        return os.path.isdir("/usr/local/neuware")


class Cambricon(command.Case):
    def cambricon(self, library, **variables):
        variables.setdefault("LD_LIBRARY_PATH", os.path.join(FAKES, library))
        # The list shows how far the plugin comes and tries no operator. A verdict's key leaves the simulation's variables out.
        with self.cache_of_the_cpu_alone() as cache:
            answer = self.json("list", RLK_PLUGIN_PATH=PLUGIN, RLK_CACHE_DIR=cache, RLK_VERIFY="lazy", **variables)
        [plugin] = [p for p in answer["plugins"] if p["id"] == "cambricon"]
        return plugin

    def conformance(self, library, op, *options, code=0, **variables):
        if not command.LONG and "--case" not in options:
            options += ("--at-most", "4096", *command.SAMPLE)
        answer = self.json("conformance", PLUGIN, "--op", op, *options, code=code,
                           LD_LIBRARY_PATH=os.path.join(FAKES, library), **variables)
        return answer["plugin"]

    def test_without_neuware_everything_that_was_looked_for_is_evidence(self):
        if neuware_is_installed():
            self.skipTest("this machine has Neuware")
        plugin = self.cambricon("none", NEUWARE_HOME="/nowhere/neuware")
        self.assertEqual((plugin["state"], plugin["reason_code"]), ("absent", "RUNTIME_LIBRARY_MISSING"))
        for text in ("libcnrt.so, libcndrv.so, libcnnl.so", "/nowhere/neuware/lib64", "/usr/local/neuware/lib64"):
            self.assertIn(text, plugin["reason"])
        self.assertIn("NEUWARE_HOME", plugin["hint"])
        self.assertEqual({e["kind"] for e in plugin["evidence"]},
                         {"device_node", "pci_device", "environment", "runtime_library"})

    def test_a_library_that_is_missing_alone_is_named_alone(self):
        if neuware_is_installed():
            self.skipTest("this machine has Neuware")
        with tempfile.TemporaryDirectory() as folder:
            for name in ("libcnrt.so", "libcndrv.so"):
                shutil.copy(os.path.join(FAKES, "fake_cambricon", name), folder)
            plugin = self.cambricon("", LD_LIBRARY_PATH=folder)
        self.assertEqual(plugin["reason_code"], "RUNTIME_LIBRARY_MISSING")
        self.assertIn("cannot open libcnnl.so;", plugin["reason"])

    def test_what_the_runtime_says_becomes_the_state(self):
        for library, variables, state, code, text in (
                ("fake_cambricon", {"RLK_FAKE_CNRT_DEVICES": "0"}, "absent", "NO_DEVICE", "sees no device (code 0)"),
                ("fake_cambricon", {"RLK_FAKE_CNRT_VERSION": "41001"}, "absent", "RUNTIME_TOO_OLD", "is CNRT 4.10.1; 5.0"),
                ("fake_cambricon", {"RLK_FAKE_CNRT_FAIL": "cnInit:0:100002"}, "absent", "RUNTIME_INIT_FAILED", "100002"),
                ("fake_cambricon", {"RLK_FAKE_CNRT_FAIL": "cnrtGetDeviceCount:0:632015"}, "absent", "NO_DEVICE", "632015"),
                ("fake_cambricon", {"RLK_FAKE_CNRT_NAME": "GeForce"}, "absent", "UNKNOWN_DEVICE", "\"GeForce\""),
                ("fake_cambricon_old", {}, "absent", "RUNTIME_SYMBOL_MISSING", "lacks cnrtQueueQuery; tried ")):
            with self.subTest(code=code, **variables):
                plugin = self.cambricon(library, **variables)
                self.assertEqual((plugin["state"], plugin["reason_code"]), (state, code))
                self.assertIn(text, plugin["reason"])

    def test_the_device_is_described_with_its_evidence(self):
        plugin = self.cambricon("fake_cambricon")
        self.assertEqual(plugin["state"], "registered")
        self.assertEqual([(d["name"], d["arch"]) for d in plugin["devices"]], [("Cambricon MLU590-Simulated", "mtp_592")])
        evidence = {e["kind"]: e["value"] for e in plugin["evidence"]}
        self.assertEqual(evidence["runtime_version"], "CNRT 6.14.1, CNNL 1.27.0")
        self.assertIn("fake_cambricon/libcnnl.so", evidence["runtime_library"])
        self.assertNotIn("graphs", evidence)

    def test_a_runtime_without_task_topologies_captures_nothing_and_says_what_it_lacks(self):
        evidence = {e["kind"]: e["value"] for e in self.cambricon("fake_cambricon_bare")["evidence"]}
        self.assertIn("captures no graphs: it lacks cnrtQueueBeginCapture, ", evidence["graphs"])
        self.assertIn("cnrtTaskTopoEntityDestroy", evidence["graphs"])
        units = self.conformance("fake_cambricon_bare", "add", "--dtype", "f32")["units"]
        self.assertIn("verified", {unit["verdict"] for unit in units})

    def test_operators_are_verified_or_declined_with_a_reason(self):
        for op, least, dtypes in (("add", 4, {"f32", "bf16", "f16"}), ("swiglu_backward", 3, {"f32", "bf16", "f16"}),
                                  ("logp", 30, {"f32", "bf16", "f16"})):
            for library in ("fake_cambricon", "fake_cambricon_lean"):
                if op == "logp" and library == "fake_cambricon_lean" and not command.LONG:
                    continue  # attention, below, reduces there
                with self.subTest(op=op, library=library):
                    units = self.conformance(library, op)["units"]
                    verified = [unit for unit in units if unit["verdict"] == "verified"]
                    self.assertGreaterEqual(len(verified), least)
                    self.assertEqual({unit["dtype"] for unit in verified}, dtypes)
                    for unit in units:
                        self.assertIn(unit["verdict"], ("verified", "declined"))
                        if unit["verdict"] == "declined":
                            self.assertTrue(unit["reason"], unit)

    def test_a_dtype_without_a_primitive_is_declined_by_the_word_that_lacks_it(self):
        units = self.conformance("fake_cambricon", "silu")["units"]
        reasons = [unit["reason"] for unit in units if unit["dtype"] == "f64" and unit["verdict"] == "declined"]
        self.assertTrue(reasons)
        for reason in reasons:
            self.assertIn("no documented primitive", reason)

    def test_attention_is_verified_with_its_options_and_declines_what_has_no_primitive(self):
        for op, case in (("attention", "B=2,Tq=11,Tk=11,Hq=2,Hkv=2,D=16"),
                         ("attention_backward", "B=2,Sq=0,Sk=7,Hq=2,Hkv=2,D=16"),
                         ("paged_attention", "B=0,Tq=0,Hq=2,Hkv=2,D=16,NB=5,MB=3,BS=8")):
            with self.subTest(op=op):
                units = self.conformance("fake_cambricon_lean", op, "--dtype", "f32", "--case", case)["units"]
                self.assertEqual({unit["verdict"] for unit in units} | {"declined"}, {"verified", "declined"})
            with self.subTest(op=op, dtype="f64"):
                for unit in self.conformance("fake_cambricon", op, "--dtype", "f64", code=1)["units"]:
                    self.assertEqual(unit["verdict"], "declined", unit)
                    self.assertIn("no documented primitive", unit["reason"])

    def test_small_chunks_and_blocks_and_a_late_busy_queue_change_nothing(self):
        for variables in ({"RLK_CAMBRICON_WORKSPACE_MB": "1"}, {"RLK_FAKE_CNRT_BUSY": "1", "RLK_FAKE_CNRT_DELAY_US": "50"}):
            with self.subTest(**variables):
                units = self.conformance("fake_cambricon", "logp", "--dtype", "bf16", **variables)["units"]
                self.assertEqual({unit["verdict"] for unit in units}, {"verified"})
        # Of 151936 entries the weights are cast in two blocks.
        units = self.conformance("fake_cambricon", "linear_logp_backward", "--dtype", "bf16",
                                 RLK_CAMBRICON_WORKSPACE_MB="1")["units"]
        self.assertEqual({unit["verdict"] for unit in units}, {"verified"})

    def test_a_function_that_cnnl_lacks_turns_off_what_needs_it_and_nothing_else(self):
        plugin = self.cambricon("fake_cambricon_bare")
        self.assertEqual(plugin["state"], "registered")
        composed = self.json("conformance", PLUGIN, "--op", "silu", "--dtype", "f32",
                             LD_LIBRARY_PATH=os.path.join(FAKES, "fake_cambricon_bare"))["plugin"]["units"]
        self.assertIn("verified", {unit["verdict"] for unit in composed})
        units = self.conformance("fake_cambricon_bare", "cross_entropy_backward", code=1)["units"]
        self.assertTrue(any("1.27.0 has no cnnlGather" in unit["reason"] for unit in units), units)
        norms = self.conformance("fake_cambricon_bare", "layer_norm", "--dtype", "f16", "--case", "N=5,H=37")["units"]
        for unit in norms:
            if unit["implementation"] == "cnnl_layer_norm":
                self.assertEqual(unit["verdict"], "declined", unit)
                self.assertIn("1.27.0 has no cnnlLayerNormForward", unit["reason"])
        self.assertIn(("cnnl", "verified"), {(unit["implementation"], unit["verdict"]) for unit in norms})

    def test_a_call_that_fails_is_told_in_the_runtimes_words_and_nothing_is_verified(self):
        for fault, status in (("FAIL=cnnlOpTensor:3:100132", "DEVICE_LOST"), ("FAIL=cnrtMalloc:2:100100", "OUT_OF_MEMORY"),
                              ("FAIL=cnnlSetTensorDescriptor:5:3", "CNNL_STATUS_BAD_PARAM"),
                              ("FAIL=cnnlCreate:1:2", "OUT_OF_MEMORY"), ("ASYNC_FAIL=cnnlOpTensor:4", "DEVICE_LOST")):
            with self.subTest(fault=fault):
                name, value = fault.split("=")
                plugin = self.conformance("fake_cambricon", "add", code=1, **{"RLK_FAKE_CNRT_" + name: value})
                told = [plugin["reason"]] + [unit["reason"] for unit in plugin["units"] if unit["verdict"] == "failed"]
                self.assertTrue(any(status in reason for reason in told), told)


if __name__ == "__main__":
    unittest.main()
