"""Running rlk-plugins in a world of its own: empty cache, empty plugin folder, none of the caller's RLK_ variables."""
import array
import contextlib
import functools
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

COMMAND = os.environ.get("RLK_TEST_COMMAND")
PLUGINS = os.environ.get("RLK_TEST_PLUGINS", "")
SIZES = {"<f4": "f", "<f8": "d", "<i4": "i", "<i8": "q", "<u2": "H", "<V2": "H", "|u1": "B"}


def write_npy(path, descr, shape, values):
    """`values` are flat and row-major; NumPy is not needed."""
    shape_text = "(" + "".join(f"{size}, " for size in shape).rstrip() + ")"
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape_text}, }}"
    header += " " * ((-(10 + len(header) + 1)) % 64) + "\n"
    with open(path, "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode())
        file.write(array.array(SIZES[descr], values).tobytes())


def read_npy(path):
    """(descr, shape, flat values)"""
    with open(path, "rb") as file:
        data = file.read()
    assert data[:8] == b"\x93NUMPY\x01\x00", data[:8]
    size = struct.unpack("<H", data[8:10])[0]
    header = eval(data[10:10 + size], {"__builtins__": {}})  # our own file
    assert not header["fortran_order"]
    values = array.array(SIZES[header["descr"]])
    values.frombytes(data[10 + size:])
    return header["descr"], header["shape"], list(values)


def to_bf16(value):
    bits = struct.unpack("<I", struct.pack("<f", value))[0]
    return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16


def from_bf16(word):
    return struct.unpack("<f", struct.pack("<I", word << 16))[0]


# Each case has new tensors: memory that goes back to the system each time costs a tenth of the time.
KEEP_MEMORY = "glibc.malloc.mmap_threshold=1073741824:glibc.malloc.trim_threshold=4294967296"
# Whether what takes minutes, and is tried in part otherwise, is tried whole.
LONG = os.environ.get("RLK_TEST_LONG") == "1"
# Of the suite's cases on simulated devices an ordinary run tries one of so many, and the first of each kind.
SAMPLE = () if LONG else ("--one-of", "4")


@functools.cache
def judged_cpu():
    """A folder with the verdict on the built-in plugin and no other, which costs seconds: the first test that needs it
    leaves it in the build, for all tests of this build."""
    build = os.path.join(os.path.dirname(os.path.dirname(COMMAND)), "tests")
    programs = [os.path.join(os.path.dirname(COMMAND), name) for name in ("rlk-plugins", "rlk-prober")]
    built = "-".join(str(os.stat(program).st_mtime_ns) for program in programs)
    folder = os.path.join(build, "judged_cpu", built)
    if not os.path.isdir(folder):
        shutil.rmtree(os.path.dirname(folder), ignore_errors=True)  # of an older build
        os.makedirs(os.path.dirname(folder), exist_ok=True)
        ours = tempfile.mkdtemp(dir=build)
        environment = {k: v for k, v in os.environ.items() if not k.startswith("RLK_")}
        environment.update(RLK_CACHE_DIR=ours, RLK_PLUGIN_PATH="", RLK_PROBE_TIMEOUT="600", RLK_VERIFY="eager")
        subprocess.run([COMMAND, "list"], env=environment, check=True, stdout=subprocess.DEVNULL)
        try:
            os.rename(ours, folder)
        except OSError:  # another test was faster
            shutil.rmtree(ours)
    return folder


class Case(unittest.TestCase):
    KNOWS_THE_CPU = True  # the cache: one per class

    @classmethod
    def setUpClass(cls):
        cls.cache = tempfile.mkdtemp(prefix="rlk-cli-cache-")
        # One place for all tests of the class: a verdict is of a file's place and time too, and costs seconds.
        cls.place = tempfile.mkdtemp(prefix="rlk-cli-plugins-")
        if cls.KNOWS_THE_CPU:
            shutil.copytree(judged_cpu(), cls.cache, dirs_exist_ok=True)

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.cache, ignore_errors=True)
        shutil.rmtree(cls.place, ignore_errors=True)

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="rlk-cli-")
        self.plugins = os.path.join(self.place, "plugins")
        shutil.rmtree(self.plugins, ignore_errors=True)  # of the test before
        os.mkdir(self.plugins)

    def tearDown(self):
        shutil.rmtree(self.folder, ignore_errors=True)

    def path(self, name):
        return os.path.join(self.folder, name)

    def run_command(self, *words, code=0, program=None, **variables):
        """The finished process; its exit code must be `code`."""
        environment = {k: v for k, v in os.environ.items() if not k.startswith("RLK_")}
        # Ten times the usual patience: a busy machine or a sanitizer must not look like a fault. Twice where few operators
        # are tried at a start, because a start may try for longer in proportion.
        patience = "120" if variables.get("RLK_VERIFY") == "lazy" else "600"
        # Verdicts on all operators, whatever the machine does meanwhile.
        environment.update(RLK_CACHE_DIR=self.cache, RLK_PLUGIN_PATH=self.plugins, RLK_PROBE_TIMEOUT=patience,
                           RLK_VERIFY="eager", GLIBC_TUNABLES=KEEP_MEMORY)
        environment.update({k: v for k, v in variables.items() if v is not None})
        done = subprocess.run([program or COMMAND, *words], env=environment, capture_output=True, timeout=1200,
                              cwd=self.folder, stdin=subprocess.DEVNULL)
        # What the command prints is text; what plugins print may be anything, and goes to standard error.
        done.stdout, done.stderr = done.stdout.decode(), done.stderr.decode(errors="replace")
        self.assertEqual(done.returncode, code,
                         f"{words}\n--- stdout\n{done.stdout[:2000]}\n--- stderr\n{done.stderr[:2000]}")
        return done

    @contextlib.contextmanager
    def cache_of_the_cpu_alone(self):
        """A cache of its own in which no plugin was judged but the built-in one."""
        with tempfile.TemporaryDirectory() as cache:
            shutil.copytree(judged_cpu(), cache, dirs_exist_ok=True)
            yield cache

    def output(self, *words, **options):
        return self.run_command(*words, **options).stdout

    def json(self, *words, **options):
        document = json.loads(self.output(*words, "--json", **options))
        self.assertEqual(document["schema"], 1)
        return document

    def usage_error(self, *words):
        """The text of a refused command line."""
        done = self.run_command(*words, code=2)
        self.assertEqual(done.stdout, "")
        self.assertIn("--help", done.stderr)
        return done.stderr

    def add_plugin(self, name):
        """Copies a plugin of the test suite into the plugin folder, or skips the test when it was not built."""
        for folder in ("all", "golden"):
            source = os.path.join(PLUGINS, folder, f"librlk_plugin_{name}.so")
            if os.path.exists(source):
                return shutil.copy2(source, self.plugins)
        self.skipTest(f"the test plugin {name} is not built")


def main():
    if not COMMAND:
        sys.exit("set RLK_TEST_COMMAND to the path of rlk-plugins")
    unittest.main()
