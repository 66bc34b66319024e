"""`rlk-plugins pack`: kernels of others are taken up with a lock, verified, and refused by name once they differ from it."""
import glob
import hashlib
import os
import shutil
import tarfile
import threading
import tomllib
import unittest

import command

KERNELS, RUNTIME, PLUGIN = (os.environ.get("RLK_TEST_PACK_" + name, "") for name in ("KERNELS", "RUNTIME", "PLUGIN"))

MANIFEST = """schema = 1
name = "{name}"
version = "{version}"
runtime = "{runtime}"
[[kernel]]
operator = "relu"
name = "{kernel}"
library = "{library}"
symbol = "{symbol}"
arguments = ["x", "y"]
dtypes = [{{ x = "f32", y = "f32" }}]
claims = ["accurate", "deterministic"]
"""


def sha256(path):
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


def write(path, text):
    with open(path, "w") as file:
        file.write(text)


class PackCase(command.Case):
    def setUp(self):
        super().setUp()
        self.packs = self.path("packs")

    def pack(self, name="acme-relu", version="1.0.0", kernel="acme", symbol="relu", library="lib/libkernels.so",
             runtime="libtvm_ffi.so", folder=None):
        """The folder of a pack as a vendor ships it."""
        folder = self.path(folder or f"{name}-{version}")
        os.makedirs(folder + "/lib")
        shutil.copy(KERNELS, folder + "/lib/libkernels.so")
        shutil.copy(RUNTIME, folder + "/libtvm_ffi.so")
        write(folder + "/kernels.toml", MANIFEST.format(name=name, version=version, kernel=kernel, symbol=symbol,
                                                        library=library, runtime=runtime))
        return folder

    def add(self, folder, *words, **options):
        return self.run_command("pack", "add", folder, "--to", self.packs, *words, **options)

    def listed(self, code=0):
        return {pack["name"]: pack for pack in self.json("pack", "ls", "--in", self.packs, code=code)["packs"]}

    def lock(self):
        with open(self.packs + "/packs.lock", "rb") as file:
            return tomllib.load(file)

    def refusal(self, *words, code=1):
        return self.run_command("pack", *words, code=code).stderr

    def locked_file(self, name):
        """Where a file of the only pack is now."""
        [pack] = self.lock()["pack"]
        return os.path.join(self.packs, pack["folder"], name)


class Add(PackCase):
    def test_a_pack_is_copied_and_every_file_is_a_line_of_the_lock(self):
        source = self.pack()
        document = self.json("pack", "add", source, "--to", self.packs)
        [kernel] = document["packs"][0]["kernels"]
        self.assertEqual((kernel["op"], kernel["implementation"], kernel["device"]), ("relu", "acme", "cpu"))
        [pack] = self.lock()["pack"]
        self.assertEqual((pack["name"], pack["version"], pack["source"]), ("acme-relu", "1.0.0", source))
        expected = {name: sha256(os.path.join(source, name)) for name in ("kernels.toml", "lib/libkernels.so", "libtvm_ffi.so")}
        self.assertEqual({file["path"]: file["sha256"] for file in pack["files"]}, expected)
        self.assertEqual([file["path"] for file in pack["files"]], sorted(expected))
        with open(self.packs + "/packs.lock") as file:
            lines = [line for line in file if "sha256" in line]
        self.assertEqual(len(lines), len(expected), "one file a line")
        for name, digest in expected.items():
            self.assertEqual(sha256(self.locked_file(name)), digest)
        # Nothing of the work is left behind.
        self.assertEqual(glob.glob(self.packs + "/.adding*"), [])
        self.assertEqual(sorted(os.listdir(self.packs)), sorted([".changing", "packs.lock", pack["folder"]]))

    def test_packs_are_sorted_by_name_whatever_came_first(self):
        for name in ("zeta", "acme", "mid"):
            self.add(self.pack(name=name, kernel=name))
        self.assertEqual([pack["name"] for pack in self.lock()["pack"]], ["acme", "mid", "zeta"])

    def test_an_archive_is_a_pack_with_its_folder_or_without(self):
        source = self.pack()
        for name, inside in (("with.tar.gz", "acme-relu-1.0.0"), ("without.tar", ".")):
            with tarfile.open(self.path(name), "w:gz" if name.endswith("gz") else "w") as archive:
                archive.add(source, inside)
            self.add(self.path(name), "--replace")
            self.assertEqual(self.listed()["acme-relu"]["source"], self.path(name))
        write(self.path("none.tar"), "no archive")
        self.assertIn("tar cannot unpack it", self.refusal("add", self.path("none.tar"), "--to", self.packs))

    def test_a_name_that_is_there_needs_replace_and_the_old_files_go(self):
        self.add(self.pack())
        old = self.locked_file("kernels.toml")
        newer = self.pack(version="1.1.0")
        before = self.lock()
        said = self.refusal("add", newer, "--to", self.packs)
        self.assertIn("acme-relu 1.0.0 is there already", said)
        self.assertIn("--replace", said)
        self.assertEqual(self.lock(), before)
        self.assertEqual(self.json("pack", "add", newer, "--to", self.packs, "--replace")["replaced"], "1.0.0")
        self.assertEqual(self.listed()["acme-relu"]["version"], "1.1.0")
        self.assertFalse(os.path.exists(old))

    def test_what_leads_out_of_the_folder_is_refused_and_leaves_nothing(self):
        outside = shutil.copy(KERNELS, self.path("outside.so"))
        linked = self.pack(name="linked")
        os.remove(linked + "/lib/libkernels.so")
        os.symlink(outside, linked + "/lib/libkernels.so")
        for source, text in ((self.pack(name="up", library="../outside.so"), "is outside of the pack"),
                             (self.pack(name="whole", library=outside), "is outside of the pack"),
                             (self.pack(name="brings", runtime="../outside.so"), "is outside of the pack"),
                             (linked, "is a link, which may lead out of the pack")):
            with self.subTest(source):
                # What an escaping path leads to from the copy is another file, or none.
                shutil.copy(KERNELS, self.path("packs-outside.so"))
                said = self.refusal("add", source, "--to", self.packs)
                self.assertRegex(said, text + "|does not exist|No such file")
                self.assertNotIn(".adding", said)
                self.assertEqual(self.listed(), {})

    def test_what_is_no_pack_is_refused_with_the_place_in_the_users_own_folder(self):
        for name, change, text in (
                ("noname", lambda text: text.replace('name = "noname"\n', ""), "a pack needs a name and a version"),
                ("badname", lambda text: text.replace('"badname"', '"../badname"'), "a pack needs a name and a version"),
                ("operator", lambda text: text.replace('"relu"', '"rleu"', 1), 'rlk has no operator "rleu"'),
                ("gone", lambda text: text.replace("lib/libkernels.so", "lib/gone.so"), "lib/gone.so"),
                ("notoml", lambda text: "[[[", "notoml-1.0.0/kernels.toml")):
            with self.subTest(name):
                source = self.pack(name=name)
                with open(source + "/kernels.toml") as file:
                    text_of_manifest = file.read()
                write(source + "/kernels.toml", change(text_of_manifest))
                said = self.refusal("add", source, "--to", self.packs)
                self.assertIn(text, said)
                self.assertIn(source, said)
        os.mkdir(self.path("empty"))
        self.assertIn("no kernels.toml", self.refusal("add", self.path("empty"), "--to", self.packs))
        self.assertEqual(self.listed(), {})

    def test_two_packs_with_one_kernel_are_refused_by_the_kernels_name(self):
        self.add(self.pack())
        said = self.refusal("add", self.pack(name="other"), "--to", self.packs)
        self.assertIn("the kernel acme of relu on cpu is in the pack acme-relu too", said)

    def test_commands_at_once_lose_no_pack(self):
        names = [f"pack{i}" for i in range(6)]
        sources = [self.pack(name=name, kernel=name) for name in names]
        threads = [threading.Thread(target=self.add, args=(source,)) for source in sources]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(sorted(self.listed()), names)

    def test_command_lines_that_are_wrong(self):
        for words, text in ((("pack", "sell"), "expected add, ls or rm"), (("pack", "add"), "needs the FILE"),
                            (("pack", "ls", "x"), "takes no NAME"), (("pack", "rm"), "needs the NAME"),
                            (("pack", "rm", "x", "--replace"), "--replace goes with pack add"),
                            (("pack", "add", self.path("none"), "--to", self.packs), "expected a folder with kernels.toml"),
                            (("pack", "rm", "none", "--in", self.packs), "there is no folder")):
            self.assertIn(text, self.usage_error(*words))


class Lists(PackCase):
    def test_what_differs_is_told_with_both_hashes_and_fails_the_command(self):
        self.add(self.pack())
        self.assertEqual(self.listed()["acme-relu"]["state"], "ok")
        library = self.locked_file("lib/libkernels.so")
        expected = sha256(library)
        with open(library, "ab") as file:
            file.write(b"more")
        pack = self.listed(code=1)["acme-relu"]
        self.assertEqual(pack["state"], "changed")
        [problem] = pack["problems"]
        for part in ("lib/libkernels.so", sha256(library), expected):
            self.assertIn(part, problem)
        text = " ".join(self.output("pack", "ls", "--in", self.packs, code=1).split())
        self.assertIn("rlk-plugins pack add --replace", text)
        # The same pack again mends it.
        self.add(self.path("acme-relu-1.0.0"), "--replace")
        self.assertEqual(self.listed()["acme-relu"]["state"], "ok")

    def test_files_that_came_or_went_folders_that_are_gone_and_those_in_no_line(self):
        self.add(self.pack())
        write(self.locked_file("lib/libmore.so"), "")
        self.assertIn("lib/libmore.so is there, and packs.lock does not name it", self.listed(code=1)["acme-relu"]["problems"])
        os.remove(self.locked_file("lib/libmore.so"))
        os.remove(self.locked_file("libtvm_ffi.so"))
        [problem] = self.listed(code=1)["acme-relu"]["problems"]
        self.assertIn("libtvm_ffi.so is missing", problem)
        shutil.rmtree(os.path.dirname(self.locked_file("kernels.toml")))
        self.assertEqual(self.listed(code=1)["acme-relu"]["state"], "missing")
        shutil.copytree(self.path("acme-relu-1.0.0"), self.packs + "/by-hand")
        self.assertEqual(self.listed(code=1)["by-hand"]["state"], "unlocked")
        self.assertIn("not in it", self.output("pack", "ls", "--in", self.packs, code=1))

    def test_a_pack_is_removed_with_its_lines(self):
        self.add(self.pack())
        self.add(self.pack(name="other", kernel="other"))
        folder = os.path.join(self.packs, self.listed()["acme-relu"]["folder"])
        self.assertIn("did you mean 'acme-relu'", self.refusal("rm", "acme-rleu", "--in", self.packs, code=2))
        self.assertEqual(self.json("pack", "rm", "acme-relu", "--in", self.packs)["removed"], "acme-relu")
        self.assertEqual(list(self.listed()), ["other"])
        self.assertFalse(os.path.exists(folder))
        self.output("pack", "rm", "other", "--in", self.packs)
        self.assertIn("no packs in", self.output("pack", "ls", "--in", self.packs))

    def test_a_lock_that_another_hand_wrote_is_refused_by_its_line(self):
        self.add(self.pack())
        with open(self.packs + "/packs.lock") as file:
            good = file.read()
        for before, after in (("kernels.toml", "../kernels.toml"), ("folder = \"", "folder = \"../"), ("schema = 1", "schema = 2"),
                              ("sha256 = \"", "sha256 = \"x"), ("]\n", "]\nmore = 1\n"), ("]\n", "")):
            write(self.packs + "/packs.lock", good.replace(before, after))
            said = self.refusal("ls", "--in", self.packs)
            self.assertIn("packs.lock", said)
            self.assertIn("as rlk-plugins pack", said)


@unittest.skipUnless(os.path.exists(PLUGIN), "the plugin for kernels with tvm-ffi's ABI is not built")
class Use(PackCase):
    """The loader's side: which packs a process uses."""

    def scope(self, code=0, folder=None):
        document = self.json("scope", "tvmffi_cpu", code=code, RLK_PLUGIN_PATH=PLUGIN, RLK_TVMFFI_MANIFEST=self.packs if folder is None else folder)
        return {(unit["implementation"], unit["dtype"]): unit for unit in document["units"] if unit["feature"] == ""}

    def plugin(self, code=0, folder=None, path=PLUGIN, **variables):
        document = self.json("list", code=code, RLK_PLUGIN_PATH=path,
                             RLK_TVMFFI_MANIFEST=self.packs if folder is None else folder, **variables)
        [plugin] = [plugin for plugin in document["plugins"] if plugin["id"] == "tvmffi_cpu"]
        return plugin

    def test_a_good_pack_is_verified_and_its_changed_neighbour_refused_by_name(self):
        self.add(self.pack())
        self.add(self.pack(name="wrong-relu", kernel="wrong", symbol="identity"))
        units = self.scope(code=1)
        self.assertEqual(units["acme", "f32"]["verdict"], "verified")
        self.assertEqual(units["wrong", "f32"]["verdict"], "failed")
        verdicts = {name: pack["kernels"][0]["verdict"] for name, pack in self.listed().items()}
        self.assertEqual(verdicts, {"acme-relu": "verified", "wrong-relu": "failed"})

        # The library of one changes: its kernels are declined with both hashes, the other's are used.
        changed = os.path.join(self.packs, self.listed()["wrong-relu"]["folder"], "lib/libkernels.so")
        expected = sha256(changed)
        with open(changed, "ab") as file:
            file.write(b"more")
        units = self.scope()
        self.assertEqual(units["acme", "f32"]["verdict"], "verified")
        wrong = units["wrong", "f32"]
        self.assertEqual((wrong["verdict"], wrong["reason_code"]), ("declined", "PACK_REFUSED"))
        [evidence] = [item for item in self.plugin()["evidence"] if item["kind"] == "pack"]
        self.assertFalse(evidence["supports"])
        for part in ("pack wrong-relu 1.0.0 is refused", sha256(changed), expected, "pack add --replace", "pack rm wrong-relu"):
            self.assertIn(part, evidence["value"])

        checks = self.json("doctor", code=1, RLK_PLUGIN_PATH=PLUGIN, RLK_TVMFFI_MANIFEST=self.packs)["checks"]
        [problem] = [check for check in checks if check["status"] == "problem"]
        self.assertIn("pack wrong-relu 1.0.0 is refused", problem["text"])

        # Its manifest changes: nothing that it says is believed.
        with open(os.path.join(os.path.dirname(changed), "../kernels.toml"), "a") as file:
            file.write("# more\n")
        self.assertEqual({name for name, _ in self.scope()}, {"acme"})
        self.output("pack", "rm", "wrong-relu", "--in", self.packs)
        self.assertEqual([item for item in self.plugin()["evidence"] if item["kind"] == "pack"], [])

    def test_without_a_pack_that_is_as_the_lock_says_the_plugin_is_rejected_with_the_reason(self):
        self.add(self.pack())
        self.assertEqual(self.plugin()["state"], "registered")
        library = self.locked_file("lib/libkernels.so")
        os.utime(library)  # times alone are no change
        self.assertEqual(self.plugin()["state"], "registered")
        os.remove(library)
        plugin = self.plugin(code=1)
        self.assertEqual((plugin["state"], plugin["reason_code"]), ("rejected", "PACK_REFUSED"))
        self.assertIn("pack acme-relu 1.0.0 is refused: lib/libkernels.so is missing", plugin["reason"])
        self.add(self.path("acme-relu-1.0.0"), "--replace")
        self.assertEqual(self.plugin()["state"], "registered")

    def test_a_manifest_inside_a_folder_of_packs_is_the_locks_business_too(self):
        self.add(self.pack())
        manifest = self.locked_file("kernels.toml")
        self.assertEqual(self.plugin(folder=manifest)["state"], "registered")
        with open(manifest, "a") as file:
            file.write("# more\n")
        plugin = self.plugin(code=1, folder=manifest)
        self.assertEqual(plugin["state"], "rejected")
        self.assertIn("kernels.toml has the SHA-256", plugin["reason"])

    def test_a_folder_without_a_lock_and_one_that_others_can_write_are_refused(self):
        shutil.copytree(self.pack(), self.packs + "/by-hand")
        self.assertIn("has no packs.lock", self.plugin(code=1)["reason"])
        self.add(self.path("acme-relu-1.0.0"))
        self.assertEqual(self.plugin()["state"], "registered")
        self.assertIn("by-hand is refused", str(self.plugin()["evidence"]))
        os.chmod(self.packs, 0o777)
        # The cache remembers no modes: list says it once it tries the plugin anew.
        self.assertIn("other users could replace", self.plugin(code=1, RLK_CACHE_DIR=self.path("new cache"))["reason"])

    def test_packs_beside_the_plugin_need_no_variable(self):
        plugin = shutil.copy(PLUGIN, self.plugins)
        absent = self.plugin(folder="", path=plugin)
        self.assertEqual((absent["state"], absent["reason_code"]), ("absent", "NO_MANIFEST"))
        self.packs = self.plugins + "/packs"
        self.add(self.pack())
        self.assertEqual(self.plugin(folder="", path=plugin)["state"], "registered")
        self.output("pack", "rm", "acme-relu", "--in", self.packs)
        self.assertEqual(self.plugin(folder="", path=plugin)["reason_code"], "NO_KERNELS")

    def test_the_runtime_of_this_machine_is_named_when_the_pack_is_added(self):
        source = self.pack()
        os.remove(source + "/libtvm_ffi.so")
        with open(source + "/kernels.toml") as file:
            text = file.read()
        write(source + "/kernels.toml", text.replace('runtime = "libtvm_ffi.so"\n', ""))
        self.add(source)
        self.assertIn("libtvm_ffi", self.plugin(code=1)["reason"])
        runtime = shutil.copy(RUNTIME, self.path("libtvm_ffi.so"))
        self.add(source, "--replace", "--runtime", runtime)
        self.assertEqual(self.lock()["pack"][0]["runtime"], runtime)
        self.assertEqual(self.plugin()["state"], "registered")

    def test_a_call_goes_to_the_packs_kernel(self):
        self.add(self.pack())
        command.write_npy(self.path("x.npy"), "<f4", (4,), [-1, 0, 2, -3])
        self.output("run", "relu", "--input", f"x={self.path('x.npy')}", "--output", f"y={self.path('y.npy')}",
                    RLK_PLUGIN_PATH=PLUGIN, RLK_TVMFFI_MANIFEST=self.packs, RLK_OP_RELU="cpu:acme")
        self.assertEqual(command.read_npy(self.path("y.npy"))[2], [0, 0, 2, 0])


if __name__ == "__main__":
    command.main()
