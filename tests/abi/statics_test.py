# No static of librlk has a destructor: exit() would destroy it while other threads go on and read it. Looks at every
# object that librlk is linked from for the calls that register destructors. A static with one stands in sdk::Immortal.
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

build = pathlib.Path(sys.argv[1])
library = pathlib.Path(sys.argv[2]).relative_to(build)
nm, compiler = sys.argv[3:5]

# Of statics and of thread_local objects: those of the thread that ends the process die first of all.
REGISTRATIONS = {"__cxa_atexit", "__cxa_thread_atexit"}
# Parts of the standard library, which knows what it destroys.
FOREIGN = {"librlk_portable.a"}


def linked_files(library):
    """The objects and static libraries of the build that the library is linked from."""
    text = (build / "build.ninja").read_text()
    rule = re.search(rf"^build {re.escape(str(library))}.*?(?=^$)", text, re.MULTILINE | re.DOTALL)
    assert rule, f"no rule for {library}"
    names = set(re.findall(r"[^\s:|=]+\.(?:o|a)(?=\s|$)", rule.group(0)))
    return sorted(build / name for name in names if (build / name).exists())


def registrations(files):
    """(file and object, symbol) of every registration, and the number of objects seen."""
    found, objects = [], set()
    output = subprocess.run([nm, "-A", "--undefined-only", *map(str, files)], check=True, capture_output=True, text=True)
    for line in output.stdout.splitlines():
        where, _, symbol = line.rpartition(" ")
        where = where.rpartition(":")[0]
        objects.add(where)
        if symbol.partition("@")[0] in REGISTRATIONS and pathlib.Path(where.partition(":")[0]).name not in FOREIGN:
            found.append((where, symbol))
    return found, len(objects)


class Statics(unittest.TestCase):
    def test_no_static_of_the_library_has_a_destructor(self):
        files = linked_files(library)
        found, objects = registrations(files)
        self.assertGreater(objects, 100, files)
        for part in ("golden", "conformance", "dispatch", "loader_rooms", "cpu_kernels", "rlk_runtime"):
            self.assertTrue(any(part in str(file) for file in files), part)
        self.assertEqual(found, [])

    def test_a_static_with_a_destructor_is_seen(self):
        with tempfile.TemporaryDirectory() as folder:
            source = pathlib.Path(folder, "a.cpp")
            source.write_text("#include <string>\nconst std::string& text() { static std::string one; return one; }\n"
                              "std::string& own() { static thread_local std::string one; return one; }\n")
            subprocess.run([compiler, "-std=c++17", "-c", str(source), "-o", f"{folder}/a.o"], check=True)
            self.assertEqual({symbol for _, symbol in registrations([f"{folder}/a.o"])[0]}, REGISTRATIONS)


unittest.main(argv=sys.argv[:1])
