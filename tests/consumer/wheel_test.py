"""The wheel: packed from what this build built, and then all that its users have.

    wheel_test.py SOURCE BUILD FOLDER CC CXX    works in FOLDER; ends with 77 where pip cannot fetch the tools
"""
import glob
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import unittest
import zipfile

SOURCE, BUILD, FOLDER = (pathlib.Path(argument) for argument in sys.argv[1:4])
CC, CXX = sys.argv[4:6]
PLATFORM = "manylinux_2_28_x86_64"
USER = FOLDER / "user"  # a virtual environment


def run(*words, code=0, path=(), **options):
    """Its output; PATH is the virtual environment, and what `path` adds."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("RLK_", "PYTHON"))}
    environment |= {"PATH": os.pathsep.join([str(USER / "bin"), *map(str, path)]), "RLK_CACHE_DIR": str(FOLDER / "cache")}
    done = subprocess.run([str(word) for word in words], env=environment, capture_output=True, text=True, cwd=FOLDER,
                          timeout=600, check=False, **options)
    if done.returncode != code:
        raise AssertionError(f"{words} ended with {done.returncode}, not {code}:\n{done.stdout}{done.stderr}")
    return done.stdout


def python(program):
    return run(USER / "bin" / "python", "-c", program).strip()


def tools():
    """The folders of CMake, Ninja, pkg-config and the linker, to build against the wheel."""
    return {os.path.dirname(shutil.which(name)) for name in ("cmake", "ninja", "pkg-config", "ld")}


def setUpModule():
    for old in (USER, FOLDER / "cache"):
        shutil.rmtree(old, ignore_errors=True)
    packed = subprocess.run([SOURCE / "packaging" / "wheel.sh", "--build", BUILD], text=True, check=False,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                            env={**os.environ, "RLK_WHEEL_FOLDER": str(FOLDER)})
    print(packed.stdout, end="", flush=True)
    if packed.returncode == 77:
        sys.exit(77)
    assert packed.returncode == 0
    subprocess.run([sys.executable, "-m", "venv", USER], check=True)
    if subprocess.run([USER / "bin" / "pip", "install", "-q", "--disable-pip-version-check", "numpy", "--no-deps", wheel()],
                      check=False).returncode != 0:
        print("wheel: pip cannot fetch numpy")
        sys.exit(77)


def wheel():
    [path] = FOLDER.glob("rlk-*.whl")
    return path


class Wheel(unittest.TestCase):
    def test_it_is_for_every_python_3_and_for_glibc_2_28(self):
        self.assertRegex(wheel().name, rf"^rlk-[0-9.]+-py3-none-{PLATFORM}\.whl$")
        shown = subprocess.run([FOLDER / "tools/bin/auditwheel", "show", wheel()], check=True, capture_output=True,
                               text=True).stdout
        [oldest] = re.findall(r'platform tag:\s+"manylinux_2_(\d+)_x86_64"', shown)
        self.assertLessEqual(int(oldest), 28, shown)
        self.assertIn("libtbb", " ".join(zipfile.ZipFile(wheel()).namelist()))
        self.assertIn("rlk/prefix/share/doc/rlk/docs/python.md", zipfile.ZipFile(wheel()).namelist())

    def test_auditwheel_refuses_a_file_that_needs_this_machine(self):
        """What the test above relies on: the same audit of the same wheel for an older platform."""
        refused = subprocess.run([FOLDER / "tools/bin/auditwheel", "repair", "--plat", "manylinux_2_17_x86_64", "-w",
                                  FOLDER / "refused", wheel()], check=False, capture_output=True, text=True)
        self.assertNotEqual(refused.returncode, 0)
        self.assertIn("too-recent versioned symbols", refused.stdout + refused.stderr)

    def test_nothing_in_it_names_the_machine_that_built_it(self):
        with zipfile.ZipFile(wheel()) as packed:
            for name in packed.namelist():
                content = packed.read(name)
                if content[:4] == b"\x7fELF":
                    self.assertNotIn(os.fsencode(BUILD), content, name)
                    self.assertNotIn(os.fsencode(FOLDER), content, name)

    def test_the_pages_python_works_as_printed_without_a_compiler_and_without_torch(self):
        for tool in ("cc", "gcc", "c++", "clang", "ld"):
            self.assertIsNone(shutil.which(tool, path=str(USER / "bin")))
        python("import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is not None)")
        for page in ("README.md", "docs/python.md", "packaging/python/README.md"):
            programs = re.findall(r"^```python\n(.*?)^```", (SOURCE / page).read_text(), re.MULTILINE | re.DOTALL)
            self.assertNotEqual(programs, [], page)
            for program in programs:
                # Needs another package: tests/python/tvm_ffi_test.py and the trainers' tests.
                if "import rlk.tvm_ffi" in program or "import rlk.integrations" in program:
                    continue
                self.assertIn("cpu", python(program))

    def test_all_that_it_loads_is_its_own_or_the_base_of_linux(self):
        loaded = json.loads(python("""
import json, numpy, rlk
rlk.ops.silu(numpy.zeros(8, numpy.float32))
print(json.dumps(sorted({line.split()[-1] for line in open('/proc/self/maps') if '.so' in line})))"""))
        of_rlk = [path for path in loaded if "/rlk" in path]
        self.assertEqual({re.sub(r"[-.].*", "", os.path.basename(path)) for path in of_rlk} - {"libtbbmalloc"},
                         {"librlk", "libtbb"})
        strangers = [path for path in loaded if ("tbb" in path or "rlk" in path) and not path.startswith(str(USER))]
        self.assertEqual(strangers, [])

    def test_the_command_lists_the_cpu_and_what_is_absent(self):
        plugins = {plugin["id"]: plugin for plugin in json.loads(run("rlk-plugins", "list", "--json"))["plugins"]}
        self.assertEqual(plugins["cpu"]["state"], "registered")
        for vendor in ("cuda", "cudnn", "rocm", "maca", "ascend", "cambricon"):
            self.assertFalse(plugins[vendor]["broken"], plugins[vendor])
            self.assertTrue(plugins[vendor]["path"].startswith(str(USER)), plugins[vendor]["path"])

    def test_a_c_program_is_built_against_the_wheel_alone(self):
        program, source = FOLDER / "program", SOURCE / "tests/consumer/program/program.c"
        libraries = pathlib.Path(python("import rlk; print(rlk.cmake_dir())")).parent.parent
        flags = {"-std=c11", "-Wall", "-Werror", f"-I{python('import rlk; print(rlk.include())')}"}
        run(CC, *flags, source, "-o", program, f"-L{libraries}", "-lrlk", "-lm", f"-Wl,-rpath,{libraries}",
            path=tools())
        run(program)
        if shutil.which("pkg-config") is None:
            self.skipTest("there is no pkg-config")
        program.unlink()
        words = run("env", f"PKG_CONFIG_PATH={libraries}/pkgconfig", "pkg-config", "--cflags", "--libs", "rlk",
                    path=tools()).split()
        run(CC, "-std=c11", source, "-o", program, *words, "-lm", f"-Wl,-rpath,{libraries}", path=tools())
        run(program)

    def test_a_vendors_wheel_is_built_installed_and_found_without_being_run(self):
        shutil.rmtree(FOLDER / "acme", ignore_errors=True)
        run("rlk-plugins", "new", "acme", "--wheel")
        # The tools that pack wheels, as in the vendor's environment; rlk's CMake package comes from the wheel.
        packers = glob.glob(str(FOLDER / "tools/lib/python3*/site-packages"))
        run("env", f"PYTHONPATH={packers[0]}", f"CXX={CXX}", "pip", "wheel", "-q", "--disable-pip-version-check",
            "--no-deps", "--no-build-isolation", "-w", "acme/dist", "acme/", path=tools())
        [made] = (FOLDER / "acme/dist").glob("rlk_plugin_acme-0.1.0-py3-none-*.whl")
        self.assertEqual(run("rlk-plugins", "list").count("acme"), 0)
        run("pip", "install", "-q", "--disable-pip-version-check", "--no-deps", made)
        self.addCleanup(run, "pip", "uninstall", "-q", "-y", "rlk-plugin-acme")
        # A process that runs its Python would notice.
        [package] = USER.glob("lib/python3*/site-packages/rlk_plugin_acme")
        (package / "__init__.py").write_text("raise SystemExit('vendor code ran')\n")
        document = python("import json, rlk; print(json.dumps(rlk.list()))")
        for plugins in (json.loads(document)["plugins"], json.loads(run("rlk-plugins", "list", "--json"))["plugins"]):
            [acme] = [plugin for plugin in plugins if plugin["id"] == "acme"]
            self.assertEqual((acme["state"], acme["path"]), ("registered", str(package / "librlk_plugin_acme.so")))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
