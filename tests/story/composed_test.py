"""The operators that are composed of a vendor's primitives (plugins/composed), on the simulated runtimes of Ascend and
Cambricon: each is verified in what it serves, and what it declines has a reason. An ordinary run tries one dtype of
each, which is another for the next operator, in a sample of its small tensors; the long run all. What this cannot show is the vendors'
arithmetic."""
import glob
import os
import re
import unittest

import command

ROOT = os.environ["RLK_TEST_ROOT"]
LIBRARIES = os.environ["RLK_TEST_LIBRARIES"]
DTYPES = ("f32", "bf16", "f16")
# An ordinary run tries cases of so many elements.
MOST = "4096"
# Of those with many cases, what it tries, by words of the titles.
BRIEF = {"max": "N=5,D=37", "sum": "N=5,D=37", "mean": "N=5,D=37", "softmax": "N=5,D=37", "log_softmax": "N=5,D=37",
         "scaled_softmax": "N=5,D=37", "softmax_backward": "N=5,D=37", "log_softmax_backward": "N=5,D=37",
         "scaled_softmax_backward": "N=5,D=37", "rms_norm": "N=5,H=37", "layer_norm": "N=5,H=37",
         "rms_norm_backward": "N=5,H=37", "layer_norm_backward": "N=5,H=37", "add_rms_norm": "N=5,H=37",
         "add_rms_norm_backward": "N=5,H=37", "token_rewards": "B=9,L=33",
         "policy_loss": "kind=cispo", "policy_loss_backward": "kind=cispo", "sample": "N=5,V=38", "attention_backward": "B=2,Sq=7,Sk=7,Hq=2,Hkv=2,D=16",
         "paged_attention": "B=3,Tq=3,Hq=2,Hkv=2,D=16,NB=5,MB=3,BS=8"}
# Of the vendors' calls: blocks of 8 tokens are too small for Ascend's.
OWN_BRIEF = {**BRIEF, "paged_attention": "B=3,Tq=3,Hq=2,Hkv=2,D=16,NB=5,MB=3,BS=64"}
# The vendors' calls for whole operators, beside the programs: operator, implementation, dtypes of which an ordinary run
# tries the first.
OWN = {
    "ascend": (("silu_and_mul", "swi_glu", ("f16",)), ("rms_norm", "rms_norm", ("f16",)),
               ("add_rms_norm", "add_rms_norm", ("f16",)), ("softmax", "softmax", ("f32", "bf16", "f16")),
               ("log_softmax", "log_softmax", ("bf16", "f32", "f16")),
               ("softmax_backward", "softmax_backward", ("f16", "f32", "bf16")),
               ("log_softmax_backward", "log_softmax_backward", ("f32", "bf16", "f16")),
               ("apply_rotary_pos_emb", "rotary_position_embedding", ("bf16", "f32", "f16")),
               ("paged_attention", "fused_v3", ("bf16", "f16"))),
    "cambricon": (("layer_norm", "cnnl_layer_norm", ("f16",)), ("rms_norm", "cnnl_rms_norm", ("f16",))),
}
# Operators of integers alone.
INTEGERS = {"moe_align_block_size": ("i32", "i64")}
# What Ascend declines in f64: it has products of matrices and numbers in order in f32 and less.
NO_F64 = ("attention", "attention_backward", "fused_linear_cross_entropy", "grouped_gemm", "grouped_gemm_backward",
          "linear_cross_entropy", "linear_cross_entropy_backward", "linear_jsd", "linear_jsd_backward", "linear_logp",
          "linear_logp_backward", "paged_attention", "prefix_shared_attention", "prefix_shared_attention_backward", "sort",
          "top_k", "topk_softmax")
# What an ordinary run tries in every dtype on Ascend.
EVERY = ("argmax", "cumsum", "gae", "logp_merge", "returns")


def operators():
    """By their declarations' names."""
    names = []
    for file in sorted(glob.glob(os.path.join(ROOT, "plugins/composed/operators/*.hpp"))):
        with open(file) as text:
            names += re.findall(r"^RLK_COMPOSED_\w+\(\s*([A-Z]\w*)", text.read(), re.M)
    return [re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower() for name in names]


def dtypes(op, all_of):
    """Of these the ones that the operator's declaration has."""
    if op in INTEGERS:
        return INTEGERS[op]
    with open(os.path.join(ROOT, "plugin_api/ops", op + ".toml")) as file:
        declared = re.search(r"^T = \[([^]]*)\]", file.read(), re.M)
    return [dtype for dtype in all_of if declared is None or '"%s"' % dtype in declared.group(1)]


class Composed(command.Case):
    def units(self, vendor, op, dtype, code=0, brief=BRIEF, **variables):
        cases = [] if command.LONG else ["--case", brief[op]] if op in brief else ["--at-most", MOST]
        cases += command.SAMPLE
        plugin = os.path.join(LIBRARIES, "librlk_plugin_%s.so" % vendor)
        return self.json("conformance", plugin, "--op", op, "--dtype", dtype, *cases, code=code, **variables)["plugin"]["units"]

    def expect_verified(self, units):
        for unit in units:
            self.assertIn(unit["verdict"], ("verified", "declined"), unit)
            self.assertTrue(unit["verdict"] == "verified" or unit["reason"], unit)
        self.assertIn("verified", {unit["verdict"] for unit in units})

    def expect_no_primitive(self, units):
        for unit in units:
            self.assertEqual(unit["verdict"], "declined", unit)
            if unit["implementation"] in ("aclnn", "cnnl"):
                self.assertIn("no documented primitive", unit["reason"])

    @unittest.skipUnless("RLK_TEST_ASCEND" in os.environ, "built without the ascend plugin")
    def test_every_operator_is_verified_on_ascend(self):
        for i, op in enumerate(operators()):
            has = dtypes(op, DTYPES)
            for dtype in dtypes(op, (*DTYPES, "f64")) if command.LONG or op in EVERY else (has[i % len(has)],):
                with self.subTest(op=op, dtype=dtype):
                    is_declined = dtype == "f64" and op in NO_F64
                    units = self.units("ascend", op, dtype, ASCEND_HOME_PATH=os.environ["RLK_TEST_ASCEND"],
                                       code=1 if is_declined else 0)
                    (self.expect_no_primitive if is_declined else self.expect_verified)(units)

    @unittest.skipUnless("RLK_TEST_CAMBRICON" in os.environ, "built without the cambricon plugin")
    def test_every_operator_is_verified_on_cambricon(self):
        for i, op in enumerate(operators()):
            has = dtypes(op, DTYPES)
            for dtype in has if command.LONG else (has[(i + 1) % len(has)],):
                with self.subTest(op=op, dtype=dtype):
                    self.expect_verified(self.units("cambricon", op, dtype, LD_LIBRARY_PATH=os.environ["RLK_TEST_CAMBRICON"]))

    def expect_own(self, vendor, **variables):
        for op, name, has in OWN[vendor]:
            for dtype in has if command.LONG else has[:1]:
                with self.subTest(op=op, implementation=name, dtype=dtype):
                    units = [unit for unit in self.units(vendor, op, dtype, brief=OWN_BRIEF, **variables)
                             if unit["implementation"] == name]
                    self.expect_verified(units)

    @unittest.skipUnless("RLK_TEST_ASCEND" in os.environ, "built without the ascend plugin")
    def test_ascends_own_calls_are_verified_beside_the_programs(self):
        self.expect_own("ascend", ASCEND_HOME_PATH=os.environ["RLK_TEST_ASCEND"])

    @unittest.skipUnless("RLK_TEST_ASCEND" in os.environ, "built without the ascend plugin")
    def test_bench_times_all_implementations_of_an_operator_that_was_not_tried_yet(self):
        with self.cache_of_the_cpu_alone() as cache:
            rows = self.json("bench", "silu_and_mul", "--dtype", "f16", "--shape", "N=8,H=64", "--seconds", "0.02",
                             RLK_PLUGIN_PATH=os.path.join(LIBRARIES, "librlk_plugin_ascend.so"), RLK_VERIFY="lazy",
                             RLK_PROBE_TIMEOUT="60",  # a first start tries for as long as a user's
                             RLK_CACHE_DIR=cache, ASCEND_HOME_PATH=os.environ["RLK_TEST_ASCEND"])["rows"]
        served = [row["impl"] for row in rows if row["case"].endswith("on ascend") and "staged" not in row]
        self.assertEqual(sorted(served), ["ascend/aclnn", "ascend/swi_glu"])

    @unittest.skipUnless("RLK_TEST_CAMBRICON" in os.environ, "built without the cambricon plugin")
    def test_cambricons_own_calls_are_verified_beside_the_programs(self):
        self.expect_own("cambricon", LD_LIBRARY_PATH=os.environ["RLK_TEST_CAMBRICON"])

    @unittest.skipUnless("RLK_TEST_CAMBRICON" in os.environ, "built without the cambricon plugin")
    def test_draws_are_declined_where_integers_are_not_multiplied(self):
        found = self.units("cambricon", "sample", "f32", LD_LIBRARY_PATH=os.environ["RLK_TEST_CAMBRICON"])
        self.assertIn("verified", {unit["verdict"] for unit in found})  # without draws
        for unit in found:
            if unit["verdict"] == "declined":
                self.assertIn("draws are products of integers of 64 bits", unit["reason"])

    @unittest.skipUnless("RLK_TEST_CAMBRICON" in os.environ, "built without the cambricon plugin")
    def test_what_cambricon_has_no_primitive_for_is_declined_with_that_reason(self):
        self.expect_no_primitive(
            self.units("cambricon", "relu", "f64", LD_LIBRARY_PATH=os.environ["RLK_TEST_CAMBRICON"], code=1))


if __name__ == "__main__":
    unittest.main()
