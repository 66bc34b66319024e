"""What the stories of the SIMT vendors share: the plugin on simulated runtimes, whole or with functions missing."""
import ctypes
import os
import shutil
import sys
import tempfile

import command

FAKES = os.environ["RLK_TEST_FAKES"]
LIBRARIES = os.environ["RLK_TEST_LIBRARIES"]
DTYPES = ("f32", "bf16", "f16", "f64")
DTYPES_OF = {"logp_merge": ("f32", "f64"), "moe_align_block_size": ("i32", "i64")}  # of operators that have others
# What devices decline; of policy_loss where tokens are chosen among those of the whole batch.
OF_WHOLE_BATCH = ("kind=clip_cov", "kind=kl_cov", "top_entropy_quantile")
CPU_ALONE = {"linear_logp": ("keep_mask", "sum_p2"), "linear_logp_backward": ("keep_mask",), "policy_loss": OF_WHOLE_BATCH,
             "policy_loss_backward": OF_WHOLE_BATCH}
# Implementations on matrix units, which take 16 bits and decline some features, or every simulated device.
CHOOSY = {"attention": ("mfma", "mma_fixed", "mma_split", "wgmma", "wgmma_accurate"),
          "attention_backward": ("mma", "wgmma"),
          "linear_logp": ("wgmma",), "linear_logp_backward": ("wgmma",),
          "grouped_gemm": ("mma", "wgmma"), "grouped_gemm_backward": ("mma", "wgmma"),
          "paged_attention": ("mma_split", "mma_fixed"),
          "prefix_shared_attention": ("mma", "mma_accurate", "wgmma"), "prefix_shared_attention_backward": ("mma",)}
# An ordinary run tries cases of so many elements: the 65536 rows of a large one are as many blocks, which the fibers of
# a host run one after another. Conformance on the CPU has the same cases at every size.
MOST = "4096"
# Of operators with some thousand cases those that it tries, by words of their titles.
CASES_OF = {op: words for words, ops in {
    "N=5,H=37": ("rms_norm", "rms_norm_backward", "add_rms_norm", "add_rms_norm_backward", "layer_norm",
                 "layer_norm_backward"),
    "N=5,D=37": ("argmax", "max", "cumsum", "softmax", "softmax_backward", "scaled_softmax",
                 "scaled_softmax_backward", "log_softmax", "log_softmax_backward"),
    "N=5,V=37": ("cross_entropy", "cross_entropy_backward", "kl_div", "kl_div_backward", "logits_ratio_kl",
                 "logits_ratio_kl_backward", "tvd_backward"),
    "N=5,R=5,V=37": ("logp", "logp_backward"),
    "N=5,V=37,D=33": ("fused_linear_cross_entropy", "linear_logp", "linear_logp_backward", "linear_cross_entropy",
                      "linear_cross_entropy_backward"),
    "N=5,V=37,D=33,E=40": ("linear_jsd", "linear_jsd_backward"),
    "softcap": ("attention", "attention_backward", "prefix_shared_attention", "prefix_shared_attention_backward"),
    "lse": ("paged_attention",), "N=5,E=8": ("topk_softmax",), "B=8": ("group_advantages",), "B=8,K=3": ("multi_reward_advantages",),
    "kind=cispo": ("policy_loss", "policy_loss_backward"), "logp_clamp": ("topk_kl", "topk_kl_backward"),
    "ref_logits": ("grpo_loss",), "ref_logp": ("grpo_loss_backward",), "student_kl": ("jsd", "jsd_backward"),
    "uniform_samples": ("sample",), "strided": ("sort", "top_k")}.items() for op in ops}


def mapped_operators():
    """The operators of plugins/simt/operators, by their declarations' names."""
    sys.path.insert(0, os.path.join(os.environ["RLK_TEST_ROOT"], "plugins"))
    import support
    return sorted(support.mapped())


def is_installed(names):
    for name in names:
        try:
            ctypes.CDLL(name)
            return True
        except OSError:
            pass
    return False


class Vendor(command.Case):
    NAME = ""
    VARIABLES = {}  # what its simulated runtime is told always
    WHOLE = ()  # operators of CASES_OF of which the ordinary run samples all cases here, as others do on other vendors

    def plugin_path(self):
        return os.path.join(LIBRARIES, "librlk_plugin_%s.so" % self.NAME)

    def listed(self, *libraries, **variables):
        """The plugin's part of `list` with these folders of simulated runtimes."""
        variables.setdefault("LD_LIBRARY_PATH", ":".join(os.path.join(FAKES, name) for name in libraries))
        variables.setdefault("RLK_PLUGIN_PATH", self.plugin_path())
        # What the simulation is told is no part of a verdict's key.
        with self.cache_of_the_cpu_alone() as cache:
            answer = self.json("list", RLK_CACHE_DIR=cache, **variables)
        [plugin] = [p for p in answer["plugins"] if p["id"] == self.NAME]
        return plugin

    def expect_states(self, states):
        """(folder, variables, state, reason code, text) of each."""
        for library, variables, state, code, text in states:
            with self.subTest(library=library, code=code, **variables):
                plugin = self.listed(library, **variables)
                self.assertEqual((plugin["state"], plugin["reason_code"]), (state, code), plugin["reason"])
                self.assertIn(text, plugin["reason"])

    def without(self, library, functions):
        """A folder with a copy of the simulated library that lacks these functions."""
        with open(os.path.join(FAKES, library), "rb") as file:
            data = file.read()
        for function in functions:
            name = b"\0" + function.encode() + b"\0"
            self.assertIn(name, data, function)
            # The loader finds a name by its hash and then compares: no program asks for what is written here.
            data = data.replace(name, b"\0_" + name[2:])
        folder = tempfile.mkdtemp(dir=self.folder)
        path = os.path.join(folder, os.path.basename(library))
        with open(path, "wb") as file:
            file.write(data)
        shutil.copymode(os.path.join(FAKES, library), path)
        return folder

    def conformance(self, library, op, dtype, code=0, **variables):
        variables.setdefault("LD_LIBRARY_PATH", os.path.join(FAKES, library))
        cases = [] if command.LONG else ["--at-most", MOST]
        if op in CASES_OF and op not in self.WHOLE and not command.LONG:
            cases = ["--case", CASES_OF[op]]
        cases += command.SAMPLE
        return self.json("conformance", self.plugin_path(), "--op", op, "--dtype", dtype, *cases, code=code,
                         **self.VARIABLES, **variables)["plugin"]

    def expect_verified(self, library, units):
        """{op: (dtype, least number of units)}: all of them are verified. That dtype alone, every one in the long run."""
        for op, dtype, least in [(op, dtype, least) for op, (only, least) in units.items()
                                 for dtype in (DTYPES_OF.get(op, DTYPES) if command.LONG else (only,))]:
            with self.subTest(library=library, op=op, dtype=dtype):
                every, declined = self.conformance(library, op, dtype)["units"], CPU_ALONE.get(op, ())
                choosy = [unit for unit in every if unit["implementation"] in CHOOSY.get(op, ())]
                self.assertNotIn("failed", {unit["verdict"] for unit in choosy})
                # wgmma wants tensor maps, which these simulated drivers do not make, mfma a device that a test names.
                if {unit["implementation"] for unit in choosy} - {"mfma", "wgmma"} and dtype in ("bf16", "f16"):
                    self.assertIn("verified", {unit["verdict"] for unit in choosy})
                verdicts = [unit["verdict"] for unit in every if unit["feature"] not in declined and unit not in choosy]
                self.assertLessEqual({unit["verdict"] for unit in every if unit["feature"] in declined}, {"declined"})
                self.assertEqual(set(verdicts), {"verified"})
                self.assertGreaterEqual(len(verdicts), least)

    def expect_operators_verified(self, *libraries):
        """The operators of plugins/simt/operators: every one in every dtype on each simulated runtime in the long run.
        Else each on one of a vendor's runtimes in one dtype, which are others for the next operator and vendor."""
        turn = ("cuda", "rocm", "maca").index(self.NAME)
        for i, op in enumerate(mapped_operators()):
            if command.LONG:
                for library in libraries:
                    self.expect_verified(library, {op: ("f32", 1)})
            elif i % 3 == turn:
                dtypes = DTYPES_OF.get(op, DTYPES)
                self.expect_verified(libraries[i // 3 % len(libraries)], {op: (dtypes[i % len(dtypes)], 1)})

    def expect_failures(self, library, variable, faults):
        """(what fails, text of the reason) of each: nothing is verified, in the runtime's words."""
        for fault, text in faults:
            with self.subTest(fault=fault):
                plugin = self.conformance(library, "add", "f32", code=1, **{variable: fault})
                failed = [unit for unit in plugin["units"] if unit["verdict"] == "failed"]
                self.assertTrue(failed)
                self.assertTrue(any(text in unit["reason"] for unit in failed), failed)
