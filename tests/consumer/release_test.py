"""What a release would publish, made of what this build built: the files, their checksums, and the bill of materials. Packing
takes two minutes: in the long run, RLK_TEST_LONG=1.

    release_test.py SOURCE BUILD    works in SOURCE/build/publish; ends with 77 otherwise, or where pip cannot fetch the tools
"""
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
import tarfile
import unittest
import zipfile

SOURCE, BUILD = (pathlib.Path(argument) for argument in sys.argv[1:3])
PUBLISH = SOURCE / "build" / "publish"


def setUpModule():
    done = subprocess.run([SOURCE / "packaging" / "release.sh", "--build", BUILD], capture_output=True, text=True, check=False,
                          env=os.environ | {"RLK_RELEASE_TRIAL": "1"}, timeout=900)
    if done.returncode == 77:
        sys.exit(77)
    if done.returncode != 0:
        raise AssertionError(f"release.sh ended with {done.returncode}:\n{done.stdout}{done.stderr}")


class Release(unittest.TestCase):
    def test_it_is_wheel_package_site_sources_and_bill_of_materials_with_right_checksums(self):
        told = dict(reversed(line.split("  ", 1)) for line in (PUBLISH / "SHA256SUMS").read_text().splitlines())
        self.assertEqual(set(told) | {"SHA256SUMS"}, {path.name for path in PUBLISH.iterdir()})
        for name, digest in told.items():
            self.assertEqual(hashlib.sha256((PUBLISH / name).read_bytes()).hexdigest(), digest, name)
        for pattern in (r"rlk-.*\.whl", r"rlk_.*\.deb", r"rlk-[0-9.]+\.tar\.gz", r"rlk-[0-9.]+-html\.tar\.gz", r"rlk-.*\.spdx\.json"):
            self.assertEqual(len([name for name in told if re.fullmatch(pattern, name)]), 1, pattern)

    def test_the_source_archive_is_the_committed_tree(self):
        with tarfile.open(next(path for path in PUBLISH.glob("*.tar.gz") if "-html" not in path.name)) as archive:
            inside = {name.split("/", 1)[1] for name in archive.getnames() if "/" in name}
        tracked = subprocess.run(["git", "ls-tree", "-r", "--name-only", "HEAD"], cwd=SOURCE, capture_output=True, text=True, check=True)
        self.assertEqual(set(tracked.stdout.splitlines()) - inside, set())

    def test_the_site_is_in_its_archive_and_in_the_debian_package_and_not_in_the_wheel(self):
        with tarfile.open(next(PUBLISH.glob("*-html.tar.gz"))) as archive:
            files = {member.name.partition("/")[2] for member in archive.getmembers() if member.isfile()}
        self.assertLessEqual({"index.html", "search.html", "searchindex.js", "operators/logp.html", "_static/LICENSES.txt"}, files)
        listed = subprocess.run(["dpkg-deb", "--contents", next(PUBLISH.glob("*.deb"))], capture_output=True, text=True, check=True)
        packed = set(re.findall(r" \./usr/share/doc/rlk/html/(.*[^/])$", listed.stdout, re.MULTILINE))
        self.assertEqual(packed, files)
        with zipfile.ZipFile(next(PUBLISH.glob("*.whl"))) as wheel:
            self.assertEqual([name for name in wheel.namelist() if "/html/" in name], [])

    def test_the_bill_names_every_published_file_and_what_it_is_made_of(self):
        bill = json.loads(next(PUBLISH.glob("*.spdx.json")).read_text())
        names = {file["fileName"][2:]: file["checksums"][-1]["checksumValue"] for file in bill["files"]}
        self.assertEqual(set(names), {path.name for path in PUBLISH.iterdir()} - {"SHA256SUMS", f"{bill['name']}.spdx.json"})
        packages = {package["name"]: package["versionInfo"] for package in bill["packages"]}
        self.assertLessEqual({"rlk", "oneTBB", "Highway", "Boost", "fmt", "sphinx", "furo"}, set(packages))
        self.assertTrue(all(packages.values()))


if __name__ == "__main__":
    if os.environ.get("RLK_TEST_LONG") != "1":
        print("packs wheel and package for minutes: in the long run, RLK_TEST_LONG=1")
        sys.exit(77)
    unittest.main(argv=sys.argv[:1])
