"""`rlk-plugins new`: a plugin to begin with."""
import os
import shlex
import shutil
import subprocess

import command


class New(command.Case):
    def test_the_template_is_copied_under_the_new_name(self):
        folder = self.path("plugin")
        files = self.json("new", "zenith_x1", "--folder", folder)["files"]
        self.assertTrue(files)
        text = ""
        for file in files:
            with open(file) as opened:
                text += opened.read()
            self.assertNotIn("acme", os.path.basename(file).lower())
        self.assertNotIn("acme", text.lower())
        self.assertIn("rlk_add_plugin(zenith_x1", text)
        self.assertIn("exists already", self.usage_error("new", "zenith_x1", "--folder", folder))

    def test_a_wheel_of_the_plugin_is_asked_for(self):
        plain = self.json("new", "zenith", "--folder", self.path("plain"))["files"]
        files = self.json("new", "zenith_x1", "--folder", self.path("plugin"), "--wheel")["files"]
        self.assertEqual(len(files), len(plain) + 2)
        with open(self.path("plugin/pyproject.toml")) as file:
            text = file.read()
        self.assertIn('[project.entry-points."rlk.plugins"]\nzenith_x1 = "rlk_plugin_zenith_x1"', text)
        self.assertTrue(os.path.exists(self.path("plugin/rlk_plugin_zenith_x1/__init__.py")))
        for file in files:
            with open(file) as opened:
                self.assertNotIn("acme", opened.read().lower())

    def test_the_next_commands_can_be_copied(self):
        folder = self.path("my plugin")
        lines = [shlex.split(line) for line in self.output("new", "zenith", "--folder", folder, "--wheel").splitlines()]
        install, configure = [line for line in lines if line[:1] == ["cmake"]]
        self.assertEqual(configure[:5], ["cmake", "-S", folder, "-B", folder + "/build"])
        # The command under test is one of a build tree, where find_package(rlk) finds nothing.
        self.assertEqual(install[:2] + install[3:4], ["cmake", "--install", "--prefix"])
        self.assertTrue(os.path.exists(os.path.join(install[2], "CMakeCache.txt")))
        self.assertEqual(configure[5], "-DCMAKE_PREFIX_PATH=" + install[4])
        self.assertNotEqual(install[2], install[4])
        self.assertIn(["rlk-plugins", "conformance", folder + "/build/librlk_plugin_zenith.so"], lines)
        self.assertEqual([line[-1] for line in lines if line[:1] == ["pip"]], [folder + "/"])

    def test_names_that_are_no_identifiers_are_refused(self):
        for name in ("Acme", "9lives", "a-b", "../x", "", "a/b"):
            self.assertIn("expected a name of a-z", self.usage_error("new", name))
        self.assertIn("the name has 300 characters; at most 64", self.usage_error("new", "a" * 300))

    def test_names_that_clash_are_refused(self):
        for name in ("cpu", "cuda"):
            self.assertIn("rlk's own plugin has that id", self.usage_error("new", name))
        for name in ("class", "int", "std", "rlk"):
            self.assertIn("C++ namespace", self.usage_error("new", name))
        path = self.add_plugin("golden")
        self.assertIn(path + " has that id already", self.usage_error("new", "golden"))

    @staticmethod
    def comments(text):
        """Each comment as readers see it: the words of lines that stand below each other."""
        out, words, column = [], [], None
        for line in text.splitlines() + [""]:
            at = line.find("//")
            if at < 0 or line[:at].strip() or at != column:
                out += [" ".join(words)] if words else []
                words, column = [], at
            if at >= 0:
                words += line[at + 2:].split()
        return out

    def test_comments_of_the_template_survive_clang_format(self):
        tool = shutil.which("clang-format-14") or shutil.which("clang-format")
        if tool is None:
            self.skipTest("there is no clang-format")

        def formatted(text, style, columns):
            return subprocess.run([tool, f"--style={{BasedOnStyle: {style}, ColumnLimit: {columns}}}"], input=text,
                                  capture_output=True, text=True, check=True).stdout
        # What would be noticed: a comment at the end of a line that is broken above another one.
        fused = "void f();  // a comment that is too long for its line\n           // another\n"
        self.assertEqual(len(self.comments(fused)), 1)
        for number, name in enumerate(("x", "zenith", "the_longest_name_that_a_vendor_gives_to_a_plugin")):
            folder = self.path(f"plugin{number}")
            for path in self.json("new", name, "--folder", folder)["files"]:
                if not path.endswith((".cpp", ".hpp")):
                    continue
                with open(path) as file:
                    text = file.read()
                for style in ("LLVM", "Google", "Mozilla", "WebKit", "Microsoft", "GNU"):
                    for columns in (80, 100, 120):
                        with self.subTest(name=name, style=style, columns=columns):
                            self.assertEqual(self.comments(formatted(text, style, columns)), self.comments(text))


if __name__ == "__main__":
    command.main()
