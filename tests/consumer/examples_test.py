"""The examples, run as a user does: both ways of a GRPO step agree, a text about a bad batch says what to do, and a layer of
Qwen3 is as in fp64, and decoding as prefill; and the plugin among them passes conformance.

    examples_test.py EXAMPLES RLK_PLUGINS    their source, and the installed command; runs in their build folder
"""
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

EXAMPLES = sys.argv.pop(1)
COMMAND = sys.argv.pop(1)
BUILD = os.getcwd()
FLOATS = "'descr': '<f4'"


class Examples(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.batch = tempfile.mkdtemp(prefix="rlk-examples-")
        subprocess.run([sys.executable, "-B", os.path.join(EXAMPLES, "make_batch.py"), cls.batch], check=True)

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.batch)

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="rlk-examples-")
        shutil.copytree(self.batch, self.folder, dirs_exist_ok=True)

    def tearDown(self):
        shutil.rmtree(self.folder)

    def run_program(self, *words, code=0):
        done = subprocess.run([os.path.join(BUILD, words[0]), *words[1:]], capture_output=True, text=True, timeout=600)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stderr if code else done.stdout

    def change(self, name, action):
        """Writes the file anew: the bytes that action makes of its bytes."""
        path = os.path.join(self.folder, name + ".npy")
        with open(path, "rb") as file:
            data = action(file.read())
        with open(path, "wb") as file:
            file.write(data)

    def rename(self, name, old, new):
        """Replaces a word of the header by one of the same length."""
        self.assertEqual(len(old), len(new))
        self.change(name, lambda data: data.replace(old.encode(), new.encode(), 1))

    def refused(self, *texts):
        error = self.run_program("grpo_step", self.folder, code=1)
        for text in texts:
            self.assertIn(text, error)
        self.assertFalse(os.path.exists(os.path.join(self.folder, "grad_logits.npy")))

    def test_logp(self):
        self.assertEqual(self.run_program("logp"), "-0.407606 -2.407606\n")

    def test_a_step_in_which_nothing_is_trivial(self):
        text = self.run_program("grpo_step", self.folder)
        for name in ("loss", "mean KL", "gradient norm"):
            one, other = map(float, re.search(rf"^{name} +(\S+) +(\S+)$", text, re.MULTILINE).groups())
            self.assertGreater(abs(one), 1e-3)
            self.assertLess(abs(one - other), 1e-5)
        self.assertGreater(float(re.search(r"clip fraction (\S+)", text).group(1)), 0)
        size = os.path.getsize(os.path.join(self.folder, "logits.npy"))
        self.assertEqual(os.path.getsize(os.path.join(self.folder, "grad_logits.npy")), size)

    def test_other_groups_give_another_loss(self):
        losses = [re.search(r"^loss +(\S+)", self.run_program("grpo_step", self.folder, *words), re.MULTILINE).group(1)
                  for words in ([], ["--samples-per-prompt", "8"], ["--beta", "0"])]
        self.assertEqual(len(set(losses)), 3, losses)

    def test_an_ignored_id_counts_as_masked(self):
        self.change("mask", lambda data: data[:-128] + b"\1" * 128)
        self.assertIn("104 active", self.run_program("grpo_step", self.folder))

    def test_a_bool_mask(self):
        self.rename("mask", "|u1", "|b1")
        self.run_program("grpo_step", self.folder)

    def test_files_of_version_2(self):
        self.change("rewards", lambda data: data[:6] + b"\2\0" + data[8:10] + b"\0\0" + data[10:])
        self.run_program("grpo_step", self.folder)

    def test_a_missing_file(self):
        os.remove(os.path.join(self.folder, "rewards.npy"))
        self.refused("rewards.npy", "No such file", "expected a .npy file")

    def test_a_folder_in_place_of_a_file(self):
        os.remove(os.path.join(self.folder, "rewards.npy"))
        os.mkdir(os.path.join(self.folder, "rewards.npy"))
        self.refused("rewards.npy")

    def test_another_dtype(self):
        self.rename("old_logp", "<f4", "<f8")
        self.refused("old_logp.npy", "'<f8'", "expected '<f4'", "numpy.float32")

    def test_another_order(self):
        self.rename("ref_logits", "False", "True ")
        self.refused("ref_logits.npy", "Fortran", "numpy.ascontiguousarray")

    def test_another_shape(self):
        self.rename("ids", "(8, 16)", "(16, 8)")
        self.refused("ids.npy", "[16, 8]", "expected [8, 16]")

    def test_logits_without_a_dimension(self):
        self.rename("logits", "(8, 16, 512)", "(128, 512  )")
        self.refused("logits.npy", "[128, 512]", "expected [sequences, tokens, vocabulary]")

    def test_damaged_shapes(self):
        self.rename("logits", "(8, 16, 512)", "(8, 16, -12)")
        self.refused("logits.npy", "'-12'")
        self.change("logits", lambda data: data.replace(b"(8, 16, -12)", b"(9" + b"9" * 9 + b",9)"))
        self.refused("logits.npy", "expected")

    def test_a_file_that_ends_early(self):
        self.change("logits", lambda data: data[:-4])
        self.refused("logits.npy", "262140 bytes", "expected 262144")
        for length in (0, 5, 9, 10, 40):
            self.change("logits", lambda data: data[:length])
            self.refused("logits.npy")
            shutil.copy(os.path.join(self.batch, "logits.npy"), self.folder)

    def test_an_id_outside_the_vocabulary(self):
        self.change("ids", lambda data: data[:-128 * 8] + struct.pack("<q", 512) + data[-127 * 8:])
        self.refused("logp", "512")

    def test_groups_that_do_not_divide_the_batch(self):
        error = self.run_program("grpo_step", self.folder, "--samples-per-prompt", "3", code=1)
        self.assertIn("samples_per_prompt", error)

    def test_the_asynchronous_plugin_passes_conformance(self):
        plugin = os.path.join(BUILD, "async_plugin", "librlk_plugin_queue.so")
        done = subprocess.run([COMMAND, "conformance", plugin, "--require-cases", "--json"], capture_output=True, text=True,
                              timeout=600)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        units = json.loads(done.stdout)["plugin"]["units"]
        verified = {unit["op"] for unit in units if unit["verdict"] == "verified"}
        self.assertEqual(verified, {"logp", "relu"})

    def test_a_layer_of_qwen3_is_as_in_fp64(self):
        text = self.run_program("qwen3_layer")
        errors = {name: float(error) for name, error in re.findall(r"^(\S.*?) {2,}\S+ +(\S+)$", text, re.MULTILINE)}
        self.assertEqual(len(errors), 15, text)
        for name in ("prefill", "decoding, token major", "decoding, head major", "gradient of x", "gradient of k norm"):
            self.assertIn(name, errors)
        for name, error in errors.items():
            self.assertTrue(0 < error < 2e-6, f"{name}: {error}")
        self.assertEqual(errors["decoding, token major"], errors["decoding, head major"])

    def test_a_layer_of_qwen3_fails_beyond_the_bound(self):
        self.assertIn("by more than the bound", self.run_program("qwen3_layer", "--bound", "1e-12", code=1))

    def test_decoding_of_qwen3_draws_the_same_again_and_is_as_prefill(self):
        for dtype in ("f32", "bf16"):
            text = self.run_program("qwen3_decode", "--dtype", dtype)
            ids = [line.split()[2:] for line in text.splitlines() if line.startswith("sequence ")]
            self.assertEqual([len(row) for row in ids], [16] * 4, text)
            self.assertGreater(len(set(sum(ids, []))), 32)  # of 500
            self.assertIn("ids of two runs of the steps are equal: 64", text)
            self.assertIn("from their logits are equal: 64", text)
            self.assertIn("the CPU has no graphs", text)
            self.assertRegex(text, r"one prefill of the texts on cpu: error \S+ of the largest")

    def test_decoding_of_qwen3_in_other_sizes(self):
        for words in (["--batch", "1", "--steps", "1", "--prompt", "1"], ["--layers", "1", "--block", "1"],
                      ["--q-heads", "6", "--kv-heads", "3", "--head", "10", "--steps", "40"]):
            self.run_program("qwen3_decode", *words)

    def test_a_bad_command_line(self):
        for words in (["--bound"], ["--bund", "1"], ["again"]):
            self.assertIn("usage: qwen3_layer", self.run_program("qwen3_layer", *words, code=1))
        for words in (["--steps"], ["--steps", "0"], ["--steps", "8x"], ["--stepz", "8"], ["--dtype", "f8"], ["again"]):
            self.assertIn("usage: qwen3_decode", self.run_program("qwen3_decode", *words, code=1))
        for words in ([], ["--beta", "much", self.folder], [self.folder, "--beta"], [self.folder, "again"]):
            self.assertIn("usage: grpo_step FOLDER", self.run_program("grpo_step", *words, code=1))


unittest.main()
