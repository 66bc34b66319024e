"""`rlk-plugins report`: one page, from the data of the other verbs."""
import html.parser
import os
import unittest

import command

EMPTY = {"meta", "br", "img", "link", "input", "hr"}


class Page(html.parser.HTMLParser):
    """What of a page a reader sees, and whether its tags are in order."""

    def __init__(self, text):
        super().__init__()
        self.open, self.text, self.tags, self.ids, self.wrong = [], "", [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.tags.append((tag, attrs))
        self.ids += [attrs["id"]] if "id" in attrs else []
        if tag not in EMPTY:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.wrong.append(tag)

    def handle_data(self, data):
        if self.open and self.open[-1] != "style":
            self.text += data


class Report(command.Case):
    def page(self, **options):
        path = self.path("report.html")
        self.output("report", "--html", path, **options)
        with open(path) as file:
            return Page(file.read())

    def test_the_page_has_what_the_other_verbs_say(self):
        self.add_plugin("liar_softcap")
        page = self.page(code=1, RLK_ADD_PLUGIN_PATH=self.path("<b>none"))
        self.assertEqual((page.wrong, page.open), ([], []))
        self.assertEqual(page.ids, ["plugins", "verdicts", "quarantine", "checks", "operators"])
        document = self.json("report", code=1, RLK_ADD_PLUGIN_PATH=self.path("<b>none"))
        listed = self.json("list", code=1, RLK_ADD_PLUGIN_PATH=self.path("<b>none"))
        self.assertEqual(document["list"], listed)
        self.assertEqual(document["scopes"][1], self.json("scope", "liar_softcap", code=1))
        self.assertEqual(document["ops"], self.json("ops"))
        [liar] = [p for p in listed["plugins"] if p["id"] == "liar_softcap"]
        for text in (liar["reason"], liar["path"], self.path("<b>none"), "RLK_CACHE_DIR", "Nothing is switched off"):
            self.assertIn(text, page.text)
        failed = [u for u in document["scopes"][1]["units"] if u["verdict"] == "failed"]
        self.assertTrue(failed)
        for unit in failed:
            self.assertIn(unit["reason"], page.text)
        for op in document["ops"]["ops"]:
            self.assertIn(op["name"], page.text)

    def test_a_value_that_is_no_text_is_shown_escaped(self):
        named = os.fsdecode(b"/nonexistent/\xe9\x1b[31m")
        page = self.page(code=1, RLK_ADD_PLUGIN_PATH=named)  # read as UTF-8
        self.assertIn(r"/nonexistent/\xe9\x1b[31m", page.text)
        self.assertNotIn("\x1b", page.text)

    def test_an_operator_of_which_nothing_is_left_has_failed_and_is_not_partial(self):
        self.add_plugin("golden")
        with open(self.path("policy.toml"), "w") as file:
            file.write('[[known_bad]]\nplugin = "golden"\nseen = { runtime_fingerprint = "golden 1*" }\n'
                       'operators = ["add"]\nreason = "NaN where a is 0"\n')
        site = {"RLK_CONFIG": self.path("policy.toml")}
        self.assertRegex(self.output("list", code=1, **site), r"golden .* 3 verified, 1 failed")
        self.assertIn("3 verified, 1 failed", self.page(code=1, **site).text)

    def test_it_is_readable_without_colours_by_keyboard_and_on_a_phone(self):
        page = self.page()
        self.assertIn(("html", {"lang": "en"}), page.tags)
        self.assertTrue(any(a.get("name") == "viewport" for t, a in page.tags if t == "meta"))
        self.assertEqual([t for t, _ in page.tags if t == "script"], [])
        headings = [int(t[1]) for t, _ in page.tags if t in ("h1", "h2", "h3")]
        self.assertEqual(headings[0], 1)
        self.assertTrue(all(b - a <= 1 for a, b in zip(headings, headings[1:])))
        for tag, attrs in page.tags:
            if tag == "th":
                self.assertIn(attrs.get("scope"), ("col", "row"))
            if attrs.get("class") == "scroll":  # reached and named without a mouse
                self.assertEqual((attrs["tabindex"], attrs["role"]), ("0", "region"))
                self.assertTrue(attrs["aria-label"])
        self.assertIn("registered", page.text)  # a word, not a colour alone

    def test_a_page_on_standard_output_is_the_page_and_a_file_that_cannot_be_written_is_told(self):
        self.assertTrue(self.output("report").startswith("<!doctype html>"))
        # Before anything is tried, and as every other output is.
        self.assertIn("No such file or directory", self.usage_error("report", "--html", self.path("no/such/folder.html")))
        self.assertIn("choose one", self.usage_error("report", "--html", "x", "--json"))
        self.assertFalse(os.path.exists(self.path("x")))


if __name__ == "__main__":
    command.main()
