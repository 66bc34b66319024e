"""What the built files ask of a machine (DT_NEEDED) and what they show to others (dynamic symbols).

    dependencies_test.py [--shared-boost] library=FILE program=FILE... plugin=FILE...

Everything may need TBB and the C and C++ runtime, and nothing else: a librlk that asks for one distribution's spdlog
runs on that distribution alone. --shared-boost: where the distribution has no static Boost, the command may need
Boost's parser of options. The library shows rlk_*, a plugin its entry; no file shows a library that is inside it.
"""
import re
import subprocess
import sys
import unittest

FILES = []  # (kind, path)
SHARED_BOOST = "--shared-boost" in sys.argv
ALLOWED = re.compile(r"(libtbb\.so\.12|libstdc\+\+\.so\.6|libgcc_s\.so\.1|lib(m|c|dl|pthread|rt)\.so\.\d+"
                     r"|ld-linux.*\.so\.\d+)")
EXPORTED = {"library": re.compile(r"rlk_\w+"), "plugin": re.compile(r"rlk_plugin_entry_v1")}
INSIDE = re.compile(r"\b(spdlog|fmt|boost|hwy|toml|nlohmann)::")


def lines_of(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


def needed(path):
    found = [re.search(r"\(NEEDED\).*\[(.*)\]", line) for line in lines_of("readelf", "-dW", path)]
    return [match[1] for match in found if match]


def exported(path):
    names = [line.split(" ", 2)[2] for line in lines_of("nm", "-DC", "--defined-only", path) if line.count(" ") >= 2]
    # What the C and C++ runtime itself asks of the program.
    return [name for name in names if "@" not in name]


class Dependencies(unittest.TestCase):
    def test_only_tbb_and_the_runtime_of_the_language_are_needed(self):
        for kind, path in FILES:
            libraries = needed(path)
            self.assertIn("libc.so.6", libraries, f"{path}: readelf names no dependencies")
            strangers = [library for library in libraries if not ALLOWED.fullmatch(library)]
            if kind == "program" and SHARED_BOOST:
                strangers = [library for library in strangers if not library.startswith("libboost_program_options.so")]
            if kind == "plugin":
                strangers += [library for library in libraries if library.startswith("libtbb")]
            self.assertEqual(strangers, [], path)

    def test_the_library_and_plugins_show_their_own_interface_alone(self):
        for kind, path in FILES:
            if kind not in EXPORTED:
                continue
            names = exported(path)
            self.assertNotEqual(names, [], path)
            self.assertEqual([name for name in names if not EXPORTED[kind].fullmatch(name)], [], path)

    def test_nothing_that_is_inside_shows(self):
        for _, path in FILES:
            self.assertEqual([name for name in exported(path) if INSIDE.search(name)], [], path)


if __name__ == "__main__":
    FILES = [tuple(argument.split("=", 1)) for argument in sys.argv[1:] if "=" in argument]
    assert FILES, __doc__
    unittest.main(argv=sys.argv[:1], verbosity=2)
