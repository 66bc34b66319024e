"""The golden references share no code with what they judge: nothing that they include, directly or through other headers of this
tree, is a formula of the contract, a kernel or a plugin.

usage: includes_test.py SOURCE_ROOT
"""
import pathlib
import re
import sys
import unittest

ROOT = pathlib.Path(sys.argv.pop(1))
PLACES = (ROOT, ROOT / "plugin_api/include")
FORBIDDEN = ("plugin_api/include/rlk/formula/", "core/cpu/", "plugins/")


def included(path):
    """The files of this tree that a file includes; generated ones have no code of ours."""
    for name in re.findall(r'^#include ["<]([^">]+)[">]', path.read_text(), re.M):
        for place in (path.parent, *PLACES):
            if (place / name).is_file():
                yield (place / name).resolve()
                break


def reached(path, seen):
    """{file: the file that included it}, of everything behind the path."""
    for one in included(path):
        if one not in seen:
            seen[one] = path
            reached(one, seen)
    return seen


class Golden(unittest.TestCase):
    def test_nothing_that_is_judged_is_included(self):
        sources = sorted((ROOT / "core/golden").rglob("*.[ch]pp"))
        self.assertGreater(len(sources), 30)
        for source in sources:
            for one, by in reached(source.resolve(), {}).items():
                with self.subTest(source=source.name, included=one.name):
                    self.assertFalse(str(one.relative_to(ROOT)).startswith(FORBIDDEN), f"{one}, included by {by}")

    def test_what_a_kernel_includes_is_seen(self):
        kernel = next((ROOT / "core/cpu").rglob("ratio_kl.cpp"))
        behind = [str(one.relative_to(ROOT)) for one in reached(kernel.resolve(), {})]
        self.assertTrue(any(one.startswith(FORBIDDEN[0]) for one in behind), behind)


if __name__ == "__main__":
    unittest.main()
