"""What is installed with the command: JSON schemas that its outputs keep, a man page and completions that know every
word of its help, a page for each operator."""
import ctypes
import glob
import json
import os
import shutil
import subprocess
import tempfile
import unittest

import jsonschema

import command

SCHEMAS = os.environ["RLK_TEST_SCHEMAS"]
DOCUMENTS = os.environ["RLK_TEST_DOCUMENTS"]


def read(*parts):
    with open(os.path.join(*parts)) as file:
        return file.read()


def ask(*words):
    return json.loads(subprocess.run([command.COMMAND, *words], check=True, capture_output=True).stdout)


class Schemas(command.Case):
    def schema(self, name):
        """As a validator has it that was given the folder: `$ref` names another schema's `$id`."""
        every = [json.loads(read(SCHEMAS, file)) for file in os.listdir(SCHEMAS) if file.endswith(".schema.json")]
        by_id = {one["$id"]: one for one in every}
        self.assertEqual(len(by_id), len(every))

        def whole(part):
            if isinstance(part, dict) and "$ref" in part:
                return whole(by_id[part["$ref"]])
            if isinstance(part, dict):
                return {key: whole(value) for key, value in part.items() if key != "$id"}
            return [whole(value) for value in part] if isinstance(part, list) else part

        return whole(by_id[f"{name}.schema.json"])

    def keeps(self, name, document):
        schema = self.schema(name)
        jsonschema.Draft202012Validator.check_schema(schema)
        errors = [f"{'/'.join(map(str, error.path))}: {error.message[:300]}"
                  for error in jsonschema.Draft202012Validator(schema).iter_errors(document)]
        self.assertEqual(errors, [])
        # One that accepts everything would be none.
        for key in document:
            self.assertFalse(jsonschema.Draft202012Validator(schema).is_valid({**document, key: 3.5}), key)

    def test_of_plugins_that_are_good_wrong_absent_and_no_files_at_all(self):
        liar = self.add_plugin("liar_softcap")
        self.add_plugin("missing_library")
        crash = self.add_plugin("crash_create")
        found = self.json("list", code=1, RLK_ADD_PLUGIN_PATH=self.path("none"))
        self.assertIn("search", found)
        self.keeps("list", found)
        self.keeps("doctor", self.json("doctor", code=1))
        report = self.json("report", code=1)
        self.keeps("report", report)
        report["ops"]["ops"][0]["params"].append({"name": "x"})
        self.assertFalse(jsonschema.Draft202012Validator(self.schema("report")).is_valid(report))
        for plugin, code in (("cpu", 0), ("liar_softcap", 1), ("missing_library", 0)):
            self.keeps("scope", self.json("scope", plugin, code=code))
            self.keeps("inspect", self.json("inspect", plugin, code=code))
        self.keeps("conformance", self.json("conformance", liar, "--op", "logp", "--dtype", "f32", code=1))
        self.keeps("conformance", self.json("conformance", crash, code=1))
        self.keeps("lint", self.json("lint", liar))
        text = self.path("librlk_plugin_text.so")
        with open(text, "w") as file:
            file.write("not ELF")
        self.keeps("lint", self.json("lint", text, code=1))

    def test_of_calls_that_are_taken_and_refused(self):
        self.add_plugin("golden")
        self.keeps("explain", self.json("explain", "logp"))
        self.keeps("explain", self.json("explain", "whiten", "--shape", "B=1,L=3"))  # golden has none
        self.keeps("explain", self.json("explain", "whiten", "--shape", "B=1,L=3", code=1, RLK_BACKEND="golden",
                                        RLK_FALLBACK="strict"))

    def test_of_counters(self):
        os.environ["RLK_PLUGIN_PATH"], os.environ["RLK_CACHE_DIR"] = self.plugins, self.cache
        library, runtime, text = ctypes.CDLL(os.environ["RLK_TEST_LIBRARY"]), ctypes.c_void_p(), ctypes.c_char_p()
        self.assertEqual(library.rlk_runtime_create(None, ctypes.byref(runtime), None), 0)
        self.assertEqual(library.rlk_counters_json(runtime, ctypes.byref(text), None), 0)
        self.keeps("counters", json.loads(text.value))
        self.assertEqual(library.rlk_runtime_destroy(runtime, None), 0)

    def test_every_schema_is_tried_here(self):
        names = {os.path.basename(path).split(".")[0] for path in glob.glob(os.path.join(SCHEMAS, "*"))}
        self.assertEqual(names, {"list", "doctor", "scope", "conformance", "explain", "counters", "inspect", "lint",
                                 "report"})


class Pages(unittest.TestCase):
    verbs = ask("help", "--json")["verbs"]

    def test_the_help_of_a_verb_and_its_document_agree(self):
        for verb in self.verbs:
            text = subprocess.run([command.COMMAND, verb["name"], "--help"], check=True, capture_output=True,
                                  text=True).stdout
            self.assertTrue(text.startswith(verb["usage"]), verb["usage"])
            for option in verb["options"]:
                self.assertIn("--" + option["name"], text)

    def test_the_man_page_has_every_verb_and_option(self):
        page = read(DOCUMENTS, "rlk-plugins.1").replace("\\-", "-")
        for verb in self.verbs:
            self.assertIn(".SS " + verb["usage"], page)
            for option in verb["options"]:
                self.assertIn("\\fB--" + option["name"] + "\\fR", page)
        # Nothing of a text may be a command of roff's.
        known = (".TH", ".SH", ".SS", ".PP", ".TP", ".B ", ".br", ".nf", ".fi")
        for line in page.splitlines():
            self.assertTrue(line[:1] not in (".", "'") or line.startswith(known), line)

    def complete(self, *words, env=None):
        script = 'source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _rlk_plugins; echo "${COMPREPLY[@]}"'
        done = subprocess.run(["bash", "-uc", script, "bash", os.path.join(DOCUMENTS, "rlk-plugins.bash"), "rlk-plugins",
                               *words], check=True, capture_output=True, text=True, cwd=SCHEMAS, env=env)
        return done.stdout.split()

    def test_bash_completes_verbs_options_operators_and_files(self):
        self.assertEqual(self.complete("conf"), ["conformance"])
        self.assertEqual(self.complete("conformance", "--ju"), ["--junit"])
        self.assertEqual(self.complete("explain", "logp_b"), ["logp_backward"])
        self.assertEqual(self.complete("cache", "ex")[0], "export")
        self.assertEqual(self.complete("conformance", "--op", "whi"), ["whiten"])
        self.assertIn("list.schema.json", self.complete("lint", "list"))
        self.assertIn("list.schema.json", self.complete("conformance", "cpu", "--json", "list"))

    def test_where_a_plugins_id_stands_ids_are_offered_and_no_files(self):
        with tempfile.TemporaryDirectory() as folder:
            open(os.path.join(folder, "librlk_plugin_lister.so"), "w").close()  # nothing of it runs
            environment = os.environ | {"RLK_PLUGIN_PATH": folder}
            self.assertEqual(self.complete("inspect", "list", env=environment), ["lister"])
            self.assertEqual(self.complete("quarantine", "clear", "list", env=environment), ["lister"])
            self.assertEqual(self.complete("probe", "cp", env=environment), ["cpu"])
            self.assertNotIn("list.schema.json", self.complete("scope", "", env=environment))

    def test_zsh_completes_verbs_options_operators_and_files(self):
        if shutil.which("zsh") is None:
            self.skipTest("there is no zsh")
        # The functions of zsh's own that a completion calls exist on a terminal only: here they print what they are given.
        script = ('_describe() { shift $(( $# - 1 )); print -l -- ${(P)1%%:*}; }; _files() { print -l files; }; '
                  'compadd() { print -l -- ${(P)2}; }; '
                  'words=("${@:2}"); CURRENT=$#words; PREFIX=$words[-1]; run() { source "$file"; }; file=$1; run')

        def complete(*words):
            done = subprocess.run(["zsh", "-fc", script, "zsh", os.path.join(DOCUMENTS, "rlk-plugins.zsh"), "rlk-plugins",
                                   *words], capture_output=True, text=True, check=True)
            self.assertEqual(done.stderr, "")
            return [word for word in done.stdout.split() if word.startswith(words[-1]) or word == "files"]

        self.assertEqual(complete("conf"), ["conformance"])
        self.assertEqual(complete("conformance", "--ju"), ["--junit"])
        self.assertEqual(complete("explain", "logp_b"), ["logp_backward"])
        self.assertEqual(complete("cache", "ex"), ["export", "files"])
        self.assertEqual(complete("conformance", "--op", "whi")[0], "whiten")

    def test_fish_completes_verbs_options_operators_and_files(self):
        if shutil.which("fish") is None:
            self.skipTest("there is no fish")

        def complete(line):
            done = subprocess.run(["fish", "--no-config", "-c", 'source $argv[1]; complete -C $argv[2]',
                                   os.path.join(DOCUMENTS, "rlk-plugins.fish"), "rlk-plugins " + line], cwd=SCHEMAS,
                                  capture_output=True, text=True, check=True)
            self.assertEqual(done.stderr, "")
            return [word.split("\t")[0] for word in done.stdout.splitlines()]

        self.assertEqual(complete("conf"), ["conformance"])
        self.assertEqual(complete("conformance --ju"), ["--junit"])
        self.assertIn("logp_backward", complete("explain logp_b"))
        self.assertIn("export", complete("cache ex"))
        self.assertEqual(complete("conformance --op whi")[0], "whiten")
        self.assertIn("list.schema.json", complete("lint list"))

    def test_every_operator_has_a_page(self):
        ops = ask("ops", "--json")["ops"]
        for op in ops:
            page = read(DOCUMENTS, "operators", op["name"] + ".md")
            for argument in (*op["inputs"], *op["outputs"], *op["params"]):
                self.assertIn(f"| {argument['name']} |", page)
            self.assertIn(f"({op['name']}.md)", read(DOCUMENTS, "operators", "README.md"))


if __name__ == "__main__":
    command.main()
