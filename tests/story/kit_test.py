"""The kit for a tester who has a vendor's card (packaging/kit.sh): one archive and one command in an empty folder give
conformance, times and one file to send. On a simulated runtime, of one operator."""
import os
import subprocess
import tarfile
import tempfile
import unittest

ROOT = os.environ["RLK_TEST_ROOT"]
BUILD = os.environ["RLK_TEST_BUILD"]


class Kit(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        made = subprocess.run([os.path.join(ROOT, "packaging/kit.sh"), "cambricon", BUILD, cls.folder.name],
                              capture_output=True, text=True, timeout=300)
        assert made.returncode == 0, made.stderr
        with tarfile.open(made.stdout.strip()) as archive:
            archive.extractall(cls.folder.name)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def check(self, *arguments, **variables):
        """In an empty folder, with nothing of this process's environment: the folder and what the command did."""
        folder = tempfile.mkdtemp(dir=self.folder.name)
        return folder, subprocess.run([os.path.join(self.folder.name, "rlk-kit-cambricon/check.sh"), *arguments], cwd=folder,
                                      env={"PATH": "/usr/bin:/bin", "HOME": folder, **variables}, capture_output=True,
                                      text=True, timeout=300)

    def test_two_commands_give_one_file_to_send(self):
        folder, done = self.check("--op", "relu", LD_LIBRARY_PATH=os.environ["RLK_TEST_CAMBRICON"])
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        (report,) = [name for name in os.listdir(folder) if name.endswith(".tar.gz")]
        self.assertIn(report, done.stdout)
        with tarfile.open(os.path.join(folder, report)) as archive:
            texts = {os.path.basename(name): archive.extractfile(name).read().decode() for name in archive.getnames()
                     if archive.getmember(name).isfile()}
        self.assertIn("passed", texts["conformance.txt"])
        self.assertRegex(texts["bench_relu.txt"], r"(?m)^cambricon ")
        self.assertLessEqual({"doctor.txt", "machine.txt", "list.txt"}, set(texts))

    def test_without_the_vendor_s_runtime_it_says_that_nothing_was_tried(self):
        _, done = self.check("--op", "relu")
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertRegex(done.stdout, r"conformance.txt +exit 1")


if __name__ == "__main__":
    unittest.main()
