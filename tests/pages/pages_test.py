"""The pages of the tree, those that are installed, and the site of them: each relative link leads to a page and a heading that
are there, and the files that a page names exist."""
import html
import json
import os
import pathlib
import re
import subprocess
import tempfile
import unittest
import urllib.parse

ROOT = pathlib.Path(os.environ["RLK_TEST_ROOT"])
# Where a name in a page may begin: the tree, and what is in front of <rlk/...>.
FOLDERS = (ROOT, ROOT / "plugin_api/include", ROOT / "loader/api/include")
FILE = re.compile(r"`((?:[\w.-]+/)+[\w.-]+\.(?:md|py|sh|cpp|hpp|h|toml|cuh|cmake|inc|ipynb))`")


def pages_below(folder):
    for path, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith((".", "build", "shared"))]
        yield from (pathlib.Path(path, name) for name in files if name.endswith(".md"))


def prose(page):
    """Without code: fenced and indented."""
    return re.sub(r"^(    .*\n)+", "", re.sub(r"^ *```.*?^ *```", "", page.read_text(), flags=re.M | re.S), flags=re.M)


def headings(page):
    """The anchors that a browser of the repository gives to them."""
    seen = {}
    for title in re.findall(r"^#+ (.*)$", prose(page), re.M):
        anchor = re.sub(r"[^\w\- ]", "", re.sub(r"\[(.*?)\]\(.*?\)", r"\1", title).lower()).replace(" ", "-")
        count = seen[anchor] = seen.get(anchor, -1) + 1
        yield f"{anchor}-{count}" if count else anchor


def broken_links(page):
    wrong = []
    for target in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`\n]*`", "", prose(page))):
        if re.match(r"\w+:", target):
            continue
        path, _, anchor = target.partition("#")
        led = page.parent / path if path else page
        if not led.is_file():
            wrong.append(f"{page}: {target}: there is no such file")
        elif anchor and anchor not in headings(led):
            wrong.append(f"{page}: {target}: there is no such heading")
    return wrong


def missing_files(page):
    """What a page names; names with capitals or `...` in them stand for many."""
    return [f"{page}: {name}" for name in FILE.findall(prose(page))
            if not re.search(r"[A-Z]{2}|acme|\.\.\.", name.replace("README", "").replace("CMakeLists", ""))
            and not any((folder / name).exists() for folder in (*FOLDERS, page.parent))]


def broken_links_of_site(top):
    texts = {path: path.read_text() for path in top.rglob("*.html")}
    anchors = {path: set(re.findall(r' id="([^"]+)"', text)) for path, text in texts.items()}
    wrong = set()
    for page, text in texts.items():
        for target in set(re.findall(r' (?:href|src)="([^"]*)"', text)):
            address = urllib.parse.urlsplit(html.unescape(target))
            if address.scheme or address.netloc:
                continue
            path, anchor = urllib.parse.unquote(address.path), urllib.parse.unquote(address.fragment)
            led = pathlib.Path(os.path.normpath(page.parent / path)) if path else page
            if not led.is_relative_to(top) or not led.is_file():
                wrong.add(f"{page.relative_to(top)}: {target}: there is no such file in the site")
            elif anchor and led in anchors and anchor not in anchors[led]:
                wrong.add(f"{page.relative_to(top)}: {target}: there is no such heading")
    return sorted(wrong)


def install(component, prefix):
    """The folder of what is installed of the pages."""
    subprocess.run([os.environ["RLK_TEST_CMAKE"], "--install", os.environ["RLK_TEST_BUILD"], "--prefix", prefix,
                    "--component", component], check=True, capture_output=True)
    return pathlib.Path(prefix, os.environ["RLK_TEST_DOCDIR"])


class Pages(unittest.TestCase):
    def test_every_link_of_the_tree_leads_to_a_page_and_a_heading(self):
        pages = list(pages_below(ROOT))
        self.assertGreater(len(pages), 10)
        self.assertEqual([wrong for page in pages for wrong in broken_links(page)], [])

    def test_every_link_of_an_installed_page_leads_to_an_installed_page(self):
        with tempfile.TemporaryDirectory() as prefix:
            top = install("pages", prefix)
            installed = {str(page.relative_to(top)) for page in pages_below(top)}
            self.assertLessEqual({"README.md", "docs/cluster.md", "operators/logp.md", "plugins/SUPPORT.md"}, installed)
            self.assertEqual([wrong for page in pages_below(top) for wrong in broken_links(page)], [])

    def test_the_installed_site_has_every_page_can_be_searched_and_its_links_lead_to_a_page_and_a_heading(self):
        if not (ROOT / "build/site/html").exists():
            self.skipTest("there is no build/site/html: packaging/site.sh has not been run here")
        with tempfile.TemporaryDirectory() as prefix:
            pages = {str(page.relative_to(top).with_suffix("")) for top in [install("pages", prefix)] for page in pages_below(top)}
            top = install("site", prefix) / "html"
            self.assertEqual([name for name in pages - {"README"} | {"index", "search"} if not (top / f"{name}.html").is_file()], [])
            index = re.fullmatch(r"Search\.setIndex\((.*)\)", (top / "searchindex.js").read_text().strip(), re.S)
            self.assertEqual(set(json.loads(index[1])["docnames"]), pages - {"README"} | {"index"}, "packaging/site.sh makes it anew")
            self.assertIn("searchindex.js", (top / "search.html").read_text())
            self.assertEqual(broken_links_of_site(top), [])

    def test_the_files_that_a_page_names_are_there(self):
        self.assertGreater(sum(len(FILE.findall(prose(page))) for page in pages_below(ROOT)), 50)
        self.assertEqual([wrong for page in pages_below(ROOT) for wrong in missing_files(page)], [])

    def test_the_pages_that_a_reader_begins_with_are_short(self):
        for name in ("README.md", "CONTRIBUTING.md"):
            self.assertLessEqual((ROOT / name).stat().st_size, 8192, name)

    def test_a_link_to_nothing_is_found(self):
        with tempfile.TemporaryDirectory() as folder:
            page = pathlib.Path(folder, "page.md")
            page.write_text("# A title, `it` is\n## Twice\n## Twice\n[a](page.md#a-title-it-is) [b](#twice-1) [c](https://c)\n"
                            "`[d](d.md)`\n\n    [e](e.md)\n\n[f](f.md) [g](#g)\n`tests/none/g.py` `plugins/KEY/a.py`\n")
            self.assertEqual([wrong.split(": ")[1] for wrong in broken_links(page)], ["f.md", "#g"])
            self.assertEqual(missing_files(page), [f"{page}: tests/none/g.py"])

    def test_a_link_of_a_site_to_nothing_is_found(self):
        with tempfile.TemporaryDirectory() as folder:
            top = pathlib.Path(folder, "html")
            top.mkdir()
            pathlib.Path(folder, "out.html").touch()
            (top / "a b.js").touch()
            (top / "index.html").write_text('<h1 id="it&#39;s"></h1> <a href="?q=1#here"></a> <b id="here"></b> <img src="a%20b.js?v=1"/>'
                                            '<a href="https://c"></a> <a href="//c/d"></a> <a href="d.html"></a> <a href="#e"></a>'
                                            '<img src="f.png"/> <a href="../out.html"></a>')
            self.assertEqual([wrong.split(": ")[1] for wrong in broken_links_of_site(top)], ["#e", "../out.html", "d.html", "f.png"])


if __name__ == "__main__":
    unittest.main(verbosity=2)  # says why something was skipped
