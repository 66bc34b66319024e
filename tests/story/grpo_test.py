"""A GRPO step (examples/grpo_step.cpp) on the simulated runtimes with RLK_FALLBACK=strict: every operator of it is served
on the device, none is staged through the CPU, and the separate operators agree with grpo_loss. Every implementation is
tried whole before it serves, which takes minutes: packaging/test.sh has it with --all alone, for in an ordinary run the
vendors' stories try the operators, and the quickstart takes the step on the CPU. ctest has one vendor, the long run
all."""
import os
import re
import subprocess
import sys
import unittest

import command

ROOT, LIBRARIES, FAKES = (os.environ["RLK_TEST_" + name] for name in ("ROOT", "LIBRARIES", "FAKES"))
STEP = os.environ["RLK_TEST_GRPO_STEP"]
# Where each vendor's simulated runtime is. ctest tries the first.
RUNTIMES = {"cambricon": {"LD_LIBRARY_PATH": os.path.join(FAKES, "fake_cambricon")},
            "ascend": {"ASCEND_HOME_PATH": os.environ.get("RLK_TEST_ASCEND_HOME", "")},
            "rocm": {"LD_LIBRARY_PATH": os.path.join(FAKES, "fake_hip64")},
            "maca": {"LD_LIBRARY_PATH": os.path.join(FAKES, "fake_maca")},
            "cuda": {"LD_LIBRARY_PATH": os.path.join(FAKES, "fake_cuda"), "RLK_CUDA_REMOTE": "1"}}
OPERATORS = ("logp", "ratio_kl", "group_advantages", "policy_loss", "policy_loss_backward", "logp_backward", "grpo_loss",
             "grpo_loss_backward")


class GrpoStep(command.Case):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.batch = os.path.join(cls.place, "batch")
        subprocess.run([sys.executable, "-B", os.path.join(ROOT, "examples/make_batch.py"), cls.batch], check=True,
                       capture_output=True)

    def step(self, vendor, **variables):
        world = {k: v for k, v in os.environ.items() if not k.startswith("RLK_")}
        world.update(RUNTIMES[vendor], RLK_PLUGIN_PATH=LIBRARIES, RLK_PLUGINS_SELECT=vendor, RLK_FALLBACK="strict",
                     RLK_REQUIRE="%s:%s" % (vendor, ",".join(OPERATORS)), RLK_PROBE_TIMEOUT="7000", **variables)
        return subprocess.run([STEP, self.batch, "--backend", vendor], env=world, capture_output=True, text=True,
                              timeout=7200)

    def test_every_operator_of_a_step_is_served_on_the_device(self):
        vendors = [name for name in RUNTIMES if os.path.exists(os.path.join(LIBRARIES, "librlk_plugin_%s.so" % name))]
        for vendor in vendors if command.LONG else vendors[:1]:
            with self.subTest(vendor=vendor), self.cache_of_the_cpu_alone() as cache:
                done = self.step(vendor, RLK_CACHE_DIR=cache)
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr[-3000:])
                self.assertIn("on " + vendor, done.stdout)
                for name in ("loss", "mean KL", "gradient norm"):
                    one, other = map(float, re.search(rf"^{name} +(\S+) +(\S+)$", done.stdout, re.M).groups())
                    self.assertGreater(abs(one), 1e-3)
                    self.assertLess(abs(one - other), 1e-5)


if __name__ == "__main__":
    unittest.main()
