"""Several vendors' runtimes on one machine: which is taken for which, and all of them at once in one process."""
import os
import resource
import shutil
import subprocess
import unittest

import simt_vendor

FAKES, LIBRARIES = simt_vendor.FAKES, simt_vendor.LIBRARIES
ASCEND_HOME = os.environ["RLK_TEST_ASCEND_HOME"]
DEVICE_TEST = os.environ["RLK_TEST_DEVICE_TEST"]
NVIDIA = ("/proc/driver/nvidia/version", "/dev/nvidiactl", "/dev/nvidia0", "/dev/dxg", "/dev/nvhost-gpu", "/dev/nvmap")


class Cuda(simt_vendor.Vendor):
    """Whose is libcuda.so.1?"""
    NAME = "cuda"
    # What MetaX's bridge says of a C500.
    POSING = {"RLK_FAKE_CUDA_VERSION": "11060", "RLK_FAKE_CUDA_ARCH": "80"}

    def expect_foreign(self, plugin, reason, hint):
        self.assertEqual((plugin["state"], plugin["reason_code"]), ("absent", "FOREIGN_RUNTIME"), plugin["reason"])
        self.assertIn(reason, plugin["reason"])
        self.assertIn(hint, plugin["hint"])
        self.assertEqual(plugin["devices"], [])

    def test_metax_posing_as_cuda_is_told_by_the_folder_of_its_bridge(self):
        folder = os.path.join(self.folder, "opt", "maca-3.5", "tools", "cu-bridge", "lib")
        os.makedirs(folder)
        shutil.copy(os.path.join(FAKES, "fake_cuda", "libcuda.so.1"), folder)
        # Also where a link leads there, and where a variable says that the driver is remote.
        other = os.path.join(self.folder, "elsewhere", "lib")
        shutil.copytree(folder, other)
        link = os.path.join(self.folder, "lib")
        os.symlink(folder, link)
        for path in (folder, link):
            with self.subTest(path=path):
                plugin = self.listed(LD_LIBRARY_PATH=path, RLK_CUDA_REMOTE="1", **self.POSING)
                self.expect_foreign(plugin, "cu-bridge/lib/libcuda.so.1, MetaX's look-alike", "use the plugin maca")
        plugin = self.listed(LD_LIBRARY_PATH=other, MACA_PATH=os.path.dirname(other), RLK_CUDA_REMOTE="1", **self.POSING)
        self.expect_foreign(plugin, "elsewhere/lib/libcuda.so.1, MetaX's look-alike", "use the plugin maca")

    def test_metax_posing_as_cuda_is_told_by_the_name_of_its_device(self):
        plugin = self.listed("fake_cuda", RLK_CUDA_REMOTE="1", RLK_FAKE_CUDA_NAME="MetaX C500", **self.POSING)
        self.expect_foreign(plugin, "is a MetaX C500, MetaX's", "use the plugin maca")

    def test_a_device_of_another_width_is_not_nvidias(self):
        plugin = self.listed("fake_cuda", RLK_CUDA_REMOTE="1", RLK_FAKE_CUDA_NAME="X", RLK_FAKE_CUDA_WIDTH="64",
                             **self.POSING)
        self.assertEqual((plugin["state"], plugin["reason_code"]), ("absent", "SIMT_WIDTH"))
        self.assertIn("executes 64 threads together; NVIDIA's execute 32", plugin["reason"])

    def test_an_unknown_stack_is_foreign_and_needs_a_vendor_key(self):
        if any(os.path.exists(path) for path in NVIDIA):
            self.skipTest("this machine has NVIDIA's hardware")
        plugin = self.listed("fake_cuda", RLK_FAKE_CUDA_NAME="Acme X1", **self.POSING)
        self.expect_foreign(plugin, "shows 1 devices, and nothing here is NVIDIA's: no card of vendor 0x10de",
                            "needs a vendor key of its own")


class Together(simt_vendor.Vendor):
    NAME = "maca"
    RUNTIMES = {"cuda": ("libcuda.so.1",), "maca": ("libmcruntime.so", "libhcruntime.so"), "ascend": ("libascendcl.so",),
                "rocm": ("libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5", "libamdhip64.so"),
                "cambricon": ("libcnrt.so",)}

    def test_without_any_vendors_software_all_five_are_absent_with_evidence_and_at_once(self):
        if any(simt_vendor.is_installed(names) for names in self.RUNTIMES.values()):
            self.skipTest("a vendor's software is installed here")

        def processor_time(**variables):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            with self.cache_of_the_cpu_alone() as cache:
                answer = self.json("list", RLK_CACHE_DIR=cache, **variables)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            return answer, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

        alone = processor_time()[1]

        def vendors_time():
            return processor_time(RLK_PLUGIN_PATH=LIBRARIES, RLK_PLUGINS_SELECT=",".join(self.RUNTIMES))

        answer, together = vendors_time()
        plugins = {p["id"]: p for p in answer["plugins"] if p["id"] not in ("cpu", "cudnn")}  # cudnn is not selected
        self.assertEqual(set(plugins), set(self.RUNTIMES))
        for name, plugin in plugins.items():
            with self.subTest(name=name):
                self.assertEqual((plugin["state"], plugin["reason_code"]), ("absent", "RUNTIME_LIBRARY_MISSING"))
                for library in self.RUNTIMES[name]:
                    self.assertIn(library, plugin["reason"])
                self.assertTrue(plugin["hint"])
                self.assertIn(False, [e["supports"] for e in plugin["evidence"]])
        # Seconds of processor: a machine that does nothing else waits no longer. A busy one counts more for the same work.
        for _ in range(2):
            if together - alone < 1:
                break
            alone = min(alone, processor_time()[1])
            together = min(together, vendors_time()[1])
        self.assertLess(together - alone, 1)

    def environment(self, **variables):
        paths = [os.path.join(FAKES, name) for name in ("fake_hip64", "fake_maca", "fake_cuda", "fake_cambricon")]
        return dict(variables, LD_LIBRARY_PATH=":".join(paths), ASCEND_HOME_PATH=ASCEND_HOME, RLK_PLUGIN_PATH=LIBRARIES,
                    RLK_PLUGINS_SELECT="rocm,maca,ascend,cambricon,cuda", RLK_FAKE_CUDA_NAME="MetaX C500")

    def test_each_finds_its_own_and_they_serve_calls_in_one_process(self):
        # The vendors' own stories verify: `add` alone is tried here, when DEVICE_TEST asks.
        environment = self.environment(RLK_VERIFY="lazy", RLK_CACHE_DIR=self.cache)
        plugins = {p["id"]: p for p in self.json("list", **environment)["plugins"]}
        self.assertEqual(plugins["cuda"]["reason_code"], "FOREIGN_RUNTIME")
        for name, device in (("rocm", "Simulated Instinct"), ("maca", "MetaX C500 (simulated)"), ("ascend", "Ascend"),
                             ("cambricon", "MLU")):
            with self.subTest(name=name):
                self.assertEqual(plugins[name]["state"], "registered", plugins[name]["reason"])
                self.assertIn(device, plugins[name]["devices"][0]["name"])

        # Streams, copies, staging and data errors on every one of them through the public API. What was not verified is
        # staged, which a capture forbids: graphs are the vendors' own stories'.
        whole = {k: v for k, v in os.environ.items() if not k.startswith("RLK_")}
        whole.update(environment, GTEST_FILTER="-*.Graphs", RLK_TEST_OPERATORS="add")
        done = subprocess.run([DEVICE_TEST], env=whole, capture_output=True, text=True, timeout=600)
        self.assertEqual(done.returncode, 0, done.stdout[-3000:] + done.stderr[-1000:])
        self.assertNotIn("SKIPPED", done.stdout)
        self.assertNotIn("not verified", done.stdout)
        for name in ("rocm", "maca", "ascend", "cambricon"):
            self.assertIn("backend " + name, done.stdout)


if __name__ == "__main__":
    unittest.main()
