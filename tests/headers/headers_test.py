"""Every prototype and number that the rocm and Ascend plugins, and what speaks tvm-ffi, re-declare is that of the headers.
The headers are never part of rlk: packages that carry them are fetched into the build, once. RLK_TEST_HIP_HEADERS,
RLK_TEST_ACL_HEADERS and RLK_TEST_TVM_FFI_HEADERS name folders to take instead; without network the test is skipped. No
package carries CANN's headers of operators, or Cambricon's: RLK_TEST_CANN_HEADERS names a folder with acl/, aclnn/ and
aclnnop/ of CANN 8.1, RLK_TEST_NEUWARE_HEADERS an installation's, and what was read in public copies of the latter is
recorded in neuware.txt. MACA's headers are not public."""
import glob
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
import zipfile

COMPILER, ROOT, STORE = os.environ["RLK_TEST_COMPILER"], os.environ["RLK_TEST_ROOT"], os.environ["RLK_TEST_STORE"]
GENERATED = os.environ["RLK_TEST_GENERATED"]


def run(*command, cwd=None, timeout=240):
    try:
        return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=timeout).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def from_wheel(package, part):
    """The files of a PyPI package below `part`; None when it cannot be fetched."""
    target = os.path.join(STORE, package.replace("=", ""))
    if not os.path.isdir(target):
        with tempfile.TemporaryDirectory() as folder:
            if not run(sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", folder, package):
                return None
            with zipfile.ZipFile(glob.glob(os.path.join(folder, "*.whl"))[0]) as wheel:
                wheel.extractall(target, [name for name in wheel.namelist() if name.startswith(part)])
    return os.path.join(target, part)


def from_debian(package):
    target = os.path.join(STORE, package)
    os.makedirs(STORE, exist_ok=True)
    if not os.path.isdir(target):
        with tempfile.TemporaryDirectory() as folder:
            if not run("apt-get", "download", package, cwd=folder) or not glob.glob(os.path.join(folder, "*.deb")):
                return None
            if not run("dpkg-deb", "-x", glob.glob(os.path.join(folder, "*.deb"))[0], target):
                return None
    return os.path.join(target, "usr", "include")


class Headers(unittest.TestCase):
    def compile(self, source, headers, *options):
        return subprocess.run([COMPILER, "-std=c++20", "-fsyntax-only", "-I", ROOT, "-I", ROOT + "/plugin_api/include",
                               "-I", GENERATED + "/plugin_api/include",
                               "-I", ROOT + "/tests/headers", "-isystem", headers, *options, source],
                              capture_output=True, text=True)

    def check(self, name, headers, seeded, *options):
        if headers is None:
            self.skipTest("no headers: the package cannot be fetched")
        source = pathlib.Path(ROOT, "tests", "headers", name)
        done = self.compile(str(source), headers, *options)
        self.assertEqual(done.returncode, 0, done.stderr[-3000:])
        # It can fail: with one declaration changed it does.
        before, after = seeded
        text = source.read_text()
        with tempfile.TemporaryDirectory() as folder:
            changed = pathlib.Path(folder, name)
            changed.write_text(text + "\nstatic_assert(rlk::headers::is_same_call<%s, decltype(&%s)>);\n" % (after, before))
            done = self.compile(str(changed), headers, *options)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("static assertion failed", done.stderr)

    def test_hip_7_1(self):
        given = os.environ.get("RLK_TEST_HIP_HEADERS")
        self.check("hip.cpp", given or from_wheel("triton==3.9.0", "triton/backends/amd/include"),
                   ("hipStreamQuery", "int (*)(void*, int)"))

    def test_hip_of_debian(self):
        self.check("hip.cpp", from_debian("libamdhip64-dev"), ("hipStreamQuery", "int (*)(void**)"))

    def test_acl_1_17(self):
        given = os.environ.get("RLK_TEST_ACL_HEADERS")
        self.check("acl.cpp", given or from_wheel("torch_npu==2.14.0", "torch_npu/include"),
                   ("aclrtSetDevice", "int (*)(int64_t)"))

    def test_tvm_ffi_0_1(self):
        """Layouts and numbers too: librlk_tvmffi and the plugins of plugins/tvmffi read its values in place."""
        given = os.environ.get("RLK_TEST_TVM_FFI_HEADERS")
        self.check("tvm_ffi.cpp", given or from_wheel("apache-tvm-ffi==0.1.15.post2", "tvm_ffi/include"),
                   ("TVMFFIObjectDecRef", "int (*)(void*, int)"))

    def test_neuware(self):
        given = os.environ.get("RLK_TEST_NEUWARE_HEADERS")
        if not given:
            self.skipTest("no headers: no package that can be fetched carries Cambricon's")
        self.check("neuware.cpp", given, ("cnrtQueueQuery", "int (*)(void*, int)"))

    def recorded(self):
        text = pathlib.Path(ROOT, "tests", "headers", "neuware.txt").read_text()
        lines = [line.split("|") for line in text.splitlines() if line and not line.startswith("#")]
        return [[word.strip() for word in line] for line in lines]

    def check_recorded(self, rows):
        """What the compiler says of the plugin's declarations beside these."""
        with tempfile.TemporaryDirectory() as folder:
            source = pathlib.Path(folder, "recorded.cpp")
            source.write_text('#include "plugins/cambricon/runtime.hpp"\n#include "same.hpp"\n' + "".join(
                "static_assert(rlk::headers::is_same_arguments<decltype(rlk::cambricon::Runtime::%s), void(%s)>, \"%s\");\n"
                % (name, arguments, name) for name, arguments, _ in rows))
            return self.compile(str(source), folder).stderr

    def test_neuware_as_recorded(self):
        rows = self.recorded()
        header = pathlib.Path(ROOT, "plugins", "cambricon", "runtime.hpp").read_text()
        declared = set(re.findall(r"X\((c\w+),", header)) | {"cnrtMemcpyAsync", "cnrtGetLibVersion"}
        self.assertEqual({name for name, _, _ in rows}, declared)
        self.assertEqual({where for _, _, where in rows} - {"both", "6.0.2", "6.14.1", "core", "guide", "mlu-ops", "calls", "memory"}, set())
        self.assertEqual(self.check_recorded(rows), "")
        # It can fail: with an argument more, of another width, or in another place.
        for name, arguments in (("cnrtQueueQuery", "void*, int"), ("cnrtMalloc", "void**, unsigned"),
                                ("cnrtMemcpyAsync", "void*, void*, size_t, int, void*")):
            self.assertIn(name, self.check_recorded([[name, arguments, ""]]))

    def test_nnopbase_as_pytorchs_extension_declares_it(self):
        found = from_wheel("torch_npu==2.14.0", "torch_npu/include")
        if found is None:
            self.skipTest("no headers: the package cannot be fetched")
        [header] = pathlib.Path(found).rglob("op_api_common_base.h")
        declarations = re.findall(r"^(?:typedef struct acl\w+ \w+;|typedef [^;{]*\(\*_acl\w+\)\([^;]*\);|"
                                  r"using OpApiFunc = [^;]*;)", header.read_text(), re.M)
        self.assertGreaterEqual(len(declarations), 20)
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "typedefs.h").write_text("\n".join(declarations) + "\n")
            self.check("nnopbase.cpp", found, ("*static_cast<_aclCreateScalar>(nullptr)", "void* (*)(void*)"),
                       "-I", folder)

    def test_operators_of_cann(self):
        headers = os.environ.get("RLK_TEST_CANN_HEADERS")
        if headers is None:
            self.skipTest("RLK_TEST_CANN_HEADERS is not set: no package carries these headers")
        text = pathlib.Path(ROOT, "plugins", "ascend", "runtime.hpp").read_text()
        table = text[text.index("#define RLK_ASCEND_OPERATORS"):text.index("using Phase2")]
        names = re.findall(r"X\((\w+), ", table)
        self.assertGreaterEqual(len(names), 25)
        includes = []
        for header in sorted(pathlib.Path(headers, "aclnnop").glob("*.h")):
            declares = header.read_text(errors="replace")
            if any("aclnn%sGetWorkspaceSize(" % name in declares for name in names):
                includes.append("#include <aclnnop/%s>\n" % header.name)
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "operators.h").write_text("".join(includes))
            self.check("aclnn.cpp", headers, ("aclnnExp", "int (*)(void*, int, void*, void*)"), "-I", folder)


if __name__ == "__main__":
    unittest.main()
